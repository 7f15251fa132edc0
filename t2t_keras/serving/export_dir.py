"""The directory of an export: whether it may be written, and how it appears whole."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.lock import lock


def is_export(path: Path) -> bool:
    """Returns whether a directory holds a SavedModel."""
    return (path / "saved_model.pb").exists()


def require_free(path: Path, overwrite: bool) -> None:
    """Refuses a path where an export would replace something.

    Args:
        path: where the export is to be.
        overwrite: whether it may replace an earlier export.

    Raises:
        UserError: the path is taken.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not is_export(path):
        raise UserError(
            f"--export_dir: {path} exists and is not a SavedModel; name another "
            "directory"
        )
    if not overwrite:
        raise UserError(
            f"--export_dir: {path} holds an export; name another directory, or give "
            "--overwrite to replace it"
        )


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Gives the directory to write; it takes its place, as a whole, at the end.

    It is made in `.NAME.incomplete` beside its place. That name is always the same, so
    that the next export removes what a killed one has left.

    Args:
        path: where the directory is to be; what is there now is replaced.

    Yields:
        The path to write, which does not exist yet.

    Raises:
        UserError: another process is writing there.
    """
    work = path.with_name(f".{path.name}.incomplete")
    new, old = work / "new", work / "old"
    refusal = UserError(
        f"--export_dir: another process is writing {path}; wait for it, or name "
        "another directory"
    )
    with lock(work / "lock", lambda holder: refusal):
        try:
            shutil.rmtree(new, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
            yield new
            if path.exists():
                path.rename(old)
            new.rename(path)
        finally:
            shutil.rmtree(work)
