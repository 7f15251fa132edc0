"""Trains tensor2tensor's subword vocabulary."""

import collections
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

from t2t_keras.errors import UserError

from .subwords import (
    ESCAPE_CHARACTERS,
    escape_token,
    save_pieces,
    split_pieces,
    split_tokens,
    symbol_piece,
)
from .tokens import RESERVED

_ITERATIONS = 4
_MAX_MIN_COUNT = 1000


def train_subwords(
    texts: Iterable[str],
    path: Path,
    vocab_size: int,
    symbols: Sequence[str] = (),
    max_subtoken_length: int | None = None,
) -> None:
    """Learns a vocabulary of about `vocab_size` pieces and writes it.

    A piece must occur a minimum number of times, which is found by bisection such that
    the size is within 1% of `vocab_size`. Training on a million words takes a minute or
    two.

    Args:
        texts: training lines.
        path: the `.subwords` file to write.
        vocab_size: approximate number of pieces; a small corpus has fewer.
        symbols: words that are always one piece.
        max_subtoken_length: as in tensor2tensor, all learned pieces are shorter; None:
            they have any length.

    Raises:
        UserError: there is no text, or a symbol is not a word.
    """
    for symbol in symbols:
        if not symbol or set(symbol) & set(" _\\\n"):
            raise UserError(
                f"the symbol '{symbol}' is not one word without '_' and '\\'"
            )
    unique_symbols = dict.fromkeys(symbols)
    if unique_symbols:
        texts = (_remove_words(text, unique_symbols) for text in texts)
    counts = count_tokens(texts)
    if not counts and not unique_symbols:
        raise UserError(f"no text to train the vocabulary {path} on")
    learner = SubwordLearner(counts, max_subtoken_length)
    pieces = learner.learn_size(max(vocab_size - len(unique_symbols), 1))
    special_pieces = pieces[: len(RESERVED)]
    learned_pieces = pieces[len(RESERVED) :]
    symbol_pieces = map(symbol_piece, unique_symbols)
    save_pieces([*special_pieces, *symbol_pieces, *learned_pieces], path)


def _remove_words(text: str, words: Container[str]) -> str:
    return " ".join(word for word in text.split(" ") if word not in words)


def count_tokens(texts: Iterable[str]) -> collections.Counter[str]:
    """Counts the tokens of all texts."""
    counts: collections.Counter[str] = collections.Counter()
    for text in texts:
        counts.update(split_tokens(text))
    return counts


class SubwordLearner:
    """Learns pieces from the tokens of a corpus and their counts.

    Args:
        token_counts: the tokens with their counts.
        max_subtoken_length: see `train_subwords`.
    """

    def __init__(
        self, token_counts: Mapping[str, int], max_subtoken_length: int | None = None
    ) -> None:
        # The newline is left out because a piece is a line of the file, and NUL because
        # TensorFlow's `fast_wordpiece_tokenizer` does not accept it as a piece.
        self._alphabet = ESCAPE_CHARACTERS.union(*token_counts, *RESERVED)
        self._alphabet -= {"\n", "\0"}
        self._tokens = [
            (escape_token(token, self._alphabet), count)
            for token, count in token_counts.items()
        ]
        self._max_length = max_subtoken_length

    def learn_size(self, target_size: int) -> list[str]:
        """Returns about `target_size` pieces, in the order of their ids."""
        low = 1
        high = _MAX_MIN_COUNT
        candidates: list[list[str]] = []
        while True:
            min_count = (low + high) // 2
            pieces = self.learn(min_count)
            candidates.append(pieces)
            is_close = abs(len(pieces) - target_size) * 100 < target_size
            if is_close or low >= high or min_count < 2:
                return min(
                    candidates, key=lambda pieces: abs(len(pieces) - target_size)
                )
            if len(pieces) > target_size:
                low = min_count + 1
            else:
                high = min_count - 1

    def learn(self, min_count: int) -> list[str]:
        """Returns pieces that occur at least `min_count` times, most frequent first.

        The first pieces are the single characters. Each iteration splits all tokens
        into the pieces of the previous iteration, and counts as candidates all
        substrings that begin where one of these pieces begins.
        """
        pieces: list[str] = list(self._alphabet)
        for _ in range(_ITERATIONS):
            pieces = self._select(self._count_candidates(set(pieces)), min_count)
        return [escape_token(token, self._alphabet) for token in RESERVED] + pieces

    def _count_candidates(self, pieces: set[str]) -> dict[str, int]:
        """Counts every substring that begins where a piece begins."""
        max_length = max(map(len, pieces))
        counts: dict[str, int] = collections.defaultdict(int)
        for token, count in self._tokens:
            start = 0
            for piece in split_pieces(token, pieces, max_length):
                last_stop = len(token)
                if self._max_length is not None:
                    last_stop = min(last_stop, start + self._max_length - 1)
                for stop in range(start + 1, last_stop + 1):
                    counts[token[start:stop]] += count
                start += len(piece)
        return counts

    def _select(self, counts: dict[str, int], min_count: int) -> list[str]:
        """Selects the frequent candidates, and the whole alphabet.

        The longest candidates come first, because the count of a selected one is
        subtracted from the counts of its prefixes.
        """
        by_length: dict[int, list[str]] = collections.defaultdict(list)
        for candidate, count in counts.items():
            if count >= min_count:
                by_length[len(candidate)].append(candidate)
        selected = []
        for length in sorted(by_length, reverse=True):
            for candidate in by_length[length]:
                count = counts[candidate]
                if count < min_count:
                    continue
                if candidate not in self._alphabet:
                    selected.append((count, candidate))
                for stop in range(1, length):
                    counts[candidate[:stop]] -= count
        selected += [(counts.get(char, 0), char) for char in self._alphabet]
        return [piece for _, piece in sorted(selected, reverse=True)]
