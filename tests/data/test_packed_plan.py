"""Packed batches: one shape, every pair once, little padding."""

import numpy as np
import pytest
from helpers.errors import refused
from helpers.sentence_lengths import SOURCE, TARGET

from t2t_keras.data import packed_plan
from t2t_keras.data.packed_plan import (
    PackedPlan,
    _rows_of_batch,
    pack_rows,
    row_counts,
    row_length_choices,
)

BUDGET = 512


def plan(source=SOURCE, target=TARGET, budget: int = BUDGET, seed: int = 3, **options):
    return PackedPlan(np.array(source), np.array(target), budget, seed, **options)


@pytest.fixture(scope="module")
def batches():
    """Packing takes half a second; epochs are then shuffled at once."""
    return plan()


def epoch_of(batches: PackedPlan, epoch: int = 0):
    """The records and rows of each batch of an epoch."""
    steps = range(epoch * len(batches), (epoch + 1) * len(batches))
    return [(batches.records(step), batches.rows(step)) for step in steps]


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_all_batches_have_one_shape_within_the_budget(batches, epoch):
    num_rows, *row_lengths = batches.shape(batches.records(0))
    assert num_rows * max(row_lengths) <= BUDGET
    planned = []
    for records, rows in epoch_of(batches, epoch):
        assert batches.shape(records) == (num_rows, *row_lengths)
        assert (np.diff(rows) >= 0).all() and rows.max() < num_rows
        for lengths, limit in zip((SOURCE, TARGET), row_lengths, strict=True):
            assert np.bincount(rows, lengths[records]).max() <= limit
        planned += records.tolist()
    assert sorted(planned) == list(range(len(SOURCE)))


@pytest.mark.parametrize("budget", [512, 25_000])
def test_padding_is_at_most_three_percent(budget):
    batches = plan(budget=budget)
    positions = len(batches) * np.prod(
        [batches.shapes[0][0], batches.shapes[0][1:].sum()]
    )
    share = 1 - (SOURCE.sum() + TARGET.sum()) / positions
    assert batches.padding_share == pytest.approx(share)
    assert share <= 0.03


def test_rows_are_short():
    _, source, target = plan(budget=4096).shapes[0]
    assert SOURCE.max() <= source < 5 * SOURCE.max()
    assert TARGET.max() <= target < 5 * TARGET.max()


def test_rows_meet_other_rows_and_pairs_other_pairs_in_each_epoch(batches):
    companions = []
    batch_sets = []
    for epoch in range(2):
        rows_of_epoch = set()
        for records, rows in epoch_of(batches, epoch):
            for row in range(rows.max() + 1):
                rows_of_epoch.add(frozenset(records[rows == row].tolist()))
        companions.append(rows_of_epoch)
        batch_sets.append({frozenset(r.tolist()) for r, _ in epoch_of(batches, epoch)})
    assert len(companions[0] & companions[1]) < len(companions[0]) / 20
    assert not batch_sets[0] & batch_sets[1]


def test_rows_of_the_same_lengths_are_elsewhere_in_each_epoch(batches):
    def lengths_of_rows(epoch):
        rows_of_epoch = []
        for records, rows in epoch_of(batches, epoch):
            for row in range(rows.max() + 1):
                pairs = records[rows == row]
                rows_of_epoch.append((*SOURCE[pairs], *TARGET[pairs]))
        return rows_of_epoch

    first, second = lengths_of_rows(0), lengths_of_rows(1)
    assert sorted(first) == sorted(second)
    same = sum(x == y for x, y in zip(first, second, strict=True))
    assert same < len(first) / 20


def test_one_pair_and_a_pair_as_long_as_the_budget():
    single = plan([5], [9], budget=100)
    assert len(single) == 1
    assert single.records(7).tolist() == single.rows(7).tolist() == [0]
    assert single.shape(single.records(0)) == (1, 8, 16)
    lengths = [100] + [5] * 50
    long = plan(lengths, lengths, budget=100)
    assert long.shape(long.records(0)) == (1, 100, 100)
    assert len(long) <= 5


@pytest.mark.parametrize("sides", [([3, 0], [2, 4]), ([3, 5], [0, 4]), ([0], [0])])
def test_a_side_without_a_token_is_refused(sides):
    """Packing used to look for its place for ever."""
    refused("an example has no token on one side", plan, *sides)


def test_pairs_of_equal_lengths_leave_no_padding():
    batches = plan([10] * 480, [12] * 480, budget=480)
    assert batches.shape(batches.records(0)) == (10, 40, 48)
    assert batches.padding_share == 0
    assert len(batches) == 12


def test_rows_that_eight_replicas_share_stay_within_the_budget():
    for count in (4_000, 1_999):
        batches = plan([10] * count, [12] * count, budget=25_000)
        rows, _, target = batches.shapes[0].tolist()
        assert -(-rows // 8) * 8 * target <= 25_000
        assert len(batches) * rows - count / 4 < len(batches) + 1
    for length in range(8, 385, 8):  # from 64 rows on
        for count in (446, 4_000, 1_999):
            rows = _rows_of_batch(count, 25_000, (8, length))
            assert -(-rows // 8) * 8 * length <= 25_000


LENGTHS = np.stack([SOURCE, TARGET], axis=1)


def packed_by_a_loop(lengths, row_lengths):
    """The rule, pair by pair, in fractions of a row."""
    waiting = list(range(len(lengths)))[:256]
    coming = list(range(len(lengths)))[256:]
    rows = {}
    row = 0
    turn = 0
    free = np.array(row_lengths)
    while len(rows) < len(lengths):
        space_left = [
            None if i is None or (free < lengths[i]).any() else free - lengths[i]
            for i in waiting
        ]
        fitting = [slot for slot, space in enumerate(space_left) if space is not None]
        if not fitting:
            row += 1
            free = np.array(row_lengths)
            continue
        if turn in fitting and (2 * free > row_lengths).all():
            slot = turn
            turn = (turn + 1) % len(waiting)
        else:
            # In exact numbers: S (T - t) against T (S - s).
            slot = min(fitting, key=lambda i: max(space_left[i] * row_lengths[::-1]))
        rows[waiting[slot]] = row
        free = space_left[slot]
        waiting[slot] = coming.pop(0) if coming else None
    return [rows[i] for i in range(len(lengths))]


@pytest.mark.parametrize("count", [1, 40, 700])
def test_rows_match_the_rule(count):
    row_lengths = np.array([72, 88])
    expected = packed_by_a_loop(LENGTHS[:count], row_lengths)
    actual = pack_rows(LENGTHS[:count], (72, 88))
    assert actual.tolist() == expected


@pytest.mark.parametrize("row_lengths", [(64, 72), (1009, 1103), (40_000, 50_021)])
def test_no_row_is_too_long_and_few_are_needed(row_lengths, monkeypatch):
    """In several streams of different sizes, and in integers of any size."""
    monkeypatch.setattr(packed_plan, "_STREAM", 700)
    lengths = np.tile(LENGTHS, (2, 1))
    rows = pack_rows(lengths, row_lengths)
    assert set(rows) == set(range(rows.max() + 1))
    needed = 0
    for side, limit in enumerate(row_lengths):
        totals = np.bincount(rows, lengths[:, side])
        assert totals.max() <= limit
        needed = max(needed, totals.sum() / limit)
    streams = len(lengths) // 700
    assert rows.max() + 1 <= 1.1 * needed + streams


def test_counts_match_the_rows():
    choices = [(64, 72), (72, 72), (96, 104)]
    counts = row_counts(LENGTHS[:500], choices)
    expected = [pack_rows(LENGTHS[:500], choice).max() + 1 for choice in choices]
    assert counts.tolist() == expected


def test_choices_fit_the_longest_pair_and_the_budget():
    choices = row_length_choices(LENGTHS, 1000)
    ratio = TARGET.sum() / SOURCE.sum()
    longest = LENGTHS.max(axis=0)
    assert choices == sorted(choices) and len(choices) > 20
    for source, target in choices:
        assert source % 8 == target % 8 == 0
        assert (longest <= (source, target)).all() and max(source, target) <= 1000
        assert abs(target - source * ratio) < 17 or (source, target) == choices[0]
    assert row_length_choices(np.array([[5, 9]]), 9) == [(8, 9)]


@pytest.mark.parametrize("side", [0, 1])
def test_one_long_target_does_not_keep_rows_of_long_sources_short(side):
    lengths = np.array([[200, 2]] * 400 + [[240, 96]])
    choices = row_length_choices(np.roll(lengths, side, axis=1), 1000)
    # 48 sources for 96 tokens of targets do not fit into the budget; five do.
    longest = (240, 96)
    turned = [tuple(np.roll(choice, side)) for choice in choices]
    assert turned == [longest, (1000, 96)]
    rows = pack_rows(np.roll(lengths, side, axis=1), choices[-1])
    assert np.bincount(rows).max() == 5
