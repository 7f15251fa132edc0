"""The directory that an export is written to: it appears as a whole or not at all.

Every export has a file `SHA256SUMS` with the checksums of its other files, which
`sha256sum -c SHA256SUMS` verifies as well.
"""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError, first_line, require_readable_name
from t2t_keras.files.atomic import lock
from t2t_keras.files.json_files import sha256

SUMS = "SHA256SUMS"


def require_intact(path: Path) -> None:
    """Refuses an export that has changed since it was written.

    Raises:
        UserError: a file differs from its checksum, or there are no checksums.
    """
    if not (path / SUMS).is_file():
        raise UserError(
            f"--export_dir: {path} has no {SUMS}: `t2t export` did not write it, or "
            "the file was not copied; copy or export the model again"
        )
    for name, expected in checksums(path):
        if not (path / name).is_file() or sha256(path / name) != expected:
            raise _damaged(path, name)


def checksums(path: Path) -> list[tuple[str, str]]:
    """Returns the files of an export with their SHA-256; none before it is complete."""
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
        f"{path} is damaged: {name or SUMS} is missing or does not have "
        "its checksum; copy or export the model again"
    )


class UnwritableExport(UserError):
    """An export cannot be written now, which says nothing about its model."""


def is_saved_model(path: Path) -> bool:
    """Returns whether a directory holds a SavedModel."""
    return (path / "saved_model.pb").exists()


def _is_export(path: Path) -> bool:
    """Returns whether a directory holds an export of any format."""
    if is_saved_model(path):
        return True
    formats = load_plugins("exports").values()
    return any(export_format.holds(path) for export_format in formats)


def require_free(path: Path, overwrite: bool) -> None:
    """Refuses a path at which an export would replace something.

    Args:
        path: the directory of the new export.
        overwrite: whether the new export may replace an earlier one.

    Raises:
        UserError: the path is taken.
    """
    require_readable_name("--export_dir", path)
    if not path.name:  # the export is renamed to its name, which . and / lack
        raise UserError(f"--export_dir: {path} has no name; name another directory")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not _is_export(path):
        raise UserError(
            f"--export_dir: {path} exists and is not an export; name another directory"
        )
    if not overwrite:
        raise UserError(
            f"--export_dir: {path} holds an export; name another directory, or give "
            "--overwrite to replace it"
        )


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Replaces a directory as a whole at the end of the `with` block.

    The new directory is written to `.NAME.incomplete` next to it. That name is always
    the same, so that the next export removes what a killed one has left.

    Args:
        path: the directory to replace.

    Yields:
        The path to write to, which does not exist yet.

    Raises:
        UnwritableExport: another process is writing this export, or the disk is full.
    """
    work = path.with_name(f".{path.name}.incomplete")
    new = work / "new"
    old = work / "old"
    refusal = UnwritableExport(
        f"--export_dir: another process is writing {path}; wait for it, or name "
        "another directory"
    )
    try:
        with lock(work / "lock", lambda holder: refusal):
            try:
                shutil.rmtree(new, ignore_errors=True)
                shutil.rmtree(old, ignore_errors=True)
                yield new
                files = sorted(path for path in new.rglob("*") if path.is_file())
                sums = [
                    f"{sha256(f)}  {f.relative_to(new).as_posix()}\n" for f in files
                ]
                (new / SUMS).write_text("".join(sums), encoding="utf-8")
                if path.exists():
                    path.rename(old)
                new.rename(path)
            finally:
                # NFS keeps the open lock file under another name until it is closed.
                shutil.rmtree(work, ignore_errors=True)
        with contextlib.suppress(OSError):
            work.rmdir()
    except Exception as error:
        # TensorFlow and other libraries have their own errors for a full disk.
        full = os.strerror(errno.ENOSPC)
        if full not in str(error) and not isinstance(error, OSError):
            raise
        reason = full if full in str(error) else first_line(error)
        raise UnwritableExport(
            f"--export_dir: cannot write {path}: {reason}; nothing was exported; name "
            "another directory, or free space there"
        ) from None


def size_of(path: Path) -> int:
    """Returns the total size in bytes of the files of an export."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
