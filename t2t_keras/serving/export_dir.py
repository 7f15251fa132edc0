"""The directory of an export: refused if it is in use, and written atomically."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from t2t_keras.errors import UserError
from t2t_keras.lock import lock

# The dtypes to which an export rounds the weights, which are float32.
Quantization = Literal["int8", "float16", "bfloat16", "int16", "int8_float16"]
QUANTIZATIONS = {
    "savedmodel": ("int8", "float16", "bfloat16"),
    "ctranslate2": ("int8", "float16", "int16", "int8_float16"),
    "hf-marian": (),
}


def is_export(path: Path) -> bool:
    """Returns whether a directory holds a SavedModel."""
    return (path / "saved_model.pb").exists()


def is_ctranslate2(path: Path) -> bool:
    """Returns whether a directory holds a CTranslate2 model."""
    return (path / "model.bin").exists() and (path / "config.json").exists()


def is_hf_marian(path: Path) -> bool:
    """Returns whether a directory holds a model of Hugging Face transformers."""
    return (path / "model.safetensors").exists() and (path / "config.json").exists()


def require_export(path: str | Path) -> None:
    """Refuses a directory that holds no SavedModel.

    Raises:
        UserError: there is none.
    """
    if not is_export(Path(path)):
        raise UserError(f"--export_dir: {path} has no saved_model.pb")


def require_quantization(name: str | None, export_format: str) -> None:
    """Refuses a dtype of weights that a format does not have.

    Args:
        name: the dtype; None: float32.
        export_format: a key of `QUANTIZATIONS`.

    Raises:
        UserError: the format does not have it.
    """
    known = QUANTIZATIONS[export_format]
    if name is not None and name not in known:
        raise UserError(
            f"--quantization: --format {export_format} has no {name}; the choice is "
            f"{', '.join(known) or 'float32 alone'}"
        )


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
    if not (is_export(path) or is_ctranslate2(path) or is_hf_marian(path)):
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
