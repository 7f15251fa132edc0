"""Filters that drop noisy training pairs.

The name of a filter is the reason in the `dropped` table of a data directory.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar, get_type_hints

from t2t_keras.errors import UserError
from t2t_keras.problem import Cleaning, Pair
from t2t_keras.text.sentences import is_blank

# C0 and C1 control characters except the tab, and U+FFFD, which stands for bytes that
# could not be decoded.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ufffd]")
# HTML entities, and what Moses' tokenizer writes: `&apos;`, `&#91;`, `@-@`.
ENTITY = re.compile(
    r"&(?:amp|lt|gt|quot|apos|nbsp|#\d{2,6}|#x[0-9a-fA-F]{2,6});|(?:^| )@-@(?: |$)"
)
_NO_LETTERS = re.compile(r"[\W\d_]+")


class Limits(Protocol):
    """What the filters compare with: a problem, or an `EncodingConfig`."""

    @property
    def cleaning(self) -> Cleaning:
        """The rules."""

    @property
    def max_length(self) -> float:
        """The largest number of tokens on a side, EOS included."""


TokenIds = tuple[Sequence[int], Sequence[int]]  # of source and target, EOS last
P = TypeVar("P", Pair, TokenIds)
Filter = Callable[[P, Limits], bool]


def empty(pair: Pair, limits: Limits) -> bool:
    """Whether a side is blank."""
    return is_blank(pair[0]) or is_blank(pair[1])


def control(pair: Pair, limits: Limits) -> bool:
    """Whether a side has a control character, mostly of a wrong encoding."""
    return any(map(_CONTROL.search, pair))


def entities(pair: Pair, limits: Limits) -> bool:
    """Whether a side has an HTML entity or an escape of Moses' tokenizer."""
    return any(map(ENTITY.search, pair))


def identical(pair: Pair, limits: Limits) -> bool:
    """Whether the sides differ only in white space and case."""
    source, target = (" ".join(text.split()).casefold() for text in pair)
    return source == target


def few_letters(pair: Pair, limits: Limits) -> bool:
    """Whether a side has too small a share of letters."""
    return any(_letter_share(text) < limits.cleaning.letters for text in pair)


def long_word(pair: Pair, limits: Limits) -> bool:
    """Whether a word has too many characters."""
    return any(max(map(len, text.split())) > limits.cleaning.word for text in pair)


def over_length(ids: TokenIds, limits: Limits) -> bool:
    """Whether a side has too many tokens."""
    return max(map(len, ids)) > limits.max_length


def ratio(ids: TokenIds, limits: Limits) -> bool:
    """Whether one side has far more tokens than the other, without EOS."""
    shorter, longer = sorted(len(side) - 1 for side in ids)
    return longer > limits.cleaning.ratio * shorter


# The filters in the order in which they apply, each with the rule of `Cleaning` that
# turns it on; None: it is always on.
TEXT_FILTERS: dict[Filter[Pair], str | None] = {
    empty: None,
    control: "control",
    entities: "entities",
    identical: "identical",
    few_letters: "letters",
    long_word: "word",
}
LENGTH_FILTERS: dict[Filter[TokenIds], str | None] = {
    over_length: None,
    ratio: "ratio",
}


def active_filters(
    filters: Mapping[Filter[P], str | None], cleaning: Cleaning
) -> list[Filter[P]]:
    """Returns the filters that the rules turn on, in order."""
    return [f for f, rule in filters.items() if not rule or getattr(cleaning, rule)]


def drop_reason(pair: P, filters: Iterable[Filter[P]], limits: Limits) -> str | None:
    """Returns the name of the first filter that drops a pair; None: none does."""
    for is_dropped in filters:
        if is_dropped(pair, limits):
            return is_dropped.__name__
    return None


def reasons(cleaning: Cleaning) -> list[str]:
    """Returns the reasons to drop a pair, in the order in which they are checked."""
    filters = [
        *active_filters(TEXT_FILTERS, cleaning),
        *active_filters(LENGTH_FILTERS, cleaning),
    ]
    names = [is_dropped.__name__ for is_dropped in filters]
    return [*names, "duplicate"] if cleaning.duplicates else names


def _letter_share(text: str) -> float:
    """Returns the share of letters among the characters that are not spaces."""
    characters = "".join(text.split())
    return len(_NO_LETTERS.sub("", characters)) / len(characters)


def parse_cleaning(text: str) -> Cleaning:
    """Returns the rules of `"duplicates,ratio=1.5"`; `"none"` stands for no rule.

    Raises:
        UserError: there is no such rule, or its value is not valid.
    """
    types = get_type_hints(Cleaning)
    rules: dict[str, float] = {}
    for item in text.split(",") if text != "none" else []:
        name, equals, value = item.strip().partition("=")
        if name not in types:
            raise UserError(
                f"--clean: there is no rule '{name}'; they are {', '.join(types)}"
            )
        is_switch = types[name] is bool
        if bool(equals) == is_switch:
            expected = name if is_switch else f"{name}=NUMBER"
            raise UserError(f"--clean: write {expected}, not '{item.strip()}'")
        try:
            rules[name] = True if is_switch else types[name](value)
        except ValueError:
            raise UserError(f"--clean: '{value}' is not a number for {name}") from None
    return Cleaning(**rules)  # type: ignore[arg-type]
