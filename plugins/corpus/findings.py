"""The faults that an inspection reports, in words."""

from collections.abc import Mapping
from typing import NamedTuple

from t2t_keras.errors import quantity

# The weights of what concerns a whole split; those of `FAULTS` are at most 3.
_UNREADABLE = 10.0
_LANGUAGES = 5.0

_MAJORITY = 0.8  # the share of the texts from which a side has a language


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
    "encoding": Fault(
        1.0,
        "damaged characters (wrong encoding, control characters)",
        "convert the files (`iconv`), or drop these pairs with --clean=control",
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
        "drop such pairs with --clean=ratio=2.5",
    ),
    "identical": Fault(
        0.5,
        "source and target are the same",
        "drop such pairs with --clean=identical",
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
        "drop such pairs with --clean=entities",
    ),
    "overlap": Fault(
        3.0,
        "the source is also in {detail}",
        "remove these lines from the training files",
    ),
    "duplicate": Fault(
        0.2,
        "the pair occurred before",
        "drop such pairs with --clean=duplicates",
    ),
}


class Finding(NamedTuple):
    """A fault of a split.

    Attributes:
        split: the split.
        kind: a key of `FAULTS`, or what concerns a whole split: "unreadable" if a file
            cannot be read to its end, "languages".
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
        noun = "line" if self.pairs == 1 else "lines"
        lines = ", ".join(map(str, self.lines))
        ellipsis = ", ..." if self.pairs > len(self.lines) else ""
        return (
            f"{self.split}: {self.message}: {quantity(self.pairs, 'pairs')} "
            f"({self.share:.2%}), {noun} {lines}{ellipsis}; {self.remedy}"
        )


def unreadable_source(split: str, message: str) -> Finding:
    """Returns the finding that a source cannot be read."""
    remedy = "repair or replace the file"
    return Finding(split, "unreadable", message, 0, 0.0, [], _UNREADABLE, remedy)


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
