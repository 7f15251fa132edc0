"""The direction in which the pairs of a corpus translate, if some are swapped.

The sides of a pair differ most in their language. So the principal axis of these
differences divides the pairs into two groups, whatever share of them is swapped. The
languages tell which group is right; without them the larger one counts as right.
"""

from collections.abc import Sequence

import numpy as np

from t2t_keras.problem import Pair

from .trigrams import BITS, join_texts, text_odds, trigram_odds, trigrams

ABOUT_HALF = 0.45  # from this share on, the smaller group may be the right one
_CLEAR_ODDS = 2.0  # evidence in nats on each side
_CLEAR_SHARE = 0.8  # the share of unseen pairs whose direction must be clear
_MIN_PAIRS = 20
_PAIRS = 5_000  # from which the axis is computed
_CHARACTERS = 200  # of each text that are compared
_STEPS = 10  # of the power iteration; two or three are enough as a rule
_VOTES = 100  # pairs whose languages are recognised
_MIN_VOTES = 0.7  # the share of the votes that must agree


def in_one_direction(
    sample: Sequence[Pair], languages: tuple[str, str] | None
) -> tuple[Sequence[Pair], bool]:
    """Returns pairs in one direction, and whether that is known to be the right one.

    Pairs whose sides are in one language, or cannot be told apart, stay as they are.

    Args:
        sample: pairs, some of which may be swapped.
        languages: of source and target; None: unknown.
    """
    pairs = []
    for source, target in sample[:: 1 + len(sample) // _PAIRS]:
        if source and target and source != target:
            pairs.append((source[:_CHARACTERS], target[:_CHARACTERS]))
    if len(pairs) < _MIN_PAIRS:
        return sample, True
    pairs = _exchanged(pairs, _is_negative(pairs))
    odds = trigram_odds(*_sides(pairs[::2]))
    if np.mean(find_directions(odds, pairs[1::2]) == 1) < _CLEAR_SHARE:
        return sample, True
    directions = find_directions(trigram_odds(*_sides(pairs)), sample)
    num_backward = np.sum(directions == -1)
    num_forward = np.sum(directions == 1)
    is_right = _has_languages(pairs, languages) if languages else None
    is_known = is_right is not None or not is_about_half(num_forward, num_backward)
    if is_right is None:
        is_right = num_forward >= num_backward
    return _exchanged(sample, directions == (-1 if is_right else 1)), is_known


def find_directions(odds: np.ndarray, pairs: Sequence[Pair]) -> np.ndarray:
    """Returns 1 for each pair in the direction of the odds, -1 if it is swapped [N].

    Args:
        odds: see `trigram_odds`.
        pairs: the pairs; 0 is returned for those whose direction is not clear.
    """
    sources, targets = _sides(pairs)
    source_odds = text_odds(odds, *join_texts(sources)[1:])
    target_odds = text_odds(odds, *join_texts(targets)[1:])
    return clear_directions(source_odds, target_odds)


def clear_directions(source: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Returns 1, -1 or 0 as `find_directions` does, from the odds of the texts [N]."""
    is_forward = (source > _CLEAR_ODDS) & (target < -_CLEAR_ODDS)
    is_backward = (source < -_CLEAR_ODDS) & (target > _CLEAR_ODDS)
    return is_forward.astype(int) - is_backward


def is_about_half(num_forward: int, num_backward: int) -> bool:
    """Returns whether about as many pairs are in one direction as in the other."""
    total = num_forward + num_backward
    return min(num_forward, num_backward) >= ABOUT_HALF * total > 0


def _is_negative(pairs: Sequence[Pair]) -> np.ndarray:
    """Returns on which side of their principal axis the pairs are [N].

    Their vectors are the counts of trigrams, those of the target subtracted. The sign
    of a vector, which a swap inverts, does not change the axis.
    """
    parts = []
    for sign, texts in zip((1.0, -1.0), _sides(pairs), strict=True):
        _, characters, starts = join_texts(texts)
        rows = np.repeat(np.arange(len(texts)), np.diff(starts))
        parts.append((rows, trigrams(characters), np.full(len(rows), sign)))
    rows, columns, values = map(np.concatenate, zip(*parts, strict=True))
    signs = np.ones(len(pairs))
    for _ in range(_STEPS):
        axis = np.bincount(columns, values * signs[rows], minlength=1 << BITS)
        signs = np.sign(np.bincount(rows, values * axis[columns]))
    return signs < 0


def _has_languages(pairs: Sequence[Pair], languages: tuple[str, str]) -> bool | None:
    """Returns whether pairs in one direction are in these languages.

    Returns:
        False: they are in the opposite direction; None: that cannot be told.
    """
    try:
        from py3langid import rank
    except ImportError:  # it is in the extra [data]
        return None
    source_code = languages[0].split("_")[0]
    target_code = languages[1].split("_")[0]
    if source_code == target_code:
        return None
    votes = []
    for pair in pairs[:: 1 + len(pairs) // _VOTES]:
        source, target = (dict(rank(text)) for text in pair)
        if not source.keys() >= {source_code, target_code}:
            return None
        odds = source[source_code] - source[target_code]
        odds -= target[source_code] - target[target_code]
        votes.append(odds > 0)
    share = sum(votes) / len(votes)
    return share > 0.5 if max(share, 1 - share) >= _MIN_VOTES else None


def _sides(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Returns the sources and the targets."""
    return [source for source, _ in pairs], [target for _, target in pairs]


def _exchanged(pairs: Sequence[Pair], is_swapped: np.ndarray) -> list[Pair]:
    """Returns pairs, of which the swapped ones are exchanged."""
    exchanged = []
    for (source, target), swap in zip(pairs, is_swapped.tolist(), strict=True):
        exchanged.append((target, source) if swap else (source, target))
    return exchanged
