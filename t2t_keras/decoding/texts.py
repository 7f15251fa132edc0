"""The lists of texts that callers pass."""

from collections.abc import Iterable

from t2t_keras.errors import UserError


def checked_texts(texts: Iterable[str], name: str = "texts") -> list[str]:
    """Returns the texts as a list.

    Args:
        texts: what a caller passed.
        name: of the argument.

    Raises:
        UserError: they are one string or no sequence, or an element is not a string.
    """
    if isinstance(texts, str | bytes):
        raise UserError(
            f"{name} must be a list of strings, not one string; pass [text]"
        )
    try:
        texts = list(texts)
    except TypeError:
        kind = type(texts).__name__
        raise UserError(f"{name} must be a list of strings, not {kind}") from None
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(
                f"{name}[{i}] must be a string (str), not {type(text).__name__}"
            )
    return texts


def is_blank(text: str) -> bool:
    """Returns whether a text is nothing but white space."""
    return not text.strip()
