"""The tokenizer of a model without vocabularies: its texts are ids."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import ClassVar, NoReturn

from t2t_keras.errors import UserError
from t2t_keras.text.tokenizer import EOS, GraphTokenizer, text_ids


class IdTokenizer:
    """A `Tokenizer` whose texts are ids, with a space between two of them.

    Args:
        vocab_size: the number of ids.
    """

    suffix: ClassVar[str] = ".ids"
    training_pairs: ClassVar[int] = 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    @staticmethod
    def train(
        texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str] = ()
    ) -> NoReturn:
        """Raises `UserError`."""
        _refuse()

    @property
    def pieces(self) -> list[str]:
        """The ids as texts."""
        return list(map(str, range(self.vocab_size)))

    def token_bytes(self) -> list[bytes]:
        """Returns what each token adds to a text."""
        return [f" {piece}".encode() for piece in self.pieces]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, EOS last."""
        return [*map(int, text.split()), EOS]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes every text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the ids before the first EOS as a text."""
        return " ".join(map(str, text_ids(ids, self.vocab_size)))

    def graph(self) -> GraphTokenizer:
        """Raises `UserError`."""
        _refuse()

    def save(self, path: Path) -> None:
        """Raises `UserError`."""
        _refuse()


def _refuse() -> NoReturn:
    raise UserError("the model has no vocabularies: its inputs and outputs are ids")
