"""The special ids and pieces of vocabularies, and how a file is read and written."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.files.atomic import atomic
from t2t_keras.files.text_files import require_fetched

# The ids that mean the same in every vocabulary. tensor2tensor's vocabularies have no
# unknown token: there, 2 is a token like any other.
PAD = 0
EOS = 1
UNK = 2

SPACE = "\u2581"  # SentencePiece's space, with which a word begins
# SentencePiece writes a space as U+2581 and decodes that character as a space. So in
# the texts that it encodes this character is escaped, as is the escape character
# itself. Decoding undoes the escapes in reverse order.
ESCAPES = (("\x1b", "\x1b0"), (SPACE, "\x1b1"))
# The piece for the newline's byte, which does not occur in a line of text.
NEWLINE_PIECE = "<0x0A>"


def text_ids(ids: Sequence[int], vocab_size: int) -> list[int]:
    """Returns the ids before the first EOS, without PAD and unknown ids."""
    before_end = itertools.takewhile(EOS.__ne__, map(int, ids))
    return [token for token in before_end if PAD < token < vocab_size]


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
    with atomic(Path(path)) as incomplete:
        incomplete.write_bytes(content)
