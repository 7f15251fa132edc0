"""Word alignments: links between the words of a source and a target.

They are read from files in Pharaoh's format (`0-0 1-2`) and become links between tokens
for guided alignment. For a trained model, they are read from its attention.
"""

import itertools
import re
import string
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

from t2t_keras.errors import UserError
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.vocabulary import EOS

if TYPE_CHECKING:
    import numpy as np

# Pairs (i, j) of source word i and target word j, from 0, in increasing order.
Alignment = tuple[tuple[int, int], ...]


class AlignedPair(tuple[str, str]):
    """A pair with the links between its words, for guided alignment.

    Attributes:
        links: the links between the words that `split_words` finds.
    """

    links: Alignment

    def __new__(cls, source: str, target: str, links: Alignment) -> Self:
        """Returns the pair."""
        pair = super().__new__(cls, (source, target))
        pair.links = links
        return pair

    def __getnewargs__(self) -> tuple[object, ...]:
        return *self, self.links  # for pickle

    def __repr__(self) -> str:
        return f"AlignedPair{(*self, self.links)}"


def split_words(text: str) -> list[str]:
    """Returns the words of a text, as word alignments count them.

    Only ASCII white space separates them, as in fast_align, eflomal and GIZA++: a
    no-break space, as in "10 000", or U+3000 is part of a word.
    """
    return re.findall(r"\S+", text, re.ASCII)


def words_of_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int | None]:
    """Returns the index of each token's word; None for EOS.

    A token belongs to the word of the first character that it adds to the text of the
    tokens before it, or, if it adds only white space, to the word after that, if there
    is one. So this needs nothing of a tokenizer but `decode`. `split_words` finds the
    words.

    Args:
        tokenizer: the tokenizer.
        ids: the ids of a text; those after the first EOS have no word.
    """
    length = list(ids).index(EOS) if EOS in ids else len(ids)
    words: list[int | None] = [None] * len(ids)
    previous = ""
    for index in range(length):
        text = tokenizer.decode(ids[: index + 1])
        # The earlier text is not a prefix if the token completes a character.
        pairs = zip(previous, text, strict=False)
        common = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
        added = text[len(list(common)) :].lstrip(string.whitespace)
        if added:
            through = text[: len(text) - len(added) + 1]
            words[index] = len(split_words(through)) - 1
        previous = text
    for index in reversed(range(length - 1)):
        if words[index] is None:
            words[index] = words[index + 1]
    return words


class Reference(NamedTuple):
    """The links that people gave to a pair (Och and Ney, 2003).

    Attributes:
        sure: the links that an alignment has to have.
        possible: the links that it may have; the sure ones are among them.
    """

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


def format_alignment(alignment: Alignment) -> str:
    """Returns an alignment in Pharaoh's format: `0-0 1-2`."""
    return " ".join(f"{i}-{j}" for i, j in alignment)


def parse_reference(line: str, location: str) -> Reference:
    """Reads a line of links: `0-0 1p2`, where `-` stands for sure, `p` for possible.

    Args:
        line: the line.
        location: the file and the number of the line, for the error message.

    Raises:
        UserError: it has anything else.
    """
    sure = set()
    possible = set()
    for link in line.split():
        match = re.fullmatch(r"(\d+)([-p])(\d+)", link, re.ASCII)
        if match is None:
            raise UserError(
                f"{location}: '{link}' is not a link; write the numbers of the source "
                "and target words from 0, such as 0-0, or 0p0 for a possible link"
            )
        pair = int(match[1]), int(match[3])
        possible.add(pair)
        if match[2] == "-":
            sure.add(pair)
    return Reference(frozenset(sure), frozenset(possible))


def alignment_scores(
    alignments: Sequence[Alignment], references: Sequence[Reference]
) -> dict[str, float]:
    """Returns alignment error rate, precision and recall over a corpus, in percent.

    For the links A of the alignments and the sure links S and possible links P of the
    references, precision is |A and P| / |A|, recall is |A and S| / |S|, and the
    alignment error rate is 1 - (|A and S| + |A and P|) / (|A| + |S|).
    """
    num_links = 0
    num_sure = 0
    possible_hits = 0
    sure_hits = 0
    for alignment, reference in zip(alignments, references, strict=True):
        links = set(alignment)
        num_links += len(links)
        num_sure += len(reference.sure)
        possible_hits += len(links & reference.possible)
        sure_hits += len(links & reference.sure)
    hits = sure_hits + possible_hits
    return {
        "aer": 100 * (1 - hits / max(num_links + num_sure, 1)),
        "precision": 100 * possible_hits / max(num_links, 1),
        "recall": 100 * sure_hits / max(num_sure, 1),
    }


def token_links(
    pair: tuple[str, str],
    source: Sequence[int],
    target: Sequence[int],
    tokenizers: tuple[Tokenizer, Tokenizer],
) -> list[int]:
    """Returns the links between the tokens of linked words, see `example`.

    Args:
        pair: the texts; without an alignment there are no links.
        source: ids of the source.
        target: ids of the target.
        tokenizers: the tokenizers of source and target.
    """
    if not isinstance(pair, AlignedPair):
        return []
    word_links = set(pair.links)
    source_words = words_of_tokens(tokenizers[0], source)
    target_words = words_of_tokens(tokenizers[1], target)
    links = []
    for t, target_word in enumerate(target_words):
        for s, source_word in enumerate(source_words):
            if (source_word, target_word) in word_links:
                links += [t, s]
    return links


def word_alignment(
    weights: "np.ndarray",
    source_words: Sequence[int | None],
    target_words: Sequence[int | None],
) -> Alignment:
    """Aligns each target token with the source token of the largest weight.

    Two words are aligned if any of their tokens are. Tokens without a word, such as
    EOS, are left out on both sides.

    Args:
        weights: [T, S], from target to source tokens; both may be padded.
        source_words: the result of `words_of_tokens` for the source.
        target_words: the same for the target.
    """
    columns = [s for s, word in enumerate(source_words) if word is not None]
    if not columns:
        return ()
    links = set()
    for row, target_word in zip(weights, target_words, strict=False):
        if target_word is not None:
            source_word = source_words[columns[row[columns].argmax()]]
            assert source_word is not None  # `columns` has none of these
            links.add((source_word, target_word))
    return tuple(sorted(links))


def word_starts(text: str, parts: Sequence[str]) -> list[int]:
    """Returns the index of the word with which each part of a text begins.

    Args:
        text: the text.
        parts: its parts in order, with nothing but white space between them.
    """
    starts = []
    position = 0
    for part in parts:
        remainder = text[position:]
        position += len(remainder) - len(remainder.lstrip())
        starts.append(len(split_words(f"{text[:position]}.")) - 1)
        position += len(part.strip())
    return starts


def joined_alignment(
    alignments: Sequence[Alignment],
    source: str,
    source_parts: Sequence[str],
    target: str,
    target_parts: Sequence[str],
    tags: Sequence[str] = (),
) -> Alignment:
    """Joins the alignments of the parts of a pair.

    Args:
        alignments: the alignment of each part.
        source: the source.
        source_parts: its parts in order, with nothing but white space between them.
        target: the target.
        target_parts: its parts.
        tags: see `TextProcessor`. If the source begins with a tag, all its parts do.
    """
    head = source.split(maxsplit=1)[:1]
    tag = head[0] if head and head[0] in tags else ""
    untagged = [part.removeprefix(tag) for part in source_parts[1:]]
    source_starts = word_starts(source, [*source_parts[:1], *untagged])
    # Word 0 of every part is the tag, which is word 0 of the source.
    source_starts[1:] = [start - bool(tag) for start in source_starts[1:]]
    target_starts = word_starts(target, target_parts)
    links = set()
    for alignment, source_start, target_start in zip(
        alignments, source_starts, target_starts, strict=True
    ):
        for i, j in alignment:
            is_tag = bool(tag) and i == 0
            links.add((0 if is_tag else i + source_start, j + target_start))
    return tuple(sorted(links))
