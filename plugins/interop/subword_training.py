"""Trains tensor2tensor's subword vocabulary."""

import collections
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from t2t_keras.errors import UserError

from .subword import (
    ESCAPE_CHARACTERS,
    escape_token,
    save_pieces,
    split_pieces,
    split_tokens,
    symbol_piece,
)

_RESERVED = ("<pad>", "<EOS>")
_ITERATIONS = 4
_LARGEST_MINIMUM = 1000


def train_subwords(
    texts: Iterable[str],
    path: Path,
    vocab_size: int,
    symbols: Sequence[str] = (),
) -> None:
    """Learns a vocabulary of about `vocab_size` pieces and writes it.

    The least count of a piece is found by bisection such that the size is within 1 % of
    `vocab_size`. It takes a minute or two for a million words.

    Args:
        texts: training lines.
        path: the `.subwords` file to write.
        vocab_size: approximate number of pieces; a small corpus gives fewer.
        symbols: words that are always one piece.

    Raises:
        UserError: there is no text, or a symbol cannot be a piece.
    """
    for symbol in symbols:
        if not symbol or set(symbol) & set(" _\\\n"):
            raise UserError(
                f"the symbol '{symbol}' is not one word without '_' and '\\'"
            )
    unique = dict.fromkeys(symbols)
    if unique:
        texts = (" ".join(w for w in t.split(" ") if w not in unique) for t in texts)
    counts = count_tokens(texts)
    if not counts and not unique:
        raise UserError(f"no text to train the vocabulary {path} on")
    pieces = SubwordLearner(counts).learn_size(max(vocab_size - len(unique), 1))
    special = len(_RESERVED)
    pieces[special:special] = map(symbol_piece, unique)
    save_pieces(pieces, path)


def count_tokens(texts: Iterable[str]) -> collections.Counter[str]:
    """Counts the tokens of all texts."""
    counts: collections.Counter[str] = collections.Counter()
    for text in texts:
        counts.update(split_tokens(text))
    return counts


class SubwordLearner:
    """Learns pieces from the tokens of a corpus and their counts.

    Args:
        token_counts: the count of each token.
    """

    def __init__(self, token_counts: Mapping[str, int]) -> None:
        # Without the newline, because a piece is a line in the file, and without NUL,
        # which TensorFlow's `fast_wordpiece_tokenizer` does not accept as a piece.
        self._alphabet = ESCAPE_CHARACTERS.union(*token_counts, *_RESERVED)
        self._alphabet -= {"\n", "\0"}
        self._tokens = [
            (escape_token(token, self._alphabet), count)
            for token, count in token_counts.items()
        ]

    def learn_size(self, target_size: int) -> list[str]:
        """Returns about `target_size` pieces, in the order of their ids."""
        low, high = 1, _LARGEST_MINIMUM
        tried: list[list[str]] = []
        while True:
            minimum = (low + high) // 2
            pieces = self.learn(minimum)
            tried.append(pieces)
            is_close = abs(len(pieces) - target_size) * 100 < target_size
            if is_close or low >= high or minimum < 2:
                return min(tried, key=lambda pieces: abs(len(pieces) - target_size))
            if len(pieces) > target_size:
                low = minimum + 1
            else:
                high = minimum - 1

    def learn(self, minimum: int) -> list[str]:
        """Returns the pieces that occur at least `minimum` times, most frequent first.

        The first pieces are the single characters. Each iteration splits all tokens
        into the pieces of the previous iteration, and counts as candidates all
        substrings that begin where one of these pieces begins.
        """
        pieces: list[str] = list(self._alphabet)
        for _ in range(_ITERATIONS):
            pieces = self._select(self._count_candidates(set(pieces)), minimum)
        return [escape_token(token, self._alphabet) for token in _RESERVED] + pieces

    def _count_candidates(self, pieces: set[str]) -> dict[str, int]:
        """Counts every substring that begins where a piece begins."""
        longest = max(map(len, pieces))
        counts: dict[str, int] = collections.defaultdict(int)
        for token, count in self._tokens:
            start = 0
            for piece in split_pieces(token, pieces, longest):
                for end in range(start + 1, len(token) + 1):
                    counts[token[start:end]] += count
                start += len(piece)
        return counts

    def _select(self, counts: dict[str, int], minimum: int) -> list[str]:
        """Selects the frequent candidates, and the whole alphabet.

        It goes from the longest candidate to the shortest: the count of an accepted one
        is subtracted from those of its prefixes.
        """
        by_length: dict[int, list[str]] = collections.defaultdict(list)
        for candidate, count in counts.items():
            if count >= minimum:
                by_length[len(candidate)].append(candidate)
        accepted = []
        for length in sorted(by_length, reverse=True):
            for candidate in by_length[length]:
                count = counts[candidate]
                if count < minimum:
                    continue
                if candidate not in self._alphabet:
                    accepted.append((count, candidate))
                for end in range(1, length):
                    counts[candidate[:end]] -= count
        accepted += [(counts.get(c, 0), c) for c in self._alphabet]
        return [piece for _, piece in sorted(accepted, reverse=True)]
