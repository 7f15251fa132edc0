"""The interface of tokenizers, in Python and in the TensorFlow graph.

`tokenizer_class` finds a class by name; `load_tokenizer` reads a vocabulary file.
"""

import abc
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.text.vocabulary import EOS, PAD, text_ids

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf


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


# Suffixes that other programs give to vocabulary files: `spm_train` writes
# SentencePiece's models as `.model`.
_OTHER_SUFFIXES = {".model": ".spm"}


def vocabulary_suffix(path: Path) -> str:
    """Returns the `Tokenizer.suffix` of a file, which its name may not have."""
    return _OTHER_SUFFIXES.get(Path(path).suffix, Path(path).suffix)


def tokenizer_classes() -> Iterator[tuple[str, type[Tokenizer]]]:
    """Yields the tokenizer classes, each with its name in `Problem.tokenizer`."""
    # `t2t list` imports this module, and does not need the library.
    from t2t_keras.text.sentence_piece import SentencePieceTokenizer

    yield "sentencepiece", SentencePieceTokenizer
    yield from load_plugins("tokenizers").items()


def tokenizer_class(name: str) -> type[Tokenizer]:
    """Returns the tokenizer class with a name.

    Raises:
        UserError: there is none.
    """
    names = []
    for class_name, cls in tokenizer_classes():
        if class_name == name:
            return cls
        names.append(class_name)
    raise UserError(f"tokenizer must be one of {', '.join(names)}, not '{name}'")


def load_tokenizer(path: Path, suffix: str | None = None) -> Tokenizer:
    """Loads a tokenizer, whose class follows from the suffix of its file.

    Args:
        path: a `.spm` or `.model` file (SentencePiece), or one with the suffix of a
            plugin.
        suffix: the suffix of the class, if the file has another one.

    Raises:
        UserError: there is no such file, or it is not a vocabulary of that class.
    """
    suffix = suffix or vocabulary_suffix(path)
    suffixes = []
    for _, cls in tokenizer_classes():
        if cls.suffix == suffix:
            return cls(Path(path))
        suffixes.append(cls.suffix)
    raise UserError(
        f"{path}: a vocabulary file ends in {', '.join(suffixes)}, or in .model if it "
        "is SentencePiece's; there is no reader of other kinds, such as "
        "tensor2tensor's vocabularies of whole tokens or of BPE"
    )


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
