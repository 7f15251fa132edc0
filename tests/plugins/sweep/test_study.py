"""The study of a sweep: its trials, kills, and processes that share it."""

import itertools
import json
import os
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from helpers.errors import refused
from helpers.sweeps import sweep_settings
from helpers.waiting import wait_until

optuna = pytest.importorskip("optuna", reason="optuna is not installed")

from t2t_keras.plugins.sweep.study import FILE, SweepStudy, run_dir  # noqa: E402
from t2t_keras.ranged_hparams import Interval  # noqa: E402
from t2t_keras.run.directory import training_lock  # noqa: E402

STEPS = (20, 40)


def journal(path):
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    return optuna.storages.JournalStorage(backend)


def score(hparams, step):
    """A training that is a formula."""
    value = 30 - 50 * abs(hparams["dropout"] - 0.2) - hparams["num_layers"]
    return value * step / 40 - abs(np.log(hparams["learning_rate"]))


def train(trial, scores):
    """Trains a trial until it ends; `scores` are its evaluations so far."""
    for step in STEPS[len(scores) :]:
        scores[step] = float(score(trial.hparams, step))
        yield
        if trial.is_behind(scores):
            trial.release()
            return
    trial.complete()
    trial.release()


def swept(directory, count=8, chaos=None, **changes):
    """The trials of a sweep, which `chaos` kills before or after evaluations."""
    study = SweepStudy.open(directory, sweep_settings(**changes))
    while trial := study.claim(count):
        for _ in train(trial, {}):
            if chaos and chaos.random() < 0.4:
                trial.release()  # as the end of its process does
                study = SweepStudy.open(directory, sweep_settings(**changes))
                break
    return study.trials()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A sweep, its directory and its trials."""
    directory = tmp_path_factory.mktemp("sweep") / "undisturbed"
    return directory, swept(directory)


def test_trials_do_not_depend_on_kills(undisturbed, tmp_path):
    trials = undisturbed[1]
    assert swept(tmp_path / "killed", chaos=random.Random(1)) == trials
    storage = journal(tmp_path / "killed" / FILE)
    attempts = optuna.load_study(study_name="r", storage=storage).trials
    assert len(attempts) > len(trials) + 3
    assert {"pruned", "complete"} == {trial.state for trial in trials}
    reseeded = swept(tmp_path / "seed", seed=4, count=2)
    assert reseeded[1].hparams != trials[1].hparams


def test_a_resumed_study_proposes_no_point_again(tmp_path):
    trials = []
    for count in range(1, 9):
        trials = swept(tmp_path, count=count)
    for one, other in itertools.combinations(trials, 2):
        assert one.hparams["dropout"] != other.hparams["dropout"]


def test_trials_behind_the_median_are_pruned(undisturbed):
    """As numpy says, where two trials were trained to the end."""
    trials = undisturbed[1]
    for trial in trials:
        seen = [x for x in trials[: trial.index] if x.state == "complete"]
        scores = [x.scores[STEPS[0]] for x in seen]
        is_behind = len(scores) >= 2 and trial.scores[STEPS[0]] < np.median(scores)
        assert is_behind == (trial.state == "pruned")


def test_trials_are_in_range_and_begin_with_the_set(undisturbed):
    trials = undisturbed[1]
    defaults = trials[0].hparams
    assert (defaults["dropout"], defaults["num_layers"], defaults["norm"]) == (
        0.1,
        2,
        "post",
    )
    for trial in trials:
        assert 0.9 <= trial.hparams["adam_beta2"] <= 0.999
        assert 0.1 <= trial.hparams["learning_rate"] <= 3
        assert trial.hparams["num_layers"] in (1, 2, 3, 4)
        for value in trial.hparams.values():
            if isinstance(value, float):
                assert value == float(f"{value:.4g}")
    flags = sweep_settings(hparams="d_ff=64").train_flags(trials[1].hparams, "run")
    text = flags[flags.index("--hparams") + 1]
    assert text.startswith("d_ff=64,dropout=0.") and ",norm=p" in text


def test_losses_are_minimized():
    scores = {10: 3.0, 20: 2.0, 30: float("nan"), 40: 2.0}
    assert sweep_settings(direction="minimize").best(scores) == 20
    assert sweep_settings().best(scores) == 10
    assert sweep_settings().best({10: float("nan")}) is None


def test_a_trial_without_a_finite_score_has_failed(tmp_path):
    study = SweepStudy.open(tmp_path, sweep_settings())
    trial = study.claim(1)
    assert not trial.is_behind({20: float("nan"), 40: float("nan")})
    trial.complete()
    (ended,) = study.trials()
    assert (ended.state, ended.score) == ("failed", None)
    assert ended.error == "no evaluation on dev has a finite bleu"


def test_what_cannot_be_resumed(tmp_path):
    SweepStudy.open(tmp_path, sweep_settings(workers=2))
    assert SweepStudy.open(tmp_path, sweep_settings(workers=1)).settings.workers == 2
    ranges = sweep_settings().ranges | {"dropout": Interval(0.1, 0.3)}
    options = {"eval_every": 20, "keep": 2}
    changed = sweep_settings(seed=4, prunes=False, ranges=ranges, options=options)
    message = (
        "other settings: the range of dropout was 0.05 to 0.5, is now 0.1 to 0.3; "
        "seed was 3, is now 4; pruning was on, is now off; keep was unset, is now 2; "
    )
    refused(message, SweepStudy.open, tmp_path, changed)
    other = sweep_settings(ranges_name="x")
    refused("has the study 'r', not 'x'", SweepStudy.open, tmp_path, other)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    optuna.create_study(study_name="r", storage=journal(foreign / FILE)).ask()
    refused("trials that are not of", SweepStudy.open, foreign, sweep_settings())


@pytest.mark.parametrize("text", ["text", "text\ntext\n", "[]\n{}\n", '{"a": 1}\n'])
def test_other_files_are_refused_and_kept(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    message = f"{FILE} cannot be used as a study of Optuna: .*; give another"
    refused(message, SweepStudy.open, tmp_path, sweep_settings())
    assert (tmp_path / FILE).read_text() == text


def test_a_line_that_a_full_disk_has_cut_is_left_out(tmp_path):
    expected = swept(tmp_path, count=2)
    with (tmp_path / FILE).open("ab") as file:
        file.write(b'{"op_code":6,"worker_')
    assert SweepStudy.open(tmp_path, sweep_settings()).trials() == expected
    assert swept(tmp_path, count=3)[:2] == expected


def test_the_file_is_a_study_of_optuna(undisturbed):
    """Optuna's own programs read it, such as its dashboard."""
    directory, trials = undisturbed
    study = optuna.load_study(study_name="r", storage=journal(directory / FILE))
    complete = [trial for trial in trials if trial.state == "complete"]
    best = max(complete, key=lambda trial: trial.score)
    assert study.best_trial.number == best.index
    assert study.best_trial.intermediate_values == best.scores


# Another process on the same study: it trains what it claims, and says so.
OTHER = """
import json, pathlib, sys, time
from helpers.sweeps import sweep_settings
from t2t_keras.plugins.sweep.study import SweepStudy
directory, count, seconds = sys.argv[1:]
study = SweepStudy.open(pathlib.Path(directory), sweep_settings(prunes=False))
print("ready", flush=True)
sys.stdin.readline()
while trial := study.claim(int(count)):
    print(json.dumps([trial.index, trial.hparams]), flush=True)
    trial.is_behind({20: float(trial.index)})
    time.sleep(float(seconds))
    trial.is_behind({40: trial.index + 0.5})
    trial.complete()
    trial.release()
"""


def other_process(directory, count, seconds):
    """Starts a process, which waits for a line when it has opened the study."""
    process = subprocess.Popen(
        [sys.executable, "-c", OTHER, str(directory), str(count), str(seconds)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_processes_share_a_study(tmp_path):
    """Each trial is trained once, by one of them; both write at the same time."""
    processes = [other_process(tmp_path, 16, 0.02) for _ in range(2)]
    outputs = []
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        outputs.append(dict(map(json.loads, output.splitlines())))
    assert all(outputs) and not outputs[0].keys() & outputs[1].keys()
    trials = SweepStudy.open(tmp_path, sweep_settings(prunes=False)).trials()
    assert [trial.index for trial in trials] == [*range(16)]
    for trial in trials:
        assert trial.state == "complete"
        assert trial.scores == {20: trial.index, 40: trial.index + 0.5}
        assert trial.hparams == (outputs[0] | outputs[1])[trial.index]


def test_a_trial_is_taken_over_when_its_process_has_died(tmp_path):
    process = other_process(tmp_path, 1, 600)
    process.stdin.write("\n")
    process.stdin.flush()
    index, hparams = json.loads(process.stdout.readline())
    study = SweepStudy.open(tmp_path, sweep_settings(prunes=False))
    assert study.claim(1) is None
    wait_until(lambda: study.trials()[0].scores, process)
    with training_lock(run_dir(tmp_path, 0)):  # what it has started may live on
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert study.claim(1) is None
    trial = study.claim(1)
    assert (trial.index, trial.hparams) == (index, hparams) and index == 0
    assert study.trials()[0].scores == {20: 0.0}  # those of the other process
    assert study.claim(1) is None
