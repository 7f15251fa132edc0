"""The encoders that tensor2tensor's problems make and name, and their vocabularies.

tensor2tensor has them in `text_encoder` and `generator_utils`.
"""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

from t2t_keras.console import say
from t2t_keras.errors import UserError, quantity
from t2t_keras.files.text_files import read_lines
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.vocabulary import EOS as _EOS_ID
from t2t_keras.text.vocabulary import PAD as _PAD_ID

from ..t2t.subword_training import train_subwords
from ..t2t.subwords import SubwordTokenizer
from ..t2t.tokens import RESERVED, ByteTokenizer, read_tokens, write_tokens
from . import say_once
from .files import (
    FILE_BYTE_BUDGET,
    Dataset,
    generate_lines_for_vocab,
    txt_line_iterator,
)

PAD = RESERVED[_PAD_ID]
EOS = RESERVED[_EOS_ID]
PAD_ID = _PAD_ID
EOS_ID = _EOS_ID
RESERVED_TOKENS = list(RESERVED)
NUM_RESERVED_TOKENS = len(RESERVED_TOKENS)
RESERVED_TOKENS_BYTES = [token.encode() for token in RESERVED_TOKENS]

# This token gets the id 2 in vocabularies without an `oov_token`.
_UNKNOWN = "<UNK>"


class EncodedText(list[int]):
    """The ids of a text, and the text.

    Attributes:
        text: the text that was encoded.
        encoder: the encoder.
    """

    def __init__(self, ids: Iterable[int], text: str, encoder: "TextEncoder") -> None:
        super().__init__(ids)
        self.text = text
        self.encoder = encoder

    def __add__(self, ids: list[int]) -> "EncodedText":  # type: ignore[override]
        return EncodedText([*self, *ids], self.text, self.encoder)


class TextEncoder:
    """The base class of encoders.

    Attributes:
        tokenizer: the value of `Problem.tokenizer`; None: the encoder is a user's, and
            no tokenizer here is like it.
    """

    tokenizer: str | None = None

    def __init__(self, num_reserved_ids: int = NUM_RESERVED_TOKENS) -> None:
        self._num_reserved_ids = num_reserved_ids

    @property
    def num_reserved_ids(self) -> int:
        """Number of reserved ids, which come first."""
        return self._num_reserved_ids

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        raise NotImplementedError

    def encode(self, s: str) -> list[int]:
        """Returns the ids of a text, without EOS."""
        raise NotImplementedError

    def decode(self, ids: Sequence[int], strip_extraneous: bool = False) -> str:
        """Returns the text of ids."""
        raise NotImplementedError

    def write(self, path: Path) -> None:
        """Writes the vocabulary as a file of the tokenizer."""
        raise NotImplementedError


class _TokenizerEncoder(TextEncoder):
    """An encoder with one of our tokenizers."""

    _tokenizer: Tokenizer

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return self._tokenizer.vocab_size

    def encode(self, s: str) -> list[int]:
        """Returns the ids of a text, without EOS."""
        text = to_unicode(s)
        return EncodedText(self._tokenizer.encode(text)[:-1], text, self)

    def decode(self, ids: Sequence[int], strip_extraneous: bool = False) -> str:
        """Returns the text of ids."""
        return self._tokenizer.decode(ids)

    def write(self, path: Path) -> None:
        """Writes the vocabulary as a file of the tokenizer."""
        self._tokenizer.save(path)


class ByteTextEncoder(_TokenizerEncoder):
    """Encodes the bytes of a text."""

    tokenizer = "t2t_bytes"

    def __init__(self, num_reserved_ids: int = NUM_RESERVED_TOKENS) -> None:
        super().__init__(num_reserved_ids)
        self._tokenizer = ByteTokenizer()


class SubwordTextEncoder(_TokenizerEncoder):
    """Encodes a text with a vocabulary of subwords.

    Args:
        filename: the vocabulary file.
    """

    tokenizer = "t2t_subword"

    def __init__(self, filename: str | None = None) -> None:
        super().__init__()
        self.filename = filename
        if filename is not None:
            self._tokenizer = SubwordTokenizer(Path(filename))

    @classmethod
    def build_from_generator(
        cls,
        generator: Iterable[str],
        target_size: int,
        max_subtoken_length: int | None = None,
        reserved_tokens: Sequence[str] | None = None,
    ) -> Self:
        """Trains a vocabulary; see `train_vocab`."""
        import tempfile

        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / "vocab.subwords"
            train_vocab(
                generator, path, target_size, max_subtoken_length, reserved_tokens
            )
            encoder = cls(str(path))
        encoder.filename = None
        return encoder

    def store_to_file(self, filename: str, add_single_quotes: bool = True) -> None:
        """Writes the vocabulary file."""
        self.write(Path(filename))


def train_vocab(
    texts: Iterable[str | bytes],
    path: Path,
    vocab_size: int,
    max_subtoken_length: int | None,
    reserved_tokens: Sequence[str] | None,
) -> None:
    """Trains a vocabulary and writes the file that tensor2tensor writes.

    Prints the number of texts, and why the file differs from tensor2tensor's if it
    does.

    Raises:
        UserError: there is no text, or a reserved token is not a word.
    """
    reserved = tuple(reserved_tokens or RESERVED)
    symbols = reserved[len(RESERVED) :]
    if reserved[: len(RESERVED)] != RESERVED:
        raise UserError(f"reserved_tokens must begin with {', '.join(RESERVED)}")
    if symbols:
        say_once(
            f"{path.name} is not tensor2tensor's: the reserved tokens "
            f"{', '.join(symbols)} are one token wherever spaces surround them, and "
            "tensor2tensor splits them"
        )
    counted = _counted(map(to_unicode, texts), path.name)
    train_subwords(counted, path, vocab_size, symbols, max_subtoken_length)


def _counted(texts: Iterable[str], name: str) -> Iterator[str]:
    """Yields the texts of a vocabulary, and then prints their number."""
    total = 0
    for text in texts:
        total += 1
        if "\n" in text or "\0" in text:
            say_once(
                f"{name} is not tensor2tensor's: no piece has the newlines and NULs "
                "that are in the texts"
            )
        yield text
    say(f"training {name} on {quantity(total, 'lines')}")


class TokenTextEncoder(TextEncoder):
    """Encodes tokens that are separated by white space.

    Args:
        vocab_filename: the file of the vocabulary, with one token per line.
        reverse: must be false.
        vocab_list: the tokens without the reserved ones, instead of a file.
        replace_oov: the token that replaces tokens outside the vocabulary.
        num_reserved_ids: must be 2.
    """

    tokenizer = "t2t_tokens"

    def __init__(
        self,
        vocab_filename: str | None,
        reverse: bool = False,
        vocab_list: Sequence[str] | None = None,
        replace_oov: str | None = None,
        num_reserved_ids: int = NUM_RESERVED_TOKENS,
    ) -> None:
        super().__init__(num_reserved_ids)
        if reverse or num_reserved_ids != NUM_RESERVED_TOKENS:
            raise UserError(
                "TokenTextEncoder: reverse and num_reserved_ids do not exist here; "
                "leave them out"
            )
        if vocab_filename:
            tokens = read_tokens(Path(vocab_filename))
        elif vocab_list is not None:
            tokens = list(RESERVED)
            tokens += [token for token in vocab_list if token not in RESERVED]
        else:
            raise UserError("TokenTextEncoder: give vocab_filename or vocab_list")
        self._name = vocab_filename or "vocab_list"
        if replace_oov is not None and replace_oov not in tokens:
            say_once(
                f"{self._name} lacks the unknown token '{replace_oov}'; it is added"
            )
            tokens.append(replace_oov)
        self._tokens = tokens
        self._ids = {token: i for i, token in enumerate(tokens)}
        self._unknown = replace_oov

    @property
    def vocab_size(self) -> int:
        """Number of ids."""
        return len(self._tokens)

    def encode(self, s: str) -> list[int]:
        """Returns the ids of a text, without EOS."""
        text = to_unicode(s)
        ids = []
        for token in text.split():
            if token in self._ids:
                ids.append(self._ids[token])
            elif self._unknown is not None:
                ids.append(self._ids[self._unknown])
            else:
                raise UserError(
                    f"{self._name} lacks the token '{token:.80}'; add it, or give "
                    "an oov_token (TokenTextEncoder's replace_oov)"
                )
        return EncodedText(ids, text, self)

    def decode(self, ids: Sequence[int], strip_extraneous: bool = False) -> str:
        """Returns the text of ids."""
        min_id = NUM_RESERVED_TOKENS if strip_extraneous else 0
        tokens = [self._tokens[i] for i in ids if min_id <= i < len(self._tokens)]
        return " ".join(tokens)

    def store_to_file(self, filename: str) -> None:
        """Writes the vocabulary file."""
        write_tokens(self._tokens, Path(filename))

    def write(self, path: Path) -> None:
        """Writes the vocabulary as a file of the tokenizer."""
        unknown = self._unknown or _UNKNOWN
        # An empty line is not a token, since white space separates tokens.
        excluded = {*RESERVED, unknown, ""}
        tokens = [token for token in self._tokens if token not in excluded]
        written = [*RESERVED, unknown, *dict.fromkeys(tokens)]
        if written != self._tokens:
            say_once(
                f"{self._name}: the ids are not tensor2tensor's, since '{unknown}' for "
                f"unknown tokens has the id {len(RESERVED)}"
            )
        write_tokens(written, path)


def to_unicode(s: str | bytes, ignore_errors: bool = False) -> str:
    """Returns a text as a string."""
    if isinstance(s, bytes):
        return s.decode("utf-8", "ignore" if ignore_errors else "strict")
    return s


def to_unicode_ignore_errors(s: str | bytes) -> str:
    """Returns a text as a string, without bytes that are not UTF-8."""
    return to_unicode(s, ignore_errors=True)


native_to_unicode = to_unicode_utf8 = to_unicode


def unicode_to_native(s: str) -> str:
    """Returns the text."""
    return s


def is_unicode(s: object) -> bool:
    """Returns whether an object is a string."""
    return isinstance(s, str)


def strip_ids(ids: Sequence[int], ids_to_strip: Iterable[int]) -> list[int]:
    """Returns ids without the given ids at the end."""
    excluded = set(ids_to_strip)
    stripped = list(ids)
    while stripped and stripped[-1] in excluded:
        stripped.pop()
    return stripped


def get_or_generate_vocab_inner(
    data_dir: str | None,
    vocab_filename: str | None,
    vocab_size: int,
    generator: Iterable[str],
    max_subtoken_length: int | None = None,
    reserved_tokens: Sequence[str] | None = None,
) -> SubwordTextEncoder:
    """Returns the vocabulary in a file, which is trained and written if it is missing.

    Without a directory or a name, it is trained and not written.
    """
    if not (data_dir and vocab_filename):
        return SubwordTextEncoder.build_from_generator(
            generator, vocab_size, max_subtoken_length, reserved_tokens
        )
    path = Path(data_dir) / vocab_filename
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        train_vocab(generator, path, vocab_size, max_subtoken_length, reserved_tokens)
    return SubwordTextEncoder(str(path))


def get_or_generate_vocab(
    data_dir: str,
    tmp_dir: str,
    vocab_filename: str,
    vocab_size: int,
    sources: Iterable[Dataset],
    file_byte_budget: float = FILE_BYTE_BUDGET,
    max_subtoken_length: int | None = None,
) -> SubwordTextEncoder:
    """Returns a vocabulary, which is trained on archives if it is missing."""
    texts = generate_lines_for_vocab(tmp_dir, sources, file_byte_budget)
    return get_or_generate_vocab_inner(
        data_dir, vocab_filename, vocab_size, texts, max_subtoken_length
    )


def get_or_generate_txt_vocab(
    data_dir: str,
    vocab_filename: str,
    vocab_size: int,
    filepatterns: str | Iterable[str],
) -> SubwordTextEncoder:
    """Returns a vocabulary, which is trained on text files if it is missing."""
    patterns = [filepatterns] if isinstance(filepatterns, str) else filepatterns
    texts = _lines_of_files(patterns)
    return get_or_generate_vocab_inner(data_dir, vocab_filename, vocab_size, texts)


def _lines_of_files(patterns: Iterable[str]) -> Iterator[str]:
    for pattern in patterns:
        for path in sorted(glob.glob(pattern)):
            for line in read_lines(path):
                yield line.strip()


def get_or_generate_tabbed_vocab(
    data_dir: str,
    tmp_dir: str,
    source_filename: str,
    index: int,
    vocab_filename: str,
    vocab_size: int,
) -> SubwordTextEncoder:
    """Returns a vocabulary, which is trained on a column of a file if it is missing."""
    lines = txt_line_iterator(os.path.join(tmp_dir, source_filename))
    texts = (line.split("\t", 1)[index].strip() for line in lines if "\t" in line)
    return get_or_generate_vocab_inner(data_dir, vocab_filename, vocab_size, texts)
