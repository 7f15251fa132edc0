"""When a training calls its hooks."""

import pytest
from helpers.small_run import replace_updates, trainer

from t2t_keras.training.hooks import Hook


class Recorder(Hook):
    """Notes the calls and their steps."""

    def __init__(self, ends_at=None):
        self.calls = []
        self.ends_at = ends_at

    def on_fresh_weights(self):
        self.calls.append("fresh_weights")

    def on_restore(self, step):
        self.calls.append(("restore", step))

    def on_train_begin(self):
        self.calls.append("train_begin")

    def on_step(self, step, interval):
        self.calls.append(("step", step, interval.steps))

    def on_report(self, step, metrics):
        self.calls.append(("report", step, metrics["loss"] > 0))

    def on_eval(self, step, label, metrics):
        if label == "dev_mine":
            self.calls.append(("eval", step, label))

    def evaluate(self, step, reporter):
        self.calls.append(("evaluate", step))
        reporter.report_evaluation(step, "dev_mine", {"score": 1.0})
        return {"mine": step}

    def evaluate_at_end(self, step, reporter):
        self.calls.append(("evaluate_at_end", step))
        return {}

    def on_last_step(self, step, reporter):
        self.calls.append(("last_step", step))

    def stop_reason(self):
        step = max((call[1] for call in self.calls if call[0] == "step"), default=0)
        return "callback" if step == self.ends_at else None

    def on_train_end(self):
        self.calls.append("train_end")

    def close(self):
        self.calls.append("close")


def recorded(data_dir, output_dir, ends_at=None):
    """Returns the calls of a training of four steps, and its result."""
    recorder = Recorder(ends_at)
    options = {"average_last": 0}
    training = trainer(data_dir, output_dir, options=options, hooks=[recorder])
    with pytest.MonkeyPatch.context() as patch:
        replace_updates(patch)
        return recorder.calls, training.train()


def test_hooks_are_called_at_the_points_of_a_training(data_dir, tmp_path):
    calls, result = recorded(data_dir, tmp_path)
    assert calls == [
        *("fresh_weights", ("restore", 0), "train_begin"),
        *(("step", 1, 1), ("step", 2, 2), ("report", 2, True)),
        *(("step", 3, 1), ("step", 4, 2), ("report", 4, True)),
        # At eval_every, and after the last step.
        *2 * [("evaluate", 4), ("eval", 4, "dev_mine")],
        *(("evaluate_at_end", 4), ("last_step", 4), "train_end", "close"),
    ]
    assert (result["mine"], result["stopped_by"]) == (4, "train_steps")


def test_a_hook_ends_a_training_and_a_resumed_one_has_no_fresh_weights(
    data_dir, tmp_path
):
    calls, result = recorded(data_dir, tmp_path, ends_at=3)
    assert (result["step"], result["stopped_by"]) == (3, "callback")
    assert ("last_step", 3) not in calls and ("evaluate_at_end", 3) in calls
    calls, result = recorded(data_dir, tmp_path)
    assert calls[:2] == [("restore", 3), "train_begin"]
    assert result["step"] == 4
