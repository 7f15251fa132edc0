"""Pairs are packed into rows of two lengths."""

import numpy as np
import pytest
from helpers.sentence_lengths import SOURCE, TARGET

from t2t_keras.data import packed_plan
from t2t_keras.data.packed_plan import pack_rows, row_counts, row_length_choices

LENGTHS = np.stack([SOURCE, TARGET], axis=1)


def packed_by_a_loop(lengths, row_lengths):
    """The rule, pair by pair, in fractions of a row."""
    waiting = list(range(len(lengths)))[: packed_plan._BUFFER]
    coming = list(range(len(lengths)))[packed_plan._BUFFER :]
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
    assert [tuple(np.roll(choice, side)) for choice in choices] == [
        longest,
        (1000, 96),
    ]
    rows = pack_rows(np.roll(lengths, side, axis=1), choices[-1])
    assert np.bincount(rows).max() == 5
