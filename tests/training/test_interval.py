"""The metrics of the steps since the last report, and the time that is left."""

import math

import pytest

from t2t_keras.training.interval import Interval, TimeLeft
from t2t_keras.training.settings import TrainOptions
from t2t_keras.training.step import StepResult


def test_skipped_updates_have_no_share_in_means():
    """One of four steps was skipped: its tokens count as read, and not as trained."""
    interval = Interval()
    sums = {"loss_sum": 12.0, "nll_sum": 6.0, "gradient_norm": 9.0, "skipped": 1.0}
    sizes = {"source_tokens": 8.0, "target_tokens": 16.0, "positions": 32.0}
    interval.add(StepResult(**sums, **sizes), steps=4)
    metrics = interval.metrics()
    expected = {"loss": 1.0, "nll": 0.5, "gradient_norm": 3.0, "padding_share": 0.25}
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)
    rates = [metrics[f"{side}_tokens_per_s"] for side in ("source", "target")]
    assert rates[0] / rates[1] == pytest.approx(0.5)


def test_time_left_counts_what_is_still_to_come():
    seconds_left = [math.inf]
    options = TrainOptions(save_every=4, eval_every=6)
    times = TimeLeft(range(20), options, 2, lambda: seconds_left[0])
    times.add_step(50.0)  # traces
    assert times.estimate(1).seconds == 50 * 19
    times.add_step(1.0)
    times.add_step(3.0)
    assert str(times.estimate(10)) == "ETA 20 s + evaluations"
    times.saves.add(0.5)
    times.evaluations.add(100.0)
    times.evaluations.add(200.0)
    # 10 steps; checkpoints 12, 16 and the last; evaluations 12, 18, 20 and the average.
    expected = 10 * 2 + 3 * 0.5 + 4 * 150
    assert times.estimate(10) == (expected, False, False)
    assert str(times.estimate(10)) == "ETA 10 min"
    # A report comes before the checkpoint and the evaluation of its step.
    assert times.estimate(12).seconds == 8 * 2 + 3 * 0.5 + 4 * 150
    assert times.estimate(13).seconds == 7 * 2 + 2 * 0.5 + 3 * 150
    seconds_left[0] = 400.0  # enough for all that comes before the end
    assert times.estimate(10) == (expected, False, False)
    seconds_left[0] = 300.0
    assert str(times.estimate(10)) == "ends by max_minutes in 5 min"
