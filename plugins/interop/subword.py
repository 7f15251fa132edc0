"""tensor2tensor's SubwordTextEncoder, with its vocabulary files and ids.

A text is first split into tokens, and each token is then split into the units of the
vocabulary, which are called pieces here and subtokens in tensor2tensor.
"""

import io
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from t2t_keras.data.text_files import decoded_lines
from t2t_keras.errors import UserError
from t2t_keras.text.tokenizer import EOS, text_ids
from t2t_keras.text.vocabulary_file import read_vocabulary, write_vocabulary

if TYPE_CHECKING:
    from .subword_graph import SubwordGraph

# The characters that escapes in tokens consist of.
ESCAPE_CHARACTERS = frozenset("\\_u;0123456789")

# Replaces a code point that does not exist.
UNDEFINED = "\u3013"

# A run of letters and numbers, or of other characters. Python's \w also has "_".
_RUN = re.compile(r"[^\W_]+|[\W_]+")
_ESCAPE = re.compile(r"\\u|\\\\|\\([0-9]+);")

_CACHED_TOKENS = 1 << 20

# Enclose a symbol in its piece. An escaped text has no backslash before "<".
SYMBOL_START, SYMBOL_END = "\\<", ">_"
SYMBOL_MARK = "\n"  # marks a symbol while pieces are joined; no piece contains it


class SubwordTokenizer:
    r"""A tokenizer with a vocabulary made by tensor2tensor or `train_subwords`.

    A text is split into tokens between letters or numbers and other characters; a
    single space between two words is implied. A token ends in "_" and is split greedily
    into the longest matching pieces; characters outside the vocabulary are escaped by
    their code points. There is no unknown piece.

    tensor2tensor splits `/NP` in two. Here a vocabulary may have symbols: words that
    are one piece wherever spaces are around them. The piece for `/NP` is `\</NP>_`.

    Args:
        path: the `.subwords` file: one piece per line, in quotes, in the order of ids.

    Raises:
        UserError: the file is absent, is not UTF-8 or lacks a piece that some texts
            need.
    """

    suffix: ClassVar[str] = ".subwords"
    training_pairs: ClassVar[int] = 50_000  # training is slow

    def __init__(self, path: Path) -> None:
        lines = decoded_lines(io.BytesIO(read_vocabulary(path)), str(path))
        self.pieces = [_unquote(line) for line in lines]
        ids = {piece: i for i, piece in enumerate(self.pieces) if piece}
        self.symbols = {piece[2:-2]: i for piece, i in ids.items() if _is_symbol(piece)}
        self._ids = {p: i for p, i in ids.items() if not _is_symbol(p)}
        self._spellings = spellings(self.pieces)
        self.alphabet = ESCAPE_CHARACTERS.union(*self._ids)
        missing = sorted(self.alphabet - self._ids.keys())
        if missing:
            raise UserError(
                f"{path} is not a subword vocabulary (tensor2tensor's "
                "SubwordTextEncoder): it has no piece for the single character "
                f"{missing[0]!r}"
            )
        self._longest = max(map(len, self._ids))
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
        """Trains a vocabulary, see `train_subwords`."""
        from .subword_training import train_subwords

        train_subwords(texts, path, vocab_size, symbols)

    @property
    def vocab_size(self) -> int:
        """Number of pieces."""
        return len(self.pieces)

    def token_bytes(self) -> list[bytes]:
        """Raises `UserError`: whether a space follows depends on the next token."""
        raise UserError(
            "forbidden: phrases can be forbidden with SentencePiece vocabularies, and "
            "this one is tensor2tensor's; leave it out"
        )

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, EOS last."""
        ids = []
        for is_symbol, words in itertools.groupby(
            text.split(" ") if self.symbols else [text], self.symbols.__contains__
        ):
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
                self._cache[token] = [
                    self._ids[piece]
                    for piece in split_pieces(escaped, self._ids, self._longest)
                ]
            ids += self._cache[token]
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes every text as `encode` does."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of the ids before the first EOS."""
        spelled = "".join(self._spellings[i] for i in text_ids(ids, self.vocab_size))
        parts = []
        for is_symbol, tokens in itertools.groupby(
            filter(None, spelled.split("_")),
            lambda token: token.startswith(SYMBOL_MARK),
        ):
            if is_symbol:
                parts += [token.removeprefix(SYMBOL_MARK) for token in tokens]
            else:
                parts.append(join_tokens([unescape_token(token) for token in tokens]))
        return " ".join(parts)

    def graph(self) -> "SubwordGraph":
        """Returns this tokenizer as TensorFlow operations."""
        from .subword_graph import SubwordGraph

        return SubwordGraph(self.pieces, self.alphabet, list(self.symbols))

    def save(self, path: Path) -> None:
        """Writes the vocabulary file as tensor2tensor writes it."""
        save_pieces(self.pieces, path)


def symbol_piece(symbol: str) -> str:
    """Returns the piece for a symbol."""
    return f"{SYMBOL_START}{symbol}{SYMBOL_END}"


def spellings(pieces: Iterable[str]) -> list[str]:
    """Returns the string that each piece adds when pieces are joined.

    A symbol is always a separate token, even if the token before has no end.
    """
    return [f"_{SYMBOL_MARK}{p[2:-2]}_" if _is_symbol(p) else p for p in pieces]


def _is_symbol(piece: str) -> bool:
    """Returns whether a piece is a symbol's."""
    return piece.startswith(SYMBOL_START) and piece.endswith(SYMBOL_END)


def save_pieces(pieces: Iterable[str], path: Path) -> None:
    """Writes a vocabulary file."""
    write_vocabulary(path, "".join(f"'{piece}'\n" for piece in pieces).encode())


def split_tokens(text: str) -> list[str]:
    """Splits a text between letters or numbers and other characters.

    A token that is a single space is left out, except at the start and at the end.
    """
    tokens = _RUN.findall(text)
    last = len(tokens) - 1
    return [t for i, t in enumerate(tokens) if t != " " or i in (0, last)]


def join_tokens(tokens: Sequence[str]) -> str:
    """Joins tokens, with a space between two words; the inverse of `split_tokens`."""
    return "".join(
        f" {token}" if before[:1].isalnum() and token[0].isalnum() else token
        for before, token in itertools.pairwise(["", *tokens])
    )


def escape_token(token: str, alphabet: Iterable[str]) -> str:
    r"""Escapes the characters of a token that are not in the alphabet, and adds "_".

    A backslash becomes `\\`, an underscore `\u`, and any other character outside the
    alphabet its decimal code point: `\12354;`.
    """
    token = token.replace("\\", "\\\\").replace("_", "\\u")
    return "".join(c if c in alphabet else f"\\{ord(c)};" for c in token) + "_"


def unescape_token(token: str) -> str:
    """Undoes `escape_token`, for a token whose "_" is already removed."""
    return _ESCAPE.sub(_escaped_character, token)


def _escaped_character(match: re.Match[str]) -> str:
    """Returns the character that an escape stands for."""
    digits = match[1]
    if digits is None:
        return "_" if match[0] == "\\u" else "\\"
    digits = digits.lstrip("0")
    code = int(digits or 0) if len(digits) <= 7 else 0x110000
    is_character = code < 0x110000 and not 0xD800 <= code < 0xE000  # no surrogates
    return chr(code) if is_character else UNDEFINED


def split_pieces(escaped: str, pieces: Iterable[str], longest: int) -> list[str]:
    """Splits a token greedily into the longest matching pieces.

    Args:
        escaped: a token from `escape_token`.
        pieces: a set or mapping of pieces, with all characters of the token.
        longest: length of the longest piece.
    """
    split = []
    start = 0
    while start < len(escaped):
        end = min(len(escaped), start + longest)
        while escaped[start:end] not in pieces:
            end -= 1
        split.append(escaped[start:end])
        start = end
    return split


def _unquote(line: str) -> str:
    """Returns the piece in a line of a vocabulary file."""
    # Only ASCII spaces are stripped: a piece can end in another kind of space.
    line = line.rstrip(" \t\r")
    if line[:1] in ("'", '"') and line[0] == line[-1]:
        return line[1:-1]
    return line
