"""The metrics of the steps since the last report."""

import pytest

from t2t_keras.training.interval import Interval
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
