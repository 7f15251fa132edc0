"""The rules by which training pairs are dropped, none of which knows a language.

`Problem.cleaning` says which are on. A pair is counted under the first rule that drops
it, in the order of `reasons`. Duplicates take all pairs together: see `duplicates`.
"""

import dataclasses
import re
from collections.abc import Sequence

from t2t_keras.errors import UserError
from t2t_keras.problem import Cleaning, Pair

# C0 and C1 control characters but the tab, and U+FFFD, which stands for bytes that
# somebody could not decode.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ufffd]")
_NO_LETTERS = re.compile(r"[\W\d_]+")


def reasons(cleaning: Cleaning) -> list[str]:
    """Returns what pairs may be dropped for, in the order in which it is checked."""
    rules = {
        "control": cleaning.control,
        "identical": cleaning.identical,
        "few_letters": cleaning.letters,
        "long_word": cleaning.word,
        "over_length": True,
        "ratio": cleaning.ratio,
        "duplicate": cleaning.duplicates,
    }
    return ["empty", *(reason for reason, is_on in rules.items() if is_on)]


def reason_by_text(pair: Pair, cleaning: Cleaning) -> str | None:
    """Returns why a pair is dropped, as far as its texts tell; None: it is not."""
    if not all(text.strip() for text in pair):
        return "empty"
    if cleaning.control and any(_CONTROL.search(text) for text in pair):
        return "control"
    words = [text.split() for text in pair] if _needs_words(cleaning) else []
    if cleaning.identical and _folded(words[0]) == _folded(words[1]):
        return "identical"
    if cleaning.letters and any(_letters(side) < cleaning.letters for side in words):
        return "few_letters"
    if cleaning.word and any(max(map(len, side)) > cleaning.word for side in words):
        return "long_word"
    return None


def reason_by_length(
    source: Sequence[int], target: Sequence[int], max_length: int, cleaning: Cleaning
) -> str | None:
    """Returns why a pair is dropped for its pieces; None: it is not.

    Args:
        source: pieces of the source, EOS last.
        target: pieces of the target, EOS last.
        max_length: the most of either, EOS included.
        cleaning: the rules. The ratio is that of the pieces without EOS.
    """
    shorter, longer = sorted((len(source), len(target)))
    if longer > max_length:
        return "over_length"
    if cleaning.ratio and longer - 1 > cleaning.ratio * (shorter - 1):
        return "ratio"
    return None


def _needs_words(cleaning: Cleaning) -> bool:
    return bool(cleaning.identical or cleaning.letters or cleaning.word)


def _folded(words: Sequence[str]) -> str:
    """Returns the words without their case."""
    return " ".join(words).casefold()


def _letters(words: Sequence[str]) -> float:
    """Returns the share of letters among the characters of the words."""
    text = "".join(words)
    return len(_NO_LETTERS.sub("", text)) / len(text)


def parse_cleaning(text: str) -> Cleaning:
    """Returns the rules named by `"duplicates,ratio=1.5"`; `"none"`: no rule.

    Raises:
        UserError: there is no such rule, or its value is not one.
    """
    kinds = {field.name: field.type for field in dataclasses.fields(Cleaning)}
    rules: dict[str, bool | float] = {}
    for item in text.split(",") if text != "none" else []:
        name, equals, value = item.strip().partition("=")
        kind = kinds.get(name)
        if kind is None:
            raise UserError(
                f"--clean: there is no rule '{name}'; they are {', '.join(kinds)}"
            )
        if bool(equals) == (kind is bool):
            form = name if kind is bool else f"{name}=NUMBER"
            raise UserError(f"--clean: write {form}, not '{item.strip()}'")
        try:
            rules[name] = True if kind is bool else kind(value)
        except ValueError:
            raise UserError(f"--clean: '{value}' is not a number for {name}") from None
    return Cleaning(**rules)
