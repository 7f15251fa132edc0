"""The interface of tokenizers, in Python and in the TensorFlow graph."""

import itertools
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.pointer_files import require_fetched

if TYPE_CHECKING:
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


def read_vocabulary(path: Path) -> bytes:
    """Returns the content of a vocabulary file.

    Raises:
        UserError: it cannot be read.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise UserError(
            f"cannot read the vocabulary {path}: {error.strerror}"
        ) from None
    require_fetched(str(path), content)
    return content


def write_vocabulary(path: Path, content: bytes) -> None:
    """Writes a vocabulary file atomically."""
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:  # a new file, and no link
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


# The suffixes that other programs give to files of some kinds: `spm_train` writes
# SentencePiece's models as `.model`.
_OTHER_SUFFIXES = {".model": ".spm"}


def vocabulary_suffix(path: Path) -> str:
    """Returns the suffix of a vocabulary file's kind, which its name may not have."""
    return _OTHER_SUFFIXES.get(Path(path).suffix, Path(path).suffix)


def tokenizer_kinds() -> Iterator[tuple[str, type[Tokenizer]]]:
    """Yields the kinds of tokenizers, each with its name in `Problem.tokenizer`."""
    from t2t_keras.text.sentence_piece import SentencePieceTokenizer

    yield "sentencepiece", SentencePieceTokenizer
    yield from load_plugins("tokenizers").items()


def tokenizer_kind(name: str) -> type[Tokenizer]:
    """Returns the kind of tokenizers that has a name.

    Raises:
        UserError: there is none.
    """
    for known, kind in tokenizer_kinds():
        if known == name:
            return kind
    names = ", ".join(known for known, _ in tokenizer_kinds())
    raise UserError(f"tokenizer must be one of {names}, not '{name}'")


def load_tokenizer(path: Path, suffix: str | None = None) -> Tokenizer:
    """Loads a tokenizer, whose kind follows from the suffix of its file.

    Args:
        path: a `.spm` or `.model` file (SentencePiece), or one with the suffix of a
            plugin.
        suffix: the suffix of the kind, if the file has another one.

    Raises:
        UserError: there is no such file, or it is not a vocabulary of that kind.
    """
    suffix = suffix or vocabulary_suffix(path)
    for _, kind in tokenizer_kinds():
        if kind.suffix == suffix:
            return kind(Path(path))
    known = ", ".join(kind.suffix for _, kind in tokenizer_kinds())
    raise UserError(
        f"{path}: a vocabulary file ends in {known}, or in .model if it is "
        "SentencePiece's; there is no reader of other "
        "kinds, such as tensor2tensor's vocabularies of whole tokens or of BPE"
    )


def text_ids(ids: Sequence[int], vocab_size: int) -> list[int]:
    """Returns the ids before the first EOS, without PAD and unknown ids."""
    before_end = itertools.takewhile(EOS.__ne__, map(int, ids))
    return [token for token in before_end if PAD < token < vocab_size]


def words_of_tokens(tokenizer: Tokenizer, ids: Sequence[int]) -> list[int | None]:
    """Returns the number of each token's word, from 0; None for EOS.

    A token belongs to the word of the first character that it adds to the text of the
    tokens before it, or, if it adds only white space, to the word after that, if there
    is one. So this needs nothing of a tokenizer but `decode`; words are what white
    space separates in the text.

    Args:
        tokenizer: the tokenizer.
        ids: the ids of a text; those after the first EOS have no word.
    """
    end = list(ids).index(EOS) if EOS in ids else len(ids)
    words: list[int | None] = [None] * len(ids)
    before = ""
    for place in range(end):
        text = tokenizer.decode(ids[: place + 1])
        # The earlier text is not a prefix if the token completes a character.
        pairs = zip(before, text, strict=False)
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)
        added = text[len(list(same)) :].lstrip()
        if added:
            through = text[: len(text) - len(added) + 1]
            words[place] = len(through.split()) - 1
        before = text
    for place in reversed(range(end - 1)):
        if words[place] is None:
            words[place] = words[place + 1]
    return words
