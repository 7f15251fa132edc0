"""The directory of an export: refused if it is in use, and written atomically."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from t2t_keras.data.files import lock
from t2t_keras.export.formats import export_formats, is_saved_model
from t2t_keras.option import UserError


def require_export(path: str | Path) -> None:
    """Refuses a directory that holds no SavedModel.

    Raises:
        UserError: there is none.
    """
    if not is_saved_model(Path(path)):
        raise UserError(f"--export_dir: {path} has no saved_model.pb")


def require_free(path: Path, overwrite: bool) -> None:
    """Refuses a path at which an export would replace something.

    Args:
        path: the directory of the new export.
        overwrite: whether the new export may replace an earlier one.

    Raises:
        UserError: the path is taken.
    """
    if not path.name:  # the export is renamed to its name, which . and / lack
        raise UserError(f"--export_dir: {path} has no name; name another directory")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not any(form.holds(path) for form in export_formats().values()):
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

    The new one is written to `.NAME.incomplete` beside it. That name is always the
    same, so that the next export removes what a killed one has left.

    Args:
        path: the directory to replace.

    Yields:
        The path to write to, which does not exist yet.

    Raises:
        UserError: another process is writing this export.
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
