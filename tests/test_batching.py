"""The batch plan: budget, order, coverage; batches are read ahead."""

import numpy as np
import pytest
from sentence_lengths import SOURCE, TARGET

from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.option import UserError


def plan(batch_tokens: int = 512, seed: int = 3) -> BatchPlan:
    return BatchPlan(SOURCE, TARGET, batch_tokens, seed)


def test_each_side_stays_within_the_budget():
    batches = plan()
    for step in range(len(batches)):
        records = batches.records(step)
        for lengths in (SOURCE, TARGET):
            assert len(records) * lengths[records].max() <= 512


def test_every_epoch_holds_every_record_once_in_another_order():
    batches = plan()
    epochs = [
        [batches.records(epoch * len(batches) + i) for i in range(len(batches))]
        for epoch in range(2)
    ]
    for epoch in epochs:
        assert sorted(np.concatenate(epoch)) == list(range(3000))
    assert not np.array_equal(*map(np.concatenate, epochs))
    first = [{tuple(sorted(batch)) for batch in epoch} for epoch in epochs]
    assert len(first[0] & first[1]) < len(batches) / 2  # other companions, too


def test_a_step_names_its_batch_whatever_was_asked_before():
    some = plan()
    for step in range(2 * len(some)):
        some.records(step)
    for step in (0, len(some) + 2, 5):
        np.testing.assert_array_equal(some.records(step), plan().records(step))
    assert not np.array_equal(plan(seed=4).records(0), plan().records(0))


def test_padding_share_and_shapes_are_those_of_the_batches():
    batches = plan()
    slots = 0
    for step in range(len(batches)):
        records = batches.records(step)
        slots += len(records) * (SOURCE[records].max() + TARGET[records].max())
    expected = 1 - (SOURCE.sum() + TARGET.sum()) / slots
    assert batches.padding_share < 0.06
    # Pairs of equal length are shuffled, so single batches differ a little.
    assert abs(batches.padding_share - expected) < 0.01


def test_largest_shape_bounds_the_work():
    rows, source, target = plan().largest_shape(lambda s: s[0] * (s[1] + s[2]))
    assert rows * max(source, target) <= 512
    assert rows * (source + target) >= 0.9 * 2 * 512


def test_a_pair_longer_than_the_budget_is_an_error():
    with pytest.raises(UserError, match="batch_tokens 40 is less than the longest"):
        plan(batch_tokens=40)


def test_the_batches_of_the_other_direction_are_the_same():
    forth = BatchPlan(SOURCE, TARGET, 100, 3)
    back = BatchPlan(TARGET, SOURCE, 100, 3, swapped=True)
    for step in range(2 * len(forth)):
        np.testing.assert_array_equal(forth.records(step), back.records(step))
    np.testing.assert_array_equal(forth.shapes, back.shapes[:, [0, 2, 1]])
    wrong = BatchPlan(TARGET, SOURCE, 100, 3)
    assert any((forth.records(i) != wrong.records(i)).any() for i in range(len(forth)))
