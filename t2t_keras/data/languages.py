"""Language codes, and guesses of the language of texts."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence

from t2t_keras.errors import UserError
from t2t_keras.problem import Source


def parse_languages(text: str) -> tuple[str, str]:
    """Returns the languages that are written "en-de".

    Raises:
        UserError: the text does not have that form.
    """
    match = re.fullmatch(r"([a-z]{2,3}(?:_\w+)?)-([a-z]{2,3}(?:_\w+)?)", text)
    if not match:
        raise UserError(f"languages are two codes such as en-de, not '{text}'")
    return match[1], match[2]


_TEXTS = 500  # number of texts from which a language is guessed


def language_shares(texts: Sequence[str]) -> dict[str, float] | None:
    """Returns the share of texts of each language; None without the library for it."""
    try:
        from py3langid import classify
    except ImportError:  # it is in the extra [data]
        return None
    sample = [text for text in texts[:: 1 + len(texts) // _TEXTS] if text]
    counts = Counter(classify(text)[0] for text in sample)
    return {name: count / len(sample) for name, count in counts.most_common()}


def guessed_languages(source: Source) -> tuple[str, str] | None:
    """Returns the languages of nine in ten of the first 500 texts; None: unknown."""
    pairs = list(itertools.islice(source(), _TEXTS))
    if len(pairs) < _TEXTS:
        return None
    languages = []
    for texts in zip(*pairs, strict=True):
        shares = language_shares(texts)
        name, share = next(iter(shares.items())) if shares else ("", 0.0)
        if share < 0.9:
            return None
        languages.append(name)
    return languages[0], languages[1]
