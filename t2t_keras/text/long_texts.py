"""Splits long texts and joins outputs as `text.sentences` does, without TensorFlow."""

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Sequence

from t2t_keras.blank_text import WHITE_SPACE
from t2t_keras.text.sentence_ends import (
    WITHOUT_SPACES,
    mark_sentence_ends,
    tag_pattern,
)
from t2t_keras.text.tokenizer import EOS


def split_long_text(
    text: str,
    encode_batch: Callable[[Sequence[str]], list[list[int]]],
    most: int,
    tags: Sequence[str] = (),
) -> list[list[int]]:
    """Returns the ids of the parts of a text, each ending in EOS.

    Args:
        text: the text.
        encode_batch: maps texts to their ids, EOS last.
        most: the largest number of tokens in a part, EOS included; at least 2.
        tags: words, one of which may precede the text; every part then begins with it.
    """
    tag: list[int] = []
    if tags and (match := re.match(tag_pattern(tags), text)):
        tag, text = encode_batch([match[1]])[0][:-1], text[match.end() :]
    words: list[str] = []
    ends = [0]  # indices of the words that begin sentences, and the number of words
    for sentence in mark_sentence_ends(text).split("\n"):
        words += re.sub(f"([{WHITE_SPACE}]+)", r"\n\1", sentence).split("\n")
        ends.append(len(words))
    # The tokenizers add a space before each text.
    ids = encode_batch([word.removeprefix(" ") for word in words])
    total = [0, *itertools.accumulate(len(row) - 1 for row in ids)]
    limit = max(most - 1 - len(tag), 1)
    bounds = [0]
    while (start := bounds[-1]) < len(words):
        fitting = bisect.bisect_right(total, total[start] + limit) - 1
        end = ends[bisect.bisect_right(ends, fitting) - 1]
        bounds.append(end if end > start else max(fitting, start + 1))
    parts = ["".join(words[a:b]).strip() for a, b in itertools.pairwise(bounds)]
    return [
        [*tag, *row[i : min(i + limit, len(row) - 1)], EOS]
        for row in encode_batch(parts)
        for i in range(0, len(row) - 1, limit)
    ]


def join_outputs(outputs: Iterable[str]) -> str:
    """Joins the outputs for the parts of a text; none of them has a line break."""
    text = "\n".join(filter(None, outputs))
    return re.sub(f"([{WITHOUT_SPACES}])\n", r"\1", text).replace("\n", " ")
