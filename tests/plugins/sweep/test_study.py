"""The study of a sweep: its trials do not depend on time, kills or processes."""

import random

import numpy as np
import pytest
from helpers.errors import refused
from helpers.sweeps import sweep_settings

optuna = pytest.importorskip("optuna", reason="optuna is not installed")

from t2t_keras.plugins.sweep.study import FILE, SweepStudy, storage_errors  # noqa: E402
from t2t_keras.ranged_hparams import Interval  # noqa: E402

STEPS = (20, 40)


def score(hparams, step):
    """A training that is a formula."""
    value = 30 - 50 * abs(hparams["dropout"] - 0.2) - hparams["num_layers"]
    return value * step / 40 - abs(np.log(hparams["learning_rate"]))


def advance(study, index, scores):
    """One evaluation of a trial; returns whether it has ended."""
    step = STEPS[len(scores)]
    scores[step] = score(study.trial(index).hparams, step)
    study.report(index, scores)
    if step == STEPS[-1]:
        study.complete(index, max(scores.values()))
        return True
    if study.should_prune(index, scores):
        study.prune(index)
        return True
    return False


def swept(directory, count=6, chaos=None, **changes):
    """The trials of a sweep, whose order of events `chaos` draws, with kills."""
    directory.mkdir()
    settings = sweep_settings(**changes)
    study = SweepStudy.create(directory, settings)
    running: dict[int, dict[int, float]] = {}
    while True:
        while len(running) < settings.workers and len(study) < count:
            if not study.is_next_possible():
                break
            running[study.start_next()] = {}
        if not running:
            return study.trials()
        index = chaos.choice(list(running)) if chaos else min(running)
        if advance(study, index, running[index]):
            del running[index]
        if chaos and chaos.random() < 0.3:
            study = SweepStudy.create(directory, settings)
            # The last evaluation of one is repeated, as after an older checkpoint.
            running = {n: dict(study.trial(n).scores) for n in study.unfinished()}
            for scores in running.values():
                scores.pop(max(scores, default=0), None)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """A sweep, its directory and its trials."""
    directory = tmp_path_factory.mktemp("sweep") / "undisturbed"
    return directory, swept(directory)


def test_trials_depend_neither_on_the_order_of_events_nor_on_kills(
    undisturbed, tmp_path
):
    trials = undisturbed[1]
    assert swept(tmp_path / "killed", chaos=random.Random(1)) == trials
    assert {"pruned", "complete"} == {trial.state for trial in trials}
    reseeded = swept(tmp_path / "seed", seed=4, count=2)
    assert reseeded[1].hparams != trials[1].hparams


def test_trials_behind_the_median_are_pruned(undisturbed):
    """As numpy says, where two trials were trained to the end."""
    trials = undisturbed[1]
    for trial in trials:
        seen = trials[: max(0, trial.index - 1)]
        scores = [x.scores[STEPS[0]] for x in seen if x.state == "complete"]
        is_behind = len(scores) >= 2 and trial.scores[STEPS[0]] < np.median(scores)
        assert is_behind == (trial.state == "pruned")


def test_trials_are_in_range_and_begin_with_the_set(
    undisturbed,
):
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
    text = sweep_settings(hparams="d_ff=64").hparams_of(trials[1].hparams)
    assert text.startswith("d_ff=64,dropout=0.") and ",norm=p" in text


def test_losses_are_minimized():
    scores = {10: 3.0, 20: 2.0, 30: float("nan"), 40: 2.0}
    assert sweep_settings(direction="minimize").best(scores) == 20
    assert sweep_settings().best(scores) == 10
    assert sweep_settings().best({10: float("nan")}) is None


def test_what_cannot_be_resumed(tmp_path):
    SweepStudy.create(tmp_path, sweep_settings(workers=2))
    assert SweepStudy.create(tmp_path, sweep_settings(workers=1)).settings.workers == 2
    ranges = sweep_settings().ranges | {"dropout": Interval(0.1, 0.3)}
    changed = sweep_settings(seed=4, prunes=False, ranges=ranges, options={"keep": 2})
    message = (
        "other settings: the range of dropout was 0.05 to 0.5, is now 0.1 to 0.3; "
        "seed was 3, is now 4; pruning was on, is now off; keep was unset, is now 2; "
    )
    refused(message, SweepStudy.create, tmp_path, changed)
    refused(
        "has the study 'r', not 'x'",
        SweepStudy.create,
        tmp_path,
        sweep_settings(ranges_name="x"),
    )
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    study = optuna.create_study(study_name="r", storage=f"sqlite:///{foreign / FILE}")
    study.ask()
    refused("trials that are not of", SweepStudy.create, foreign, sweep_settings())
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / FILE).write_text("text" * 1000)
    refused("cannot be used as a study", SweepStudy.create, damaged, sweep_settings())


def test_values_have_four_digits(undisturbed):
    _, trials = undisturbed
    for trial in trials:
        for value in trial.hparams.values():
            if isinstance(value, float):
                assert value == float(f"{value:.4g}")


def test_a_kill_during_a_proposal_leaves_the_trial_complete(tmp_path, monkeypatch):
    """The values that the trial lacks are entered, as if nothing had happened."""
    undisturbed = SweepStudy.create(tmp_path, sweep_settings())
    undisturbed.start_next()
    expected = undisturbed._trials()[0]
    killed_dir = tmp_path / "killed"
    killed_dir.mkdir()
    killed = SweepStudy.create(killed_dir, sweep_settings())

    def kill(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(optuna.trial.Trial, "suggest_int", kill)
        killed.start_next()
    assert 0 < len(killed._trials()[0].params) < len(expected.params)
    resumed = SweepStudy.create(killed_dir, sweep_settings())
    assert resumed.unfinished() == [0]
    (trial,) = resumed._trials()
    assert (trial.params, trial.user_attrs) == (expected.params, expected.user_attrs)


def test_errors_of_the_database_are_sentences(tmp_path):
    study = SweepStudy.create(tmp_path, sweep_settings())
    (tmp_path / FILE).write_text("text" * 1000)

    def proposal():
        with storage_errors(tmp_path):
            study.start_next()

    refused("cannot be used as a study of Optuna: .*see whether the disk", proposal)


def test_the_file_is_a_study_of_optuna(undisturbed):
    """Optuna's own programs read it, such as its dashboard."""
    directory, trials = undisturbed
    study = optuna.load_study(study_name="r", storage=f"sqlite:///{directory / FILE}")
    complete = [trial for trial in trials if trial.state == "complete"]
    best = max(complete, key=lambda trial: trial.score)
    assert study.best_trial.number == best.index
    assert study.best_trial.intermediate_values == best.scores
