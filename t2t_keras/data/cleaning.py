"""Rules by which noisy training pairs are dropped."""

import re
from collections.abc import Sequence
from typing import Any, get_type_hints

from t2t_keras.errors import UserError
from t2t_keras.problem import Cleaning, Pair, is_blank

# C0 and C1 control characters except the tab, and U+FFFD, which stands for bytes that
# could not be decoded.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ufffd]")


# HTML entities, and what Moses' tokenizer writes: `&apos;`, `&#91;`, `@-@`.
ENTITY = re.compile(
    r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,6}|#x[0-9a-fA-F]{2,6});|(?:^| )@-@(?: |$)"
)


_NO_LETTERS = re.compile(r"[\W\d_]+")


def reasons(cleaning: Cleaning) -> list[str]:
    """Returns the reasons to drop a pair, in the order in which they are checked."""
    rules = {
        "control": cleaning.control,
        "entities": cleaning.entities,
        "identical": cleaning.identical,
        "few_letters": cleaning.letters,
        "long_word": cleaning.word,
        "over_length": True,
        "ratio": cleaning.ratio,
        "duplicate": cleaning.duplicates,
    }
    return ["empty", *(reason for reason, is_on in rules.items() if is_on)]


def reason_by_text(pair: Pair, cleaning: Cleaning) -> str | None:
    """Returns why a pair is dropped for its texts, or None if it is kept."""
    if any(map(is_blank, pair)):
        return "empty"
    if cleaning.control and any(_CONTROL.search(text) for text in pair):
        return "control"
    if cleaning.entities and any(ENTITY.search(text) for text in pair):
        return "entities"
    if not (cleaning.identical or cleaning.letters or cleaning.word):
        return None
    source, target = sides = [text.split() for text in pair]
    if cleaning.identical and _folded(source) == _folded(target):
        return "identical"
    if cleaning.letters and any(_letters(side) < cleaning.letters for side in sides):
        return "few_letters"
    if cleaning.word and any(max(map(len, side)) > cleaning.word for side in sides):
        return "long_word"
    return None


def reason_by_length(
    source: Sequence[int], target: Sequence[int], max_length: float, cleaning: Cleaning
) -> str | None:
    """Returns why a pair is dropped for its number of tokens, or None if it is kept.

    Args:
        source: ids of the source, EOS last.
        target: ids of the target, EOS last.
        max_length: the most tokens of either side, EOS included.
        cleaning: the rules. The ratio is of the tokens without EOS.
    """
    shorter, longer = sorted((len(source), len(target)))
    if longer > max_length:
        return "over_length"
    if cleaning.ratio and longer - 1 > cleaning.ratio * (shorter - 1):
        return "ratio"
    return None


def _folded(words: Sequence[str]) -> str:
    """Returns the words without their case."""
    return " ".join(words).casefold()


def _letters(words: Sequence[str]) -> float:
    """Returns the share of letters among the characters of the words."""
    text = "".join(words)
    return len(_NO_LETTERS.sub("", text)) / len(text)


def parse_cleaning(text: str) -> Cleaning:
    """Returns the rules of `"duplicates,ratio=1.5"`; `"none"` stands for no rule.

    Raises:
        UserError: there is no such rule, or its value is not valid.
    """
    kinds = get_type_hints(Cleaning)
    rules: dict[str, Any] = {}
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
