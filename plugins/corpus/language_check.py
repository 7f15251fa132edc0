"""Whether the texts of a split are in the languages that the data should have."""

from collections.abc import Mapping

from .findings import Finding

_MAJORITY = 0.8  # the share of the texts from which a side has a language
_WEIGHT = 5.0


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
        return _finding(
            split,
            f"the source is in '{target}' and the target in '{source}', but the "
            f"languages are {source}-{target}",
            "exchange the two files or the languages",
        )
    for side, code, language in zip(
        ("source", "target"), detected, languages, strict=True
    ):
        if code not in (None, language):
            return _finding(
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


def _finding(split: str, message: str, remedy: str) -> Finding:
    """Returns a finding that concerns a whole split."""
    return Finding(split, "languages", message, 0, 0.0, [], _WEIGHT, remedy)
