"""A corpus of which about half is swapped, so that either half may be right."""

import importlib.util
from collections.abc import Sequence

import numpy as np

from t2t_keras.errors import install_command
from t2t_keras.problem import Pair

from .findings import Finding

_WEIGHT = 5.0
_LINES = 3  # line numbers that are named
_CHARACTERS = 40  # of each text of an example


def mixed_directions(
    split: str,
    groups: Sequence[np.ndarray],
    examples: Sequence[Pair],
    languages: tuple[str, str] | None,
) -> Finding:
    """Returns the finding that the pairs of a split are in two directions.

    Args:
        split: the name of the split.
        groups: the indices of the pairs in one direction, and in the other.
        examples: a pair of each group.
        languages: those that the data should have, which could not tell the right
            direction; None: unknown.
    """
    descriptions = []
    for indices, pair in zip(groups, examples, strict=True):
        lines = ", ".join(f"{index + 1:,}" for index in indices[:_LINES])
        source, target = map(_shortened, pair)
        descriptions.append(
            f"{len(indices):,} pairs, such as lines {lines} ({source} - {target}),"
        )
    message = (
        f"{' and '.join(descriptions)} are in opposite directions: one of these halves "
        "is swapped, and nothing tells which one"
    )
    remedy = _remedy(languages)
    return Finding(split, "directions", message, 0, 0.0, [], _WEIGHT, remedy)


def _remedy(languages: tuple[str, str] | None) -> str:
    """Returns what tells the direction, or what to do if nothing does."""
    if importlib.util.find_spec("py3langid") is None:
        needed = f"install py3langid ({install_command('data')})"
        return needed if languages else f"{needed} and name them with --languages"
    if languages is None:
        return "name the languages: --languages SOURCE-TARGET"
    return (
        f"the languages {'-'.join(languages)} could not be told apart; exchange source "
        "and target in the wrong half"
    )


def _shortened(text: str) -> str:
    """Returns the beginning of a text in quotation marks."""
    text = " ".join(text.split())
    return f"'{text}'" if len(text) <= _CHARACTERS else f"'{text[:_CHARACTERS]}...'"
