"""Tokenizers with tensor2tensor's vocabularies of whole tokens and of bytes.

`TokenTokenizer` is its `TokenTextEncoder`, and `ByteTokenizer` its `ByteTextEncoder`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from t2t_keras.errors import UserError
from t2t_keras.text.tokenizer import WordListTokenizer
from t2t_keras.text.vocabulary import (
    EOS,
    UNK,
    read_vocabulary,
    text_ids,
    write_vocabulary,
)

if TYPE_CHECKING:
    from ..tokenizer_graphs import ByteGraph, TokenGraph


# These are the names of PAD and EOS.
RESERVED = ("<pad>", "<EOS>")
BYTES = 256
_BYTE_NAMES = (*RESERVED, *(f"<0x{byte:02X}>" for byte in range(BYTES)))


class TokenTokenizer(WordListTokenizer):
    """A tokenizer that splits texts at white space and looks up the tokens.

    A token outside the vocabulary gets the id 2.

    Args:
        path: the `.tokens` file: one token per line, in the order of ids.

    Raises:
        UserError: the file is missing, is not UTF-8 or is not such a vocabulary.
    """

    suffix: ClassVar[str] = ".tokens"
    training_pairs: ClassVar[int] = 1

    def __init__(self, path: Path) -> None:
        super().__init__(read_tokens(path))
        if tuple(self.pieces[: len(RESERVED)]) != RESERVED or len(self.pieces) <= UNK:
            raise UserError(
                f"{path} is not a vocabulary of tokens: its lines must begin with "
                f"{', '.join(RESERVED)} and the unknown token"
            )
        ids: dict[str, int] = {}
        for token_id, token in enumerate(self.pieces):
            if token in ids:
                raise UserError(f"{path} has the token '{token}' twice")
            ids[token] = token_id
        # The names of PAD and EOS are unknown tokens in a text.
        self._ids = {token: i for token, i in ids.items() if i >= UNK}

    @staticmethod
    def train(
        texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str] = ()
    ) -> None:
        """Raises `UserError`: a vocabulary of tokens cannot be trained."""
        raise UserError(
            f"a vocabulary of whole tokens is not trained; write {path}, or give one "
            "by --vocab"
        )

    def split_words(self, text: str) -> list[str]:
        """Returns what white space separates."""
        return text.split()

    def word_id(self, word: str) -> int:
        """Returns the id of a token, or UNK."""
        return self._ids.get(word, UNK)

    def graph(self) -> "TokenGraph":
        """Returns this tokenizer as TensorFlow operations."""
        from ..tokenizer_graphs import TokenGraph

        return TokenGraph(self.pieces)

    def save(self, path: Path) -> None:
        """Writes the vocabulary file."""
        write_tokens(self.pieces, path)


class ByteTokenizer:
    """A tokenizer whose tokens are the bytes of a text in UTF-8.

    The id of a byte is its value plus 2.

    Args:
        path: the `.bytes` file with the names of the 258 tokens; None: no file is read.

    Raises:
        UserError: the file is missing or has other content.
    """

    suffix: ClassVar[str] = ".bytes"
    training_pairs: ClassVar[int] = 1

    def __init__(self, path: Path | None = None) -> None:
        if path and tuple(read_tokens(path)) != _BYTE_NAMES:
            raise UserError(f"{path} is not the vocabulary of bytes; write it again")
        self.pieces = list(_BYTE_NAMES)

    @staticmethod
    def train(
        texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str] = ()
    ) -> None:
        """Writes the file, whose content is always the same.

        Args:
            texts: not used.
            path: the `.bytes` file to write.
            vocab_size: must be 258.
            symbols: must be empty.

        Raises:
            UserError: there are symbols, or the size is not 258.
        """
        if symbols:
            raise UserError(
                f"a vocabulary of bytes has no symbols such as '{symbols[0]}'; leave "
                "them out"
            )
        if vocab_size != len(_BYTE_NAMES):
            raise UserError(
                f"a vocabulary of bytes has {len(_BYTE_NAMES)} tokens, not "
                f"{vocab_size}; leave out --vocab_size"
            )
        write_tokens(_BYTE_NAMES, path)

    @property
    def vocab_size(self) -> int:
        """Number of tokens: 258."""
        return len(self.pieces)

    def token_bytes(self) -> list[bytes]:
        """Returns the byte of each token."""
        reserved = [b""] * len(RESERVED)
        return reserved + [bytes([byte]) for byte in range(BYTES)]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, which end with EOS."""
        encoded = text.encode("utf-8", "surrogatepass")
        ids = [byte + len(RESERVED) for byte in encoded]
        return [*ids, EOS]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes each text like `encode`."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids before the first EOS."""
        values = [i - len(RESERVED) for i in text_ids(ids, self.vocab_size)]
        return bytes(values).decode("utf-8", "replace")

    def graph(self) -> "ByteGraph":
        """Returns this tokenizer as TensorFlow operations."""
        from ..tokenizer_graphs import ByteGraph

        return ByteGraph(self.token_bytes())

    def save(self, path: Path) -> None:
        """Writes the vocabulary file."""
        write_tokens(_BYTE_NAMES, path)


def read_tokens(path: Path) -> list[str]:
    """Returns the lines of a vocabulary file, without surrounding white space.

    Raises:
        UserError: the file cannot be read, or is not UTF-8.
    """
    try:
        text = read_vocabulary(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8, so not a vocabulary") from None
    return [line.strip() for line in text.removesuffix("\n").split("\n")]


def write_tokens(tokens: Iterable[str], path: Path) -> None:
    """Writes a vocabulary file with one token per line."""
    write_vocabulary(path, "".join(f"{token}\n" for token in tokens).encode())
