"""Statistics of a split, some of them from a sample of its pairs."""

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

from t2t_keras.data.sources import language_shares
from t2t_keras.problem import Pair
from t2t_keras.text.tokenizer import UNK, Tokenizer

from .norm import Norm
from .split_inspection import LENGTH_CLASSES, SplitInspection

_MAX_NAMES = 5  # scripts and languages that are named
_BYTE = re.compile("<0x[0-9A-F]{2}>")


def split_statistics(
    inspection: SplitInspection,
    sample: Sequence[Pair],
    norm: Norm,
    tokenizers: tuple[Tokenizer, Tokenizer] | None,
) -> dict[str, Any]:
    """Returns the statistics of a split, as the report of `t2t inspect` has them.

    Args:
        inspection: the inspection of the split.
        sample: pairs of the split.
        norm: what is normal.
        tokenizers: the tokenizers of source and target; None: there are none.
    """
    statistics: dict[str, Any] = {
        "pairs": inspection.pairs,
        "target_characters_per_source_character": round(math.exp(norm.ratio), 3),
    }
    for side, name in enumerate(("source", "target")):
        texts = [pair[side] for pair in sample]
        histogram = inspection.histograms[side].tolist()
        side_statistics: dict[str, Any] = {
            "words": int(inspection.words[side]),
            "characters": int(inspection.characters[side]),
            "histogram": dict(zip(LENGTH_CLASSES, histogram, strict=True)),
            "scripts": _script_shares(texts),
            "languages": _language_shares(texts),
        }
        if tokenizers:
            side_statistics["vocabulary"] = _vocabulary_use(tokenizers[side], texts)
        statistics[name] = side_statistics
    return statistics


def _script_shares(texts: Sequence[str]) -> dict[str, float]:
    """Returns the share of each script among the letters, by its Unicode name."""
    scripts = Counter[str]()
    for character, count in Counter("".join(texts)).items():
        if character.isalpha():
            scripts[unicodedata.name(character, "unknown").split()[0].lower()] += count
    total = scripts.total()
    return {name: round(n / total, 4) for name, n in scripts.most_common(_MAX_NAMES)}


def _language_shares(texts: Sequence[str]) -> dict[str, float] | None:
    """Returns the share of texts of the main languages; None without the library."""
    shares = language_shares(texts)
    if shares is None:
        return None
    rounded = {}
    for name, share in list(shares.items())[:_MAX_NAMES]:
        if share >= 0.01:
            rounded[name] = round(share, 3)
    return rounded


def _vocabulary_use(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, float]:
    """Returns how a vocabulary splits texts.

    Returns:
        "tokens": its size; "used": the share of its tokens that occur; "per_word":
        tokens for each word; "unknown": the share of tokens that are unknown or bytes.
    """
    counts = Counter[int]()
    words = 0
    for text in texts:
        counts.update(tokenizer.encode(text)[:-1])
        words += len(text.split())
    pieces = tokenizer.pieces
    unknown = 0
    for token, count in counts.items():
        if token == UNK or _BYTE.fullmatch(pieces[token]):
            unknown += count
    return {
        "tokens": len(pieces),
        "used": round(len(counts) / len(pieces), 3),
        "per_word": round(counts.total() / max(words, 1), 3),
        "unknown": round(unknown / max(counts.total(), 1), 5),
    }
