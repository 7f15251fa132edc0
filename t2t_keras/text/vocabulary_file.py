"""Reads and writes vocabulary files."""

import os
import secrets
from pathlib import Path

from t2t_keras.data.text_files import require_fetched
from t2t_keras.errors import UserError


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
