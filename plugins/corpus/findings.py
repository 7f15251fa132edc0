"""The faults that an inspection reports, in words."""

import importlib.util
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from t2t_keras.errors import install_command, quantity
from t2t_keras.problem import Pair

_UNREADABLE = 10.0  # the weight of a source that cannot be read, above all others


class Fault(NamedTuple):
    """A fault that pairs may have.

    Attributes:
        weight: how bad it is if all pairs have it.
        message: the fault in words.
        remedy: what to do.
    """

    weight: float
    message: str
    remedy: str


FAULTS = {
    "swapped": Fault(
        1.0,
        "source and target are swapped",
        "exchange the two sides of these lines (--apply does it in a copy)",
    ),
    "shifted": Fault(
        1.0,
        "source and target do not belong together: {detail}",
        "insert or remove a line where this begins",
    ),
    "encoding": Fault(
        1.0,
        "damaged characters (wrong encoding, control characters)",
        "convert the files (`iconv`), or drop these pairs with --clean control",
    ),
    "source_language": Fault(
        0.7,
        "the target is in the source language",
        "remove these lines from both files",
    ),
    "target_language": Fault(
        0.7,
        "the source is in the target language",
        "remove these lines from both files",
    ),
    "length": Fault(
        0.5,
        "one side is far longer than usual",
        "drop such pairs with --clean ratio=2.5",
    ),
    "identical": Fault(
        0.5,
        "source and target are the same",
        "drop such pairs with --clean identical",
    ),
    "empty": Fault(
        0.5,
        "one side is empty",
        "datagen drops them from train; remove these lines from other splits",
    ),
    "entities": Fault(
        0.5,
        "HTML entities or escapes of Moses' tokenizer, such as &amp; or @-@",
        "undo them in all files (`sacremoses detokenize`, Python's html.unescape), or "
        "drop such pairs with --clean entities",
    ),
    "overlap": Fault(
        3.0,
        "the source is also in {detail}",
        "remove these lines from the training files",
    ),
    "duplicate": Fault(
        0.2,
        "the pair occurred before",
        "drop such pairs with --clean duplicates",
    ),
}


class Finding(NamedTuple):
    """A fault of a split.

    Attributes:
        split: the split.
        kind: a key of `FAULTS`, or what concerns a whole split: "unreadable" if a file
            cannot be read to its end, "languages", "directions".
        message: the fault in words.
        pairs: number of pairs that have it.
        share: their share of the split.
        lines: the line numbers of the first ones, from 1.
        weight: how bad it is; the worst finding has the greatest weight.
        remedy: what to do.
    """

    split: str
    kind: str
    message: str
    pairs: int
    share: float
    lines: list[int]
    weight: float
    remedy: str

    def __str__(self) -> str:
        """Returns it in one line."""
        if not self.pairs:
            return f"{self.split}: {self.message}; {self.remedy}"
        lines = ", ".join(f"{line:,}" for line in self.lines)
        ellipsis = ", ..." if self.pairs > len(self.lines) else ""
        return (
            f"{self.split}: {self.message}: {quantity(self.pairs, 'pairs')} "
            f"({self.share:.2%}), line {lines}{ellipsis}; {self.remedy}"
        )


def unreadable_source(split: str, message: str) -> Finding:
    """Returns the finding that a source cannot be read."""
    remedy = "repair or replace the file"
    return Finding(split, "unreadable", message, 0, 0.0, [], _UNREADABLE, remedy)


_MAJORITY = 0.8  # the share of the texts from which a side has a language
_LANGUAGES = 5.0


def language_finding(
    split: str,
    shares: tuple[Mapping[str, float] | None, Mapping[str, float] | None],
    languages: tuple[str, str],
) -> Finding | None:
    """Returns what is wrong with the languages of a split; None: nothing is known.

    Args:
        split: the name of the split.
        shares: of source and target, the share of each language that was detected.
        languages: the codes of the source's and the target's language.
    """
    detected = tuple(map(_majority, shares))
    source, target = languages
    if detected == (target, source):
        return _language_finding(
            split,
            f"the source is in '{target}' and the target in '{source}', but the "
            f"languages are {source}-{target}",
            "exchange the two files or the languages",
        )
    for side, code, language in zip(
        ("source", "target"), detected, languages, strict=True
    ):
        if code not in (None, language):
            return _language_finding(
                split,
                f"the {side} is in '{code}', but the languages are {source}-{target}",
                "give another file or other --languages",
            )
    return None


def _majority(shares: Mapping[str, float] | None) -> str | None:
    """Returns the language of most texts, if it is known."""
    for language, share in (shares or {}).items():
        if share >= _MAJORITY:
            return language
    return None


def _language_finding(split: str, message: str, remedy: str) -> Finding:
    """Returns a finding that concerns a whole split."""
    return Finding(split, "languages", message, 0, 0.0, [], _LANGUAGES, remedy)


_DIRECTIONS = 5.0
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
    return Finding(split, "directions", message, 0, 0.0, [], _DIRECTIONS, remedy)


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
