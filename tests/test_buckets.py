"""tensor2tensor's bucket rule, against its own figures."""

import numpy as np
import pytest
from sentence_lengths import SOURCE, TARGET

from t2t_keras.data.batch_plan import BatchPlan, batch_plan, t2t_buckets

# What tensor2tensor 1.15.7 computes for batch_size 4096 and max_length 256.
BOUNDS = [*range(8, 21), 22, 24, 26, 28, 30, 33, 36, 39, 42, 46, 50, 55, 60, 66, 72, 79]
BOUNDS += [86, 94, 103, 113, 124, 136, 149, 163, 179, 196, 215, 236]
ROWS = [420, 420, *[315] * 4, *[252] * 3, *[210] * 3, 180, 180, *[140] * 3, 126]
ROWS += [105, 105, 105, 90, 84, 70, 70, 63, 60, 45, 45, 45, 42, 36, 36, 30, 30]
ROWS += [21, 21, 21, 20, 18, 15, 15]


def test_bounds_and_rows_are_tensor2tensors():
    bounds, rows = t2t_buckets(4096, 256)
    assert (bounds, rows) == (BOUNDS, ROWS)
    upper = np.array([*bounds, 256])
    assert round((upper * rows).mean()) == 3722


@pytest.mark.parametrize(("batch_tokens", "window"), [(2048, 720), (1024, 360)])
def test_rows_divide_the_window(batch_tokens, window):
    bounds, rows = t2t_buckets(batch_tokens, 256)
    divisors = [n for n in range(1, window + 1) if window % n == 0]
    for upper, each in zip([*bounds, 256], rows, strict=True):
        assert each == max(n for n in divisors if n <= max(1, batch_tokens // upper))


def plan() -> BatchPlan:
    return batch_plan("t2t", SOURCE, TARGET, 512, seed=3)


def test_a_batch_is_of_one_bucket_and_has_its_rows():
    batches, longer = plan(), np.maximum(SOURCE, TARGET)
    bounds, rows = t2t_buckets(512, 256)
    counts = np.zeros(len(rows), int)
    for step in range(len(batches)):
        lengths = longer[batches.records(step)]
        bucket = {sum(length >= bound for bound in bounds) for length in lengths}
        assert len(bucket) == 1
        (bucket,) = bucket
        assert len(lengths) <= rows[bucket]
        counts[bucket] += len(lengths) < rows[bucket]
    assert counts.max() == 1  # what was left at the end


def test_epochs_hold_every_record_once_in_other_company():
    batches = plan()
    epochs = [
        [batches.records(epoch * len(batches) + i) for i in range(len(batches))]
        for epoch in range(2)
    ]
    for epoch in epochs:
        assert sorted(np.concatenate(epoch)) == list(range(len(SOURCE)))
    sets = [{tuple(sorted(batch)) for batch in epoch} for epoch in epochs]
    assert len(sets[0] & sets[1]) < len(batches) / 10
    np.testing.assert_array_equal(plan().records(1), batches.records(1))
