"""`t2t sweep --cluster`: trials by Ray Tune, kills, and what is refused."""

import contextlib
import json
import os
import signal
from types import SimpleNamespace

import psutil
import pytest
from helpers.command_line import run_refused
from helpers.ray_cluster import ray_cluster, start, wait_until
from helpers.sweeps import sweep_flags

TIMEOUT = 300
RANGES = """
from t2t_keras import register_ranged_hparams

@register_ranged_hparams
def ours(rhp):
    '''My own.'''
    rhp.set_float("dropout", 0.0, 0.5)
    rhp.set_float("learning_rate", 0.5, 2.0, scale=rhp.LOG_SCALE)
"""


@pytest.fixture
def usr_dir(tmp_path):
    path = tmp_path / "usr"
    path.mkdir()
    (path / "ranges_on_a_cluster.py").write_text(RANGES)
    return path


@pytest.fixture
def cluster():
    """A head and two workers of one core each."""
    pytest.importorskip("optuna", reason="optuna is not installed")
    pytest.importorskip("ray.tune", reason="needs the extra [ray]")
    with ray_cluster(1, 1) as cluster:
        yield cluster


def flags(data_dir, output_dir, usr_dir, **changes):
    ranges = changes.pop("ranges", "ours")
    values = {"trials": 4, "workers": 2, "train_steps": 60, "eval_every": 20}
    return sweep_flags(ranges, data_dir, output_dir, usr_dir, **values | changes)


def trial_processes(directory):
    """Returns the processes that train, by the number of the trial."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words and words[-1].startswith(f"{directory}/trial-"):
                found[int(words[-1][-4:])] = process
    return found


def last_step(directory, trial):
    files = (directory / f"trial-{trial:04}").glob("model.ckpt-*.index")
    return max((int(file.stem.rpartition("-")[2]) for file in files), default=0)


def saved(directory, trial, step):
    return lambda: last_step(directory, trial) >= step


@pytest.mark.slow
def test_a_killed_trial_and_a_killed_driver_resume(
    cluster, data_dir, tmp_path, usr_dir
):
    directory = tmp_path / "sweep"
    words = flags(data_dir, directory, usr_dir)
    process = start(cluster, "sweep", *words)
    wait_until(saved(directory, 0, 5), process)
    wait_until(lambda: 0 in trial_processes(directory), process)
    killed = trial_processes(directory)[0]
    killed.kill()
    killed.wait()
    wait_until(saved(directory, 0, last_step(directory, 0) + 5), process)
    wait_until(saved(directory, 1, 10), process)
    os.kill(process.pid, signal.SIGKILL)
    _, errors = process.communicate()
    assert "trial 0 resumes from step" in errors
    process = start(cluster, "sweep", *words)
    wait_until(saved(directory, 2, 5), process)
    os.kill(process.pid, signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 143, errors
    assert "t2t sweep: SIGTERM; run the same command to continue" in errors
    assert not trial_processes(directory)

    process = start(cluster, "sweep", *words, "--json")
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    assert "trial 2 resumes from step" in errors
    result = json.loads(output.splitlines()[-1])
    assert sorted(trial["trial"] for trial in result["trials"]) == [0, 1, 2, 3]
    assert {trial["state"] for trial in result["trials"]} == {"complete"}
    assert "by the paired bootstrap" in result["verdict"]
    assert (directory / "page.html").read_text().count("<svg") == 4
    assert not (directory / "tune").exists()


@pytest.mark.slow
def test_a_lost_node_costs_no_trial_and_mistakes_are_one_sentence(
    cluster, data_dir, tmp_path, usr_dir
):
    directory = tmp_path / "sweep"

    def refusal(*more, **changes):
        words = flags(data_dir, directory, usr_dir, **changes)
        process = start(cluster, "sweep", *words, *more)
        _, errors = process.communicate(timeout=TIMEOUT)
        assert process.returncode == 2, errors
        return errors.splitlines()[-1]

    assert "room for 0 workers of 1 GPU and 1 core" in refusal("--gpus_per_trial", 1)
    assert "there is no 'ous'; did you mean 'ours'" in refusal(ranges="ous")
    # What refuses the first trial would refuse all.
    sentence = refusal(train_options="precision=no,save_every=5")
    assert "precision" in sentence

    words = flags(data_dir, directory, usr_dir, trials=2, train_steps=400)
    process = start(cluster, "sweep", *words, "--json")
    wait_until(saved(directory, 0, 5), process)
    wait_until(saved(directory, 1, 5), process)
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
    output, errors = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, errors
    assert "resumes from step" in errors
    trials = json.loads(output.splitlines()[-1])["trials"]
    assert [trial["state"] for trial in trials] == ["complete"] * 2


@pytest.mark.slow
def test_asha_spares_the_first_trials_and_knows_those_that_have_ended():
    pytest.importorskip("ray.tune", reason="needs the extra [ray]")
    from ray.tune.schedulers import TrialScheduler

    from t2t_keras.plugins.ray.trial_search import pruning

    def decision(index, score, **changes):
        values = {
            **{"steps": 100, "eval_every": 10, "maximizes": True, "prunes": True},
            **{"startup_trials": 2, "ended_scores": lambda: [{10: 1.0, 20: 5.0}]},
        }
        scheduler = pruning(SimpleNamespace(**values | changes))
        trial = SimpleNamespace(trial_id="t", config={"index": index})
        scheduler.on_trial_add(None, trial)
        return scheduler.on_trial_result(None, trial, {"step": 10, "score": score})

    assert decision(2, 0.5) == TrialScheduler.STOP
    assert decision(2, 1.5) == TrialScheduler.CONTINUE
    assert decision(2, 1.5, maximizes=False) == TrialScheduler.STOP
    assert decision(1, 0.5) == TrialScheduler.CONTINUE
    assert decision(2, 0.5, prunes=False) == TrialScheduler.CONTINUE
    assert decision(2, 0.5, ended_scores=list) == TrialScheduler.CONTINUE


def test_an_address_is_needed_and_other_flags_are_checked(
    capfd, data_dir, tmp_path, usr_dir
):
    pytest.importorskip("optuna", reason="optuna is not installed")
    pytest.importorskip("pandas", reason="needs the extra [ray]")
    pytest.importorskip("ray", reason="needs the extra [ray]")
    words = flags(data_dir, tmp_path / "sweep", usr_dir)
    sentence = run_refused(capfd, "sweep", "--cluster", "here", *words)
    assert "--cluster here is not an address; give HOST:PORT" in sentence
    assert not (tmp_path / "sweep").exists()
