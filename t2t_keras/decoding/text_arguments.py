"""Checks of arguments that are lists of texts."""

from collections.abc import Iterable

from t2t_keras.errors import UserError, require_unicode
from t2t_keras.quantity import quantity


def checked_texts(texts: Iterable[str], name: str = "texts") -> list[str]:
    """Checks texts and returns them as a list.

    Args:
        texts: the argument to check.
        name: the argument's name, for error messages.

    Raises:
        UserError: `texts` is one string or not iterable, or an element is not a string
            or has a lone surrogate.
    """
    if isinstance(texts, str | bytes):
        raise UserError(
            f"{name} must be a list of strings, not one string; pass [text]"
        )
    try:
        texts = list(texts)
    except TypeError:
        cls = type(texts).__name__
        raise UserError(f"{name} must be a list of strings, not {cls}") from None
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(
                f"{name}[{i}] must be a string (str), not {type(text).__name__}"
            )
        if not text.isascii():
            require_unicode(f"{name}[{i}]", text)
    return texts


def checked_pairs(
    sources: Iterable[str], targets: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Checks the two sides of pairs of texts and returns them as lists.

    Raises:
        UserError: see `checked_texts`; or they are not of equal length.
    """
    sources = checked_texts(sources, "sources")
    targets = checked_texts(targets, "targets")
    if len(sources) != len(targets):
        raise UserError(
            f"{quantity(len(sources), 'sources')} but "
            f"{quantity(len(targets), 'targets')}: line by line they must be pairs"
        )
    return sources, targets


def checked_prefixes(prefixes: Iterable[str], count: int) -> list[str]:
    """Checks the prefixes of `count` texts and returns them as a list.

    Raises:
        UserError: see `checked_texts`; or there are more or fewer than `count`.
    """
    prefixes = checked_texts(prefixes, "prefixes")
    if len(prefixes) != count:
        prefix_count = quantity(len(prefixes), "prefixes", "prefix")
        raise UserError(f"{quantity(count, 'texts')} but {prefix_count}")
    return prefixes
