"""The rules of tensor2tensor's SubwordTextEncoder, and its vocabulary files.

A text is first split into tokens, and each token is then split into the units of the
vocabulary, which are called pieces here and subtokens in tensor2tensor.
"""

import io
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from t2t_keras.files.text_files import decoded_lines
from t2t_keras.text.vocabulary import read_vocabulary, write_vocabulary

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
