"""Checksums of files and of texts."""

import hashlib
from pathlib import Path

from t2t_keras.errors import UserError


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's bytes, as `sha256sum` prints it.

    Raises:
        UserError: the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def hash_64(content: bytes) -> int:
    """Returns a hash of 64 bits."""
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
