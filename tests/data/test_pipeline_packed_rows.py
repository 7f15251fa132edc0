"""Packed batches of records: ids, segments, positions, alignments."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.packed_plan import PackedPlan
from t2t_keras.data.pipeline import (
    alignment_weights,
    batch_signature,
    packed_batch,
    training_batches,
)
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.data.tfrecord import example
from t2t_keras.problem import SIDES


def test_pairs_are_joined_to_rows():
    source = tf.ragged.constant([[3, 1], [4, 5, 1], [6, 1]], dtype=tf.int64)
    target = tf.ragged.constant([[7, 8, 1], [1], [9, 1]], dtype=tf.int64)
    rows = tf.constant([0, 0, 2], tf.int64)
    shape = tf.constant([3, 6, 4], tf.int64)
    segments = tf.constant([5, 6, 7], tf.int64)
    batch, origins = packed_batch((source, target), rows, segments, shape)
    expected = {
        "source": [[3, 1, 4, 5, 1, 0], [0] * 6, [6, 1, 0, 0, 0, 0]],
        "source_segments": [[5, 5, 6, 6, 6, 0], [0] * 6, [7, 7, 0, 0, 0, 0]],
        "source_positions": [[0, 1, 0, 1, 2, 0], [0] * 6, [0, 1, 0, 0, 0, 0]],
        "target": [[7, 8, 1, 1], [0] * 4, [9, 1, 0, 0]],
        "target_segments": [[5, 5, 5, 6], [0] * 4, [7, 7, 0, 0]],
        "target_positions": [[0, 1, 2, 0], [0] * 4, [0, 1, 0, 0]],
    }
    assert batch.keys() == expected.keys()
    for name, rows_of_name in expected.items():
        assert batch[name].dtype == tf.int32
        assert batch[name].numpy().tolist() == rows_of_name, name
    assert origins.numpy().tolist() == [[0, 0, 0], [0, 3, 2], [2, 0, 0]]

    links = tf.ragged.constant([[0, 1], [0, 0, 0, 2], [1, 0]], dtype=tf.int64)
    alignment = np.zeros([3, 4, 6])
    alignment[0, 0, 1] = alignment[2, 1, 0] = 1
    alignment[0, 3, [2, 4]] = 0.5
    sides = (batch["source"], batch["target"])
    actual = alignment_weights(links, *sides, swapped=False, origins=origins)
    np.testing.assert_array_equal(actual, alignment)


@functools.cache
def opened(data_dir, swap: bool = False) -> tuple[RecordIndex, PackedPlan]:
    index = RecordIndex.open(data_dir, "translate_text", "train", swap)
    lengths = index.source_length, index.target_length
    return index, PackedPlan(*lengths, 160, seed=3, swapped=swap)


def pair_of(payload: bytes, index: RecordIndex) -> tuple[tuple[int, ...], ...]:
    features = tf.train.Example.FromString(payload).features.feature
    return tuple(tuple(features[name].int64_list.value) for name in index.features)


def pairs_of(batch) -> dict[int, tuple[tuple[int, ...], ...]]:
    """The pairs of a batch by segment, each of which is in one piece and one row."""
    pairs = {}
    for segment in range(1, 1 + int(np.max(batch["source_segments"]))):
        pair = []
        rows = set()
        for side in SIDES:
            row, column = np.nonzero(np.equal(batch[f"{side}_segments"], segment))
            rows |= set(row.tolist())
            count = len(column)
            assert (column == column[0] + np.arange(count)).all()
            positions = batch[f"{side}_positions"].numpy()[row, column]
            assert (positions == np.arange(count)).all()
            pair.append(tuple(batch[side].numpy()[row, column].tolist()))
        assert len(rows) == 1
        pairs[segment] = tuple(pair)
    return pairs


@pytest.mark.parametrize("swap", [False, True])
def test_an_epoch_holds_every_pair_once(data_dir, swap):
    index, plan = opened(data_dir, swap)
    steps = range(len(plan), 2 * len(plan))
    read_pairs = []
    for step, batch in zip(steps, training_batches(index, plan, steps), strict=True):
        rows, source, target = plan.shape(plan.records(step))
        assert batch.keys() == batch_signature(packed=True).keys()
        for name, array in batch.items():
            assert array.shape == (rows, source if "source" in name else target)
        pairs = pairs_of(batch)
        payloads = index.read(plan.records(step))
        assert list(pairs.values()) == [pair_of(p, index) for p in payloads]
        for side in SIDES:
            is_token = np.not_equal(batch[side], 0)
            assert is_token.sum() == sum(
                len(p[SIDES.index(side)]) for p in pairs.values()
            )
        read_pairs += pairs.values()
    assert len(read_pairs) == len(index)


@pytest.mark.parametrize(
    ("replicas", "micro_batches", "local"),
    [(8, 3, None), (4, 1, range(1, 3))],
)
def test_replicas_divide_the_rows_of_one(data_dir, replicas, micro_batches, local):
    """Segments are numbered over all of them; also where a training is resumed."""
    index, plan = opened(data_dir)
    steps = range(3, 6)
    undivided = list(training_batches(index, plan, steps))
    parts = iter(
        training_batches(
            index,
            plan,
            steps,
            replicas,
            micro_batches=micro_batches,
            local_replicas=local,
        )
    )
    local = local or range(replicas)
    for batch in undivided:
        shares = [next(parts) for _ in local]
        (rows,) = {len(share["source"]) for share in shares}
        assert rows % micro_batches == 0
        for name, expected in batch.items():
            padded = np.pad(expected, [(0, rows * replicas - len(expected)), (0, 0)])
            of_process = padded[local.start * rows : local.stop * rows]
            actual = np.concatenate([share[name] for share in shares])
            np.testing.assert_array_equal(actual, of_process, err_msg=name)


def test_changed_pairs_close_up(data_dir):
    """What augmentation shortens leaves no hole, and is named by step and pair."""
    index, plan = opened(data_dir)

    def shortened(payload: bytes, step: int, pair_index: int) -> bytes:
        source, target = pair_of(payload, index)
        return example(source[(step + pair_index) % len(source) :], target)

    options = {"augment": shortened}
    undivided, *_ = training_batches(index, plan, range(2, 3), **options)
    shares = list(training_batches(index, plan, range(2, 3), 2, **options))
    for name, array in undivided.items():
        joined = np.concatenate([share[name] for share in shares])
        np.testing.assert_array_equal(joined[: len(array)], array)
    pairs = pairs_of(undivided)
    for pair_index, payload in enumerate(index.read(plan.records(2))):
        changed = pair_of(shortened(payload, 2, pair_index), index)
        assert pairs[pair_index + 1] == changed
    for row in undivided["source"].numpy():
        assert (np.diff((row != 0).astype(int)) <= 0).all()  # padding comes last
