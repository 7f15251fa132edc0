"""Trains tensor2tensor's subword vocabulary."""

import collections
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.text.subword import (
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
    max_piece_length: int | None = None,
    symbols: Sequence[str] = (),
) -> None:
    """Learns a vocabulary of about `vocab_size` pieces and writes it.

    The least count of a piece is found by bisection such that the size is within 1 % of
    `vocab_size`. It takes a minute or two for a million words.

    Args:
        texts: training lines.
        path: the `.subwords` file to write.
        vocab_size: approximate number of pieces; a small corpus gives fewer.
        max_piece_length: the most characters in a piece; None: no limit.
            tensor2tensor's `max_subtoken_length` is one more.
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
    counts = count_tokens(_without(texts, unique))
    if not counts and not unique:
        raise UserError(f"no text to train the vocabulary {path} on")
    learner = SubwordLearner(counts, max_piece_length)
    pieces = learner.learn_size(max(vocab_size - len(unique), 1))
    special = len(_RESERVED)
    pieces[special:special] = map(symbol_piece, unique)
    save_pieces(pieces, path)


def _without(texts: Iterable[str], symbols: Container[str]) -> Iterator[str]:
    """Yields the texts without the symbols."""
    for text in texts:
        if symbols:
            text = " ".join(word for word in text.split(" ") if word not in symbols)
        yield text


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
        max_piece_length: the most characters in a piece; None: no limit.
    """

    def __init__(
        self, token_counts: Mapping[str, int], max_piece_length: int | None = None
    ) -> None:
        # Without the newline, because a piece is a line in the file.
        self._alphabet = ESCAPE_CHARACTERS.union(*token_counts, *_RESERVED) - {"\n"}
        self._tokens = [
            (escape_token(token, self._alphabet), count)
            for token, count in token_counts.items()
        ]
        self._max_piece_length = max_piece_length

    def learn_size(self, target_size: int) -> list[str]:
        """Returns about `target_size` pieces, in the order of their ids."""
        low, high = 1, _LARGEST_MINIMUM
        best: list[str] = []
        while True:
            minimum = (low + high) // 2
            pieces = self.learn(minimum)
            if not best or _is_closer(pieces, best, target_size):
                best = pieces
            is_close = abs(len(pieces) - target_size) * 100 < target_size
            if is_close or low >= high or minimum < 2:
                return best
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
        limit = self._max_piece_length
        counts: dict[str, int] = collections.defaultdict(int)
        for token, count in self._tokens:
            start = 0
            for piece in split_pieces(token, pieces, longest):
                last = len(token) if limit is None else min(len(token), start + limit)
                for end in range(start + 1, last + 1):
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


def _is_closer(pieces: list[str], best: list[str], target_size: int) -> bool:
    """Returns whether `pieces` is closer to the target size than `best`."""
    return abs(len(pieces) - target_size) < abs(len(best) - target_size)
