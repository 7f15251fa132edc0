"""Batches of few shapes, for XLA."""

import itertools
import math

import numpy as np
import pytest
from sentence_lengths import SOURCE, TARGET

from t2t_keras.data.batch_plan import StaticShapePlan, batch_plan, least_padding
from t2t_keras.data.pipeline import training_batches
from t2t_keras.data.records import RecordIndex

BUDGET = 512


def plan(batch_tokens: int = BUDGET) -> StaticShapePlan:
    return batch_plan("static", SOURCE, TARGET, batch_tokens, seed=3)


def test_all_batches_of_two_epochs_have_few_shapes():
    batches = plan()
    steps = [batches.records(step) for step in range(2 * len(batches))]
    for epoch in (steps[: len(batches)], steps[len(batches) :]):
        assert sorted(np.concatenate(epoch)) == list(range(len(SOURCE)))
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


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_no_other_division_into_buckets_has_less_padding(most):
    """Against all divisions, by a loop."""
    rng = np.random.default_rng(most)
    for _ in range(20):
        count, budget = int(rng.integers(1, 8)), 90
        sizes = rng.integers(1, 40, count)
        longest = np.stack(
            [np.sort(rng.choice(np.arange(1, 60), count)), rng.integers(1, 60, count)],
            axis=1,
        )

        def tokens(merged, sizes=sizes, longest=longest):
            total = 0
            for bucket in range(max(merged) + 1):
                members = [i for i, it in enumerate(merged) if it == bucket]
                source, target = longest[members].max(axis=0)
                pairs = int(sizes[members].sum())
                batches = math.ceil(pairs / (90 // max(source, target)))
                rows = math.ceil(pairs / batches)
                total += batches * rows * (source + target)
            return total

        divisions = (
            np.cumsum([0, *cuts])
            for cuts in itertools.product((0, 1), repeat=count - 1)
            if sum(cuts) < most
        )
        merged = least_padding(sizes, longest, budget, most)
        assert max(merged) < most
        assert tokens(merged) == min(map(tokens, divisions))


def test_batches_are_padded_to_the_shapes(data_dir):
    index = RecordIndex.open(data_dir, "translate_text", "train")
    lengths = index.source_length, index.target_length
    batches = batch_plan("static", *lengths, 1024, seed=0)
    steps = range(len(batches))
    pairs = set()
    for replicas, own in ((1, None), (4, None), (4, range(2, 4))):
        dataset = training_batches(index, batches, steps, replicas, own=own)
        found = [(source.shape, target.shape) for source, target in dataset]
        assert len(set(found)) <= 12
        pairs.add(len(found) / len(own or range(replicas)))
    assert pairs == {len(batches)}
    for step, (source, target) in zip(
        steps, training_batches(index, batches, steps), strict=True
    ):
        rows, *longest = batches.shape(batches.records(step))
        assert (rows, *longest) == (len(source), source.shape[1], target.shape[1])
