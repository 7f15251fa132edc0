"""The checksums of an export.

Every export has a file `SHA256SUMS` with the checksums of its other files, which
`sha256sum -c SHA256SUMS` verifies as well.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from t2t_keras.data.checksums import sha256
from t2t_keras.errors import UserError

SUMS = "SHA256SUMS"


def require_intact(path: Path) -> None:
    """Refuses an export that has changed since it was written.

    Raises:
        UserError: a file differs from its checksum. Exports of earlier versions have no
            checksums.
    """
    for name, expected in checksums(path):
        if not (path / name).is_file() or sha256(path / name) != expected:
            raise _damaged(path, name)


def checksums(path: Path) -> list[tuple[str, str]]:
    """Returns the files of an export with their SHA-256; none for earlier versions'."""
    if not (path / SUMS).exists():
        return []
    lines = (path / SUMS).read_text("utf-8", "replace").strip().split("\n")
    parts = (line.partition("  ") for line in lines)
    return [(name, expected) for expected, _, name in parts]


def require_checksum(
    path: Path, name: str, content: bytes, expected: Mapping[str, str]
) -> None:
    """Refuses what has been read of a file of an export, if it has changed.

    Args:
        path: the directory of the export.
        name: the file in it.
        content: what has been read.
        expected: the checksums from before, by name.

    Raises:
        UserError: the content does not have its checksum.
    """
    if name in expected and hashlib.sha256(content).hexdigest() != expected[name]:
        raise _damaged(path, name)


def _damaged(path: Path, name: str) -> UserError:
    return UserError(
        f"--export_dir: {path} is damaged: {name or SUMS} is missing or does not have "
        "its checksum; copy or export the model again"
    )
