"""The batch plan: budget, order, coverage; batches are read ahead."""

import itertools
import math

import numpy as np
import pytest
from helpers.errors import refused
from helpers.sentence_lengths import SOURCE, TARGET

from t2t_keras.data.batch_plan import (
    BatchPlan,
    StaticShapePlan,
    least_padding,
    t2t_buckets,
)
from t2t_keras.data.pipeline import training_batches
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.data.training_data import batch_plan


def plan(batch_tokens: int = 512, seed: int = 3) -> BatchPlan:
    return BatchPlan(SOURCE, TARGET, batch_tokens, seed)


def test_each_side_stays_within_the_budget():
    batches = plan()
    for step in range(len(batches)):
        records = batches.records(step)
        for lengths in (SOURCE, TARGET):
            assert len(records) * lengths[records].max() <= 512


def test_a_batch_may_fill_the_budget_to_the_last_token():
    lengths = np.array([5, 5, 10])
    batches = BatchPlan(lengths, lengths, 10, seed=0)
    assert sorted(len(batches.records(step)) for step in range(2)) == [1, 2]
    assert len(batches) == 2


@pytest.mark.parametrize("bucketing", ["exact", "t2t", "static"])
def test_short_and_long_batches_follow_each_other_at_random(bucketing):
    """Though they are cut from pairs in the order of their lengths."""
    batches = batch_plan(bucketing, SOURCE, TARGET, 512, seed=3)
    count = len(batches)
    longest = [SOURCE[batches.records(step)].max() for step in range(2 * count)]
    first, second = np.reshape(longest, (2, count))
    for epoch in (first, second):
        correlation = np.corrcoef(epoch, np.arange(count))[0, 1]
        assert abs(correlation) < 5 / np.sqrt(count)
    assert (first != second).any()


@pytest.mark.parametrize("bucketing", ["exact", "t2t", "static", "packed"])
def test_every_epoch_holds_every_record_once_in_another_order(bucketing):
    batches = batch_plan(bucketing, SOURCE, TARGET, 512, seed=3)
    per_epoch = len(batches)
    records = [batches.records(step) for step in range(2 * per_epoch)]
    first_epoch = np.concatenate(records[:per_epoch])
    second_epoch = np.concatenate(records[per_epoch:])
    assert sorted(first_epoch) == sorted(second_epoch) == list(range(3000))
    assert not np.array_equal(first_epoch, second_epoch)
    # A record's companions in its batch change as well.
    members = [tuple(sorted(batch)) for batch in records]
    repeated = set(members[:per_epoch]) & set(members[per_epoch:])
    assert len(repeated) < per_epoch / 2


@pytest.mark.parametrize("bucketing", ["exact", "packed"])
def test_a_step_names_its_batch_whatever_was_asked_before(bucketing):
    def new_plan(seed=3):
        return batch_plan(bucketing, SOURCE[:500], TARGET[:500], 512, seed)

    used_plan = new_plan()
    for step in range(2 * len(used_plan)):
        used_plan.records(step)
    for step in (0, len(used_plan) + 2, 5):
        fresh = new_plan()
        np.testing.assert_array_equal(used_plan.rows(step), fresh.rows(step))
        np.testing.assert_array_equal(used_plan.records(step), fresh.records(step))
    assert not np.array_equal(new_plan(seed=4).records(0), used_plan.records(0))


def test_padding_share_and_shapes_match_the_batches():
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
    refused("batch_tokens 40 is less than the longest", plan, batch_tokens=40)


@pytest.mark.parametrize(("bucketing", "budget"), [("exact", 150), ("packed", 600)])
def test_the_batches_of_the_other_direction_are_the_same(bucketing, budget):
    source = SOURCE[:1000]
    target = 2 * TARGET[:1000]  # so that the sides of packed rows differ
    forward_plan = batch_plan(bucketing, source, target, budget, 3)
    swapped_plan = batch_plan(bucketing, target, source, budget, 3, swapped=True)
    for step in range(2 * len(forward_plan)):
        np.testing.assert_array_equal(
            forward_plan.records(step), swapped_plan.records(step)
        )
        np.testing.assert_array_equal(forward_plan.rows(step), swapped_plan.rows(step))
    np.testing.assert_array_equal(
        forward_plan.shapes, swapped_plan.shapes[:, [0, 2, 1]]
    )
    assert (forward_plan.shapes[:, 1] != forward_plan.shapes[:, 2]).any()
    if bucketing == "packed":  # which treats both sides alike anyway
        return
    unswapped_plan = batch_plan(bucketing, target, source, budget, 3)
    assert any(
        (forward_plan.records(i) != unswapped_plan.records(i)).any()
        for i in range(len(forward_plan))
    )


# tensor2tensor's bucket rule, against its own figures.


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


def t2t_plan() -> BatchPlan:
    return batch_plan("t2t", SOURCE, TARGET, 512, seed=3)


def test_a_batch_is_of_one_bucket_and_has_its_rows():
    batches = t2t_plan()
    longer = np.maximum(SOURCE, TARGET)
    bounds, rows = t2t_buckets(512, 256)
    counts = np.zeros(len(rows), int)
    for step in range(len(batches)):
        lengths = longer[batches.records(step)]
        buckets = np.searchsorted(bounds, lengths, side="right")
        (bucket,) = set(buckets)
        assert len(lengths) <= rows[bucket]
        counts[bucket] += len(lengths) < rows[bucket]
    assert counts.max() == 1  # what was left at the end


# Batches of few shapes, for XLA.


BUDGET = 512


def static_plan(batch_tokens: int = BUDGET) -> StaticShapePlan:
    return batch_plan("static", SOURCE, TARGET, batch_tokens, seed=3)


def test_all_batches_of_two_epochs_have_few_shapes():
    batches = static_plan()
    steps = [batches.records(step) for step in range(2 * len(batches))]
    shapes = [batches.shape(records) for records in steps]
    assert len(set(shapes)) <= 12
    assert {shape[1] % 8 for shape in shapes} | {s[2] % 8 for s in shapes} == {0}
    for records, (rows, source, target) in zip(steps, shapes, strict=True):
        assert rows * max(source, target) <= BUDGET
        assert len(records) <= rows
        assert SOURCE[records].max() <= source
        assert TARGET[records].max() <= target
    assert set(map(tuple, batches.shapes.tolist())) == set(shapes)
    tokens = sum(rows * (source + target) for rows, source, target in shapes) / 2
    share = 1 - (SOURCE.sum() + TARGET.sum()) / tokens
    assert batches.padding_share == pytest.approx(share)


def test_the_number_of_shapes_and_the_rounding_have_limits():
    lengths = np.arange(1, 400)
    batches = StaticShapePlan(lengths, lengths, 512, seed=0)
    assert len(np.unique(batches.shapes, axis=0)) == 12
    short = np.array([13, 5])
    batches = StaticShapePlan(short, short, 13, seed=0)
    assert sorted(batches.shapes.tolist()) == [[1, 8, 8], [1, 13, 13]]


@pytest.mark.parametrize("max_buckets", [1, 2, 3, 9])
def test_no_other_division_into_buckets_has_less_padding(max_buckets):
    """Against all divisions, by a loop."""
    rng = np.random.default_rng(max_buckets)
    for _ in range(20):
        count = int(rng.integers(1, 8))
        budget = 90
        sizes = rng.integers(1, 40, count)
        longest = np.stack(
            [np.sort(rng.choice(np.arange(1, 60), count)), rng.integers(1, 60, count)],
            axis=1,
        )

        def tokens(merged, sizes=sizes, longest=longest):
            total = 0
            for bucket in range(max(merged) + 1):
                members = [
                    i
                    for i, merged_bucket in enumerate(merged)
                    if merged_bucket == bucket
                ]
                source, target = longest[members].max(axis=0)
                pairs = int(sizes[members].sum())
                batches = math.ceil(pairs / (90 // max(source, target)))
                rows = math.ceil(pairs / batches)
                total += batches * rows * (source + target)
            return total

        divisions = (
            np.cumsum([0, *cuts])
            for cuts in itertools.product((0, 1), repeat=count - 1)
            if sum(cuts) < max_buckets
        )
        merged = least_padding(sizes, longest, budget, max_buckets)
        assert max(merged) < max_buckets
        assert tokens(merged) == min(map(tokens, divisions))


def test_batches_are_padded_to_the_shapes(data_dir):
    index = RecordIndex.open(data_dir, "translate_text", "train")
    lengths = index.source_length, index.target_length
    batches = batch_plan("static", *lengths, 1024, seed=0)
    steps = range(len(batches))
    pairs = set()
    for replicas, local_rows in ((1, None), (4, None), (4, range(2, 4))):
        dataset = training_batches(
            index, batches, steps, replicas, local_replicas=local_rows
        )
        shapes = [(b["source"].shape, b["target"].shape) for b in dataset]
        assert len(set(shapes)) <= 12
        pairs.add(len(shapes) / len(local_rows or range(replicas)))
    assert pairs == {len(batches)}
    for step, batch in zip(steps, training_batches(index, batches, steps), strict=True):
        rows, source, target = batches.shape(batches.records(step))
        assert batch["source"].shape == (rows, source)
        assert batch["target"].shape == (rows, target)
