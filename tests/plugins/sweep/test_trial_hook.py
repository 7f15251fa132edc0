"""The hook of a trial in a training: scores are reported, and trials pruned."""

import pytest
from helpers.sweeps import sweep_settings

pytest.importorskip("optuna", reason="optuna is not installed")

from helpers.small_run import replace_updates, trainer

from t2t_keras.plugins.sweep.study import SweepStudy
from t2t_keras.plugins.sweep.trial_hook import TrialHook
from t2t_keras.training.hooks import HookPlugin, hook_plugins
from t2t_keras.training.metrics_files import read_evaluations


def test_a_trial_behind_two_others_ends_at_its_first_evaluation(
    data_dir, tmp_path, monkeypatch
):
    replace_updates(monkeypatch)
    changes = {"metric": "loss", "direction": "minimize", "workers": 1}
    study = SweepStudy.create(tmp_path, sweep_settings(**changes))
    for index in range(2):
        assert study.start_next() == index
        study.report(index, {2: 0.5, 4: 0.25})
        study.complete(index, 0.25)
    assert study.start_next() == 2
    run = tmp_path / "run"
    hook = TrialHook(study, 2, run)
    plugins = hook_plugins([HookPlugin("", lambda run, evaluator: hook)])
    options = {"eval_every": 2, "average_last": 0}
    stopped_by = trainer(data_dir, run, options=options, plugins=plugins).train()[
        "stopped_by"
    ]
    losses = {step: row["loss"] for step, row in read_evaluations(run, 4).items()}
    assert (stopped_by, hook.scores) == ("pruned", losses)
    assert [*losses] == [2] and study.trial(2).scores == losses
    # A process that was killed before it entered the end resumes, and sees the same.
    resumed = TrialHook(study, 2, run)
    resumed.on_restore(2)
    assert (resumed.stop_reason(), resumed.scores) == ("pruned", losses)
