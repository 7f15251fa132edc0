"""The trials of a sweep whose processes another plugin runs."""

import pytest
from helpers.errors import refused
from helpers.sweeps import sweep_settings

pytest.importorskip("optuna", reason="optuna is not installed")

from t2t_keras.plugins.sweep.external_trials import ExternalTrials
from t2t_keras.plugins.sweep.report import Report
from t2t_keras.plugins.sweep.study import SweepStudy


def external_trials(directory, count):
    study = SweepStudy.create(directory, sweep_settings(options={"eval_every": 10}))
    report = Report(directory, study, count, lambda trials: None)
    return study, ExternalTrials(directory, study, 2, count, report)


def test_trials_are_begun_resumed_and_ended(tmp_path):
    study, trials = external_trials(tmp_path, 3)
    first_trial = trials.next()
    second_trial = trials.next()
    assert (first_trial.index, second_trial.index) == (0, 1)
    assert (
        first_trial.run_dir == tmp_path / "trial-0000" == first_trial.run_dir.absolute()
    )
    assert trials.next() is None and not trials.is_last()  # two run at a time
    trials.report(0, {10: 1.5, 20: 1.25})
    trials.complete(0)
    study, trials = external_trials(tmp_path, 3)  # as after a kill
    assert trials.ended_scores() == [{10: 1.5, 20: 1.25}]
    assert trials.next() == second_trial
    assert trials.next().index == 2 and trials.is_last()
    trials.report(1, {10: float("nan")})
    trials.complete(1)
    trials.report(2, {10: 0.5})
    trials.prune(2)
    states = [trial.state for trial in study.trials()]
    assert states == ["complete", "failed", "pruned"]
    assert study.trial(1).error == "no evaluation on dev has a finite bleu"
    assert (tmp_path / "page.html").exists()


def test_what_refuses_every_trial_ends_the_sweep(tmp_path):
    study, trials = external_trials(tmp_path, 9)
    trials.next()
    refused("^trial 0: no disk$", trials.fail, 0, "no disk", True)
    trials.fail(0, "diverged", is_refused=False)
    for _ in range(2):
        trials.fail(trials.next().index, "num_heads", is_refused=True)
    index = trials.next().index
    refused("^trial 3: num_heads$", trials.fail, index, "num_heads", True)
    assert [x.state for x in study.trials()] == ["failed"] * 3 + ["running"]


def test_a_resumed_trial_is_judged_by_whether_it_had_begun(tmp_path):
    study, trials = external_trials(tmp_path, 9)
    for _ in range(2):
        trials.next()
    trials.report(0, {10: 1.5})
    study, trials = external_trials(tmp_path, 9)
    trials.next()
    refused("^trial 0: no disk$", trials.fail, 0, "no disk", True)
    # This one never began: its own values may be impossible.
    trials.fail(trials.next().index, "num_heads", is_refused=True)
    assert [x.state for x in study.trials()] == ["running", "failed"]


def test_a_lost_trial_stays_unfinished_with_its_reason(tmp_path, capsys):
    study, trials = external_trials(tmp_path, 9)
    trials.next()
    trials.on_loss(0, "its node was lost")
    assert "trial 0: its node was lost; it starts again" in capsys.readouterr().err
    assert [x.state for x in study.trials()] == ["running"]
