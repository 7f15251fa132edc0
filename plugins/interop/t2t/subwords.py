"""The tokenizer with tensor2tensor's SubwordTextEncoder: its rules and its files.

A text is first split into tokens, and each token is then split into the units of the
vocabulary, which are called pieces here and subtokens in tensor2tensor.
"""

import io
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import decoded_lines
from t2t_keras.text.vocabulary import EOS, read_vocabulary, text_ids, write_vocabulary

if TYPE_CHECKING:
    from ..tokenizer_graphs import SubwordGraph


# Escapes consist of these characters.
ESCAPE_CHARACTERS = frozenset("\\_u;0123456789")

# This character replaces an escaped code point that does not exist.
UNDEFINED = "\u3013"

# The piece of a symbol encloses it. In an escaped text, no backslash precedes "<".
SYMBOL_START = "\\<"
SYMBOL_END = ">_"

# This marks a symbol while pieces are joined; no piece contains it.
SYMBOL_MARK = "\n"

# A token is a run of letters and numbers, or of other characters. The underscore is one
# of the others, although Python's \w has it.
_RUN = re.compile(r"[^\W_]+|[\W_]+")
_ESCAPE = re.compile(r"\\u|\\\\|\\([0-9]+);")


def symbol_piece(symbol: str) -> str:
    """Returns the piece for a symbol."""
    return f"{SYMBOL_START}{symbol}{SYMBOL_END}"


def symbol_of_piece(piece: str) -> str | None:
    """Returns the symbol that a piece stands for; None: it stands for none."""
    if piece.startswith(SYMBOL_START) and piece.endswith(SYMBOL_END):
        return piece[len(SYMBOL_START) : -len(SYMBOL_END)]
    return None


def spellings(pieces: Iterable[str]) -> list[str]:
    """Returns the string that each piece contributes when pieces are joined.

    A symbol is always a separate token, even if the previous token has no end.
    """
    strings = []
    for piece in pieces:
        symbol = symbol_of_piece(piece)
        strings.append(piece if symbol is None else f"_{SYMBOL_MARK}{symbol}_")
    return strings


def load_pieces(path: Path) -> list[str]:
    """Reads the pieces of a vocabulary file, in the order of their ids.

    Raises:
        UserError: the file cannot be read, or is not UTF-8.
    """
    lines = decoded_lines(io.BytesIO(read_vocabulary(path)), str(path))
    return [_unquote(line) for line in lines]


def _unquote(line: str) -> str:
    # Only ASCII spaces are stripped, since a piece may end with another space.
    line = line.rstrip(" \t\r")
    if line[:1] in ("'", '"') and line[0] == line[-1]:
        return line[1:-1]
    return line


def save_pieces(pieces: Iterable[str], path: Path) -> None:
    """Writes a vocabulary file."""
    write_vocabulary(path, "".join(f"'{piece}'\n" for piece in pieces).encode())


def split_tokens(text: str) -> list[str]:
    """Splits a text between letters or numbers and other characters.

    A token that is a single space is omitted, except at the start and at the end.
    """
    tokens = _RUN.findall(text)
    inner_tokens = [token for token in tokens[1:-1] if token != " "]
    return [*tokens[:1], *inner_tokens, *tokens[1:][-1:]]


def join_tokens(tokens: Sequence[str]) -> str:
    """Joins tokens, with a space between two words; the inverse of `split_tokens`."""
    text = ""
    for previous, token in itertools.pairwise(["", *tokens]):
        if previous[:1].isalnum() and token[0].isalnum():
            text += " "
        text += token
    return text


def escape_token(token: str, alphabet: Iterable[str]) -> str:
    r"""Escapes the characters of a token that are not in the alphabet, and adds "_".

    A backslash becomes `\\`, an underscore `\u`, and any other character outside the
    alphabet its decimal code point: `\12354;`.
    """
    token = token.replace("\\", "\\\\").replace("_", "\\u")
    escaped = [char if char in alphabet else f"\\{ord(char)};" for char in token]
    return "".join(escaped) + "_"


def unescape_token(token: str) -> str:
    """Undoes `escape_token` for a token without its final "_"."""
    return _ESCAPE.sub(_escaped_character, token)


def _escaped_character(match: re.Match[str]) -> str:
    """Returns the character that an escape stands for."""
    digits = match[1]
    if digits is None:
        return "_" if match[0] == "\\u" else "\\"
    digits = digits.lstrip("0")
    # Python refuses to convert strings of thousands of digits.
    code = int(digits or 0) if len(digits) <= 7 else 0x110000
    is_surrogate = 0xD800 <= code < 0xE000
    return UNDEFINED if code >= 0x110000 or is_surrogate else chr(code)


def split_pieces(escaped: str, pieces: Iterable[str], max_length: int) -> list[str]:
    """Splits a token greedily into the longest matching pieces.

    Args:
        escaped: a token from `escape_token`.
        pieces: a set or mapping of pieces that has all characters of the token.
        max_length: length of the longest piece.
    """
    split = []
    start = 0
    while start < len(escaped):
        stop = min(len(escaped), start + max_length)
        while escaped[start:stop] not in pieces:
            stop -= 1
        split.append(escaped[start:stop])
        start = stop
    return split


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
        from ..tokenizer_graphs import SubwordGraph

        return SubwordGraph(self.pieces, self.alphabet, list(self.symbols))

    def save(self, path: Path) -> None:
        """Writes the vocabulary file as tensor2tensor writes it."""
        save_pieces(self.pieces, path)
