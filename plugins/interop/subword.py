"""The tokenizer with tensor2tensor's subword vocabularies and ids."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from t2t_keras.errors import UserError
from t2t_keras.text.vocabulary import EOS, text_ids

from .subword_pieces import (
    ESCAPE_CHARACTERS,
    SYMBOL_MARK,
    escape_token,
    join_tokens,
    load_pieces,
    save_pieces,
    spellings,
    split_pieces,
    split_tokens,
    symbol_of_piece,
    unescape_token,
)

if TYPE_CHECKING:
    from .subword_graph import SubwordGraph

_CACHED_TOKENS = 1 << 20


class SubwordTokenizer:
    r"""A tokenizer with a vocabulary made by tensor2tensor or `train_subwords`.

    A text is split into tokens between letters or numbers and other characters; a
    single space between two words is implied. A token ends with "_" and is split
    greedily into the longest matching pieces; characters outside the vocabulary are
    escaped as code points. There is no unknown piece.

    A vocabulary may have symbols, which tensor2tensor lacks: words that are one piece
    wherever spaces surround them. The piece of `/NP` is `\</NP>_`.

    Args:
        path: the `.subwords` file: one quoted piece per line, in the order of ids.

    Raises:
        UserError: the file is missing, is not UTF-8 or lacks a piece that some texts
            need.
    """

    suffix: ClassVar[str] = ".subwords"
    # Training is slow, so it uses only some of the pairs.
    training_pairs: ClassVar[int] = 50_000

    def __init__(self, path: Path) -> None:
        self.pieces = load_pieces(path)
        self.symbols: dict[str, int] = {}
        self._ids: dict[str, int] = {}
        for piece_id, piece in enumerate(self.pieces):
            symbol = symbol_of_piece(piece)
            if symbol is not None:
                self.symbols[symbol] = piece_id
            elif piece:
                self._ids[piece] = piece_id
        self._spellings = spellings(self.pieces)
        self.alphabet = ESCAPE_CHARACTERS.union(*self._ids)
        missing = sorted(self.alphabet - self._ids.keys())
        if missing:
            raise UserError(
                f"{path} is not a subword vocabulary (tensor2tensor's "
                "SubwordTextEncoder): it has no piece for the single character "
                f"{missing[0]!r}"
            )
        self._max_length = max(map(len, self._ids))
        self._cache: dict[str, list[int]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    @staticmethod
    def train(
        texts: Iterable[str],
        path: Path,
        vocab_size: int,
        symbols: Sequence[str] = (),
    ) -> None:
        """Trains a vocabulary; see `train_subwords`."""
        from .subword_training import train_subwords

        train_subwords(texts, path, vocab_size, symbols)

    @property
    def vocab_size(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

    def token_bytes(self) -> list[bytes]:
        """Raises `UserError`: the next token decides whether a space follows."""
        raise UserError(
            "forbidden: phrases can be forbidden with SentencePiece vocabularies, and "
            "this one is tensor2tensor's; leave it out"
        )

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, which end with EOS."""
        if not self.symbols:
            return [*self._spell(text), EOS]
        ids = []
        groups = itertools.groupby(text.split(" "), self.symbols.__contains__)
        for is_symbol, words in groups:
            if is_symbol:
                ids += [self.symbols[word] for word in words]
            else:
                ids += self._spell(" ".join(words))
        return [*ids, EOS]

    def _spell(self, text: str) -> list[int]:
        """Returns the ids of a text without symbols."""
        ids = []
        for token in split_tokens(text):
            if token not in self._cache:
                if len(self._cache) >= _CACHED_TOKENS:
                    self._cache.clear()
                escaped = escape_token(token, self.alphabet)
                pieces = split_pieces(escaped, self._ids, self._max_length)
                self._cache[token] = [self._ids[piece] for piece in pieces]
            ids += self._cache[token]
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes each text like `encode`."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids before the first EOS."""
        spelled = "".join(self._spellings[i] for i in text_ids(ids, self.vocab_size))
        words = []
        groups = itertools.groupby(
            filter(None, spelled.split("_")),
            lambda token: token.startswith(SYMBOL_MARK),
        )
        for is_symbol, tokens in groups:
            if is_symbol:
                words += [token.removeprefix(SYMBOL_MARK) for token in tokens]
            else:
                words.append(join_tokens(list(map(unescape_token, tokens))))
        return " ".join(words)

    def graph(self) -> "SubwordGraph":
        """Returns this tokenizer as TensorFlow operations."""
        from .subword_graph import SubwordGraph

        return SubwordGraph(self.pieces, self.alphabet, list(self.symbols))

    def save(self, path: Path) -> None:
        """Writes the vocabulary file as tensor2tensor writes it."""
        save_pieces(self.pieces, path)
