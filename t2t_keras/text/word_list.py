"""The base of tokenizers that look up the words of a text in a list."""

import abc
from collections.abc import Iterable, Sequence

from t2t_keras.text.tokenizer import EOS, text_ids


class WordListTokenizer(abc.ABC):
    """A tokenizer whose tokens are words, which white space separates in a text.

    Args:
        pieces: the tokens in the order of their ids.
    """

    def __init__(self, pieces: Iterable[str]) -> None:
        self.pieces = list(pieces)

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self.pieces)

    def token_bytes(self) -> list[bytes]:
        """Returns what each token adds to a text: a space and the word."""
        return [f" {piece}".encode() for piece in self.pieces]

    @abc.abstractmethod
    def split_words(self, text: str) -> list[str]:
        """Returns the words of a text."""

    @abc.abstractmethod
    def word_id(self, word: str) -> int:
        """Returns the id of a word."""

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, EOS last."""
        return [*map(self.word_id, self.split_words(text)), EOS]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes every text as `encode` does."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the tokens before the first EOS, separated by spaces."""
        return " ".join(self.pieces[i] for i in text_ids(ids, self.vocab_size))
