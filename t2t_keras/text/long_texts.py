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
    max_length: int,
    tags: Sequence[str] = (),
) -> list[list[int]]:
    """Returns the ids of the parts of a text, each ending in EOS.

    Args:
        text: the text.
        encode_batch: maps texts to their ids, EOS last.
        max_length: the largest number of tokens in a part, EOS included; at least 2.
        tags: words, one of which may precede the text; every part then begins with it.
    """
    tag: list[int] = []
    if tags and (match := re.match(tag_pattern(tags), text)):
        tag = encode_batch([match[1]])[0][:-1]
        text = text[match.end() :]
    words: list[str] = []
    # The indices of the words that begin sentences, and the number of words.
    boundaries = [0]
    for sentence in mark_sentence_ends(text).split("\n"):
        words += re.sub(f"([{WHITE_SPACE}]+)", r"\n\1", sentence).split("\n")
        boundaries.append(len(words))
    # The tokenizers add a space before each text.
    ids = encode_batch([word.removeprefix(" ") for word in words])
    total = [0, *itertools.accumulate(len(row) - 1 for row in ids)]
    limit = max(max_length - 1 - len(tag), 1)
    bounds = [0]
    while (start := bounds[-1]) < len(words):
        fitting = bisect.bisect_right(total, total[start] + limit) - 1
        sentence_end = boundaries[bisect.bisect_right(boundaries, fitting) - 1]
        word_end = max(fitting, start + 1)
        bounds.append(sentence_end if sentence_end > start else word_end)
    parts = ["".join(words[a:b]).strip() for a, b in itertools.pairwise(bounds)]
    rows = []
    for ids_of_part in encode_batch(parts):
        tokens = ids_of_part[:-1]
        # A word that is too long is cut between its tokens.
        for i in range(0, len(tokens), limit):
            rows.append([*tag, *tokens[i : i + limit], EOS])
    return rows


def join_outputs(outputs: Iterable[str]) -> str:
    """Joins the outputs for the parts of a text; none of them has a line break."""
    text = "\n".join(filter(None, outputs))
    return re.sub(f"([{WITHOUT_SPACES}])\n", r"\1", text).replace("\n", " ")
