"""The interface of tokenizers, in Python and in the TensorFlow graph."""

import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

# The ids that mean the same in every vocabulary. tensor2tensor's vocabularies have no
# unknown token: there, 2 is a token like any other.
PAD = 0
EOS = 1
UNK = 2


class GraphTokenizer(Protocol):
    """A tokenizer made of TensorFlow operations, and a `tf.Module`.

    It returns the same ids and texts as the Python tokenizer, runs on the CPU, and is
    saved in the SavedModel of any object that has it as an attribute.
    """

    def encode(self, texts: "tf.Tensor") -> "tf.RaggedTensor":
        """Turns strings [B] into int32 ids [B, (T)], each row ending in EOS."""

    def decode(self, ids: "tf.Tensor") -> "tf.Tensor":
        """Turns ids [B, T] into strings [B], as `Tokenizer.decode` does."""


class Tokenizer(Protocol):
    """Turns a line of text into ids and back; it can be pickled.

    Attributes:
        suffix: the suffix of its vocabulary file, such as ".spm".
        training_pairs: number of pairs from whose texts `t2t datagen` trains a
            vocabulary.
    """

    suffix: ClassVar[str]
    training_pairs: ClassVar[int]

    def __init__(self, path: Path) -> None:
        """Loads a vocabulary file; raises `UserError` if it is not of this kind."""

    @staticmethod
    def train(
        texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str] = ()
    ) -> None:
        """Trains a vocabulary and writes its file; equal texts give equal files.

        Args:
            texts: training lines.
            path: the file to write.
            vocab_size: number of tokens.
            symbols: words that are always one token.

        Raises:
            UserError: the texts or symbols do not suit, or this kind is not trained.
        """

    @property
    def vocab_size(self) -> int:
        """Number of ids, PAD and EOS included."""

    @property
    def pieces(self) -> list[str]:
        """The strings of the tokens, in the order of their ids."""

    def token_bytes(self) -> list[bytes]:
        """Returns what each token adds to a text, in the order of their ids.

        Raises:
            UserError: this depends on the tokens around it.
        """

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, EOS last."""

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes every text as `encode` does, but faster."""

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids before the first EOS.

        PAD and ids outside the vocabulary are ignored.
        """

    def graph(self) -> GraphTokenizer:
        """Returns this tokenizer as TensorFlow operations."""

    def save(self, path: Path) -> None:
        """Writes the vocabulary file, which `load_tokenizer` reads."""


def text_ids(ids: Sequence[int], vocab_size: int) -> list[int]:
    """Returns the ids before the first EOS, without PAD and unknown ids."""
    before_end = itertools.takewhile(EOS.__ne__, map(int, ids))
    return [token for token in before_end if PAD < token < vocab_size]


def padded_rows(
    rows: Sequence[Sequence[int]], width: int | None = None
) -> "np.ndarray":
    """Returns rows of ids as int32 [B, T], padded with PAD.

    Args:
        rows: the ids.
        width: T; None: the length of the longest row.
    """
    import numpy as np

    if width is None:
        width = max(map(len, rows), default=0)
    array = np.full((len(rows), width), PAD, np.int32)
    for row, ids in zip(array, rows, strict=True):
        row[: len(ids)] = ids
    return array
