"""The time that is left of a training."""

import math

from t2t_keras.training.interval import TimeLeft
from t2t_keras.training.settings import TrainOptions


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
