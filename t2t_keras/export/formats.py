"""The formats of `t2t export`: SavedModel, and those of plugins."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from t2t_keras.option import UserError, plugins


@dataclasses.dataclass(frozen=True)
class ExportFormat:
    """A format of exports, registered as an entry point of `t2t_keras.exports`.

    Attributes:
        summary: one phrase for the help of `--format`.
        export: writes a `Translator` to a directory and returns the size in bytes. Its
            arguments are those of `saved_model.export_saved_model`.
        holds: returns whether a directory holds an export of this format.
        quantizations: the dtypes to which weights can be rounded, besides float32.
        options: the names of the decoding options that the export keeps; None: all.
        check: raises `UserError` if a package is missing.
    """

    summary: str
    export: Callable[..., int]
    holds: Callable[[Path], bool]
    quantizations: tuple[str, ...] = ()
    options: tuple[str, ...] | None = None
    check: Callable[[], None] = lambda: None


def is_saved_model(path: Path) -> bool:
    """Returns whether a directory holds a SavedModel."""
    return (path / "saved_model.pb").exists()


def _export_saved_model(*args: object, **options: object) -> int:
    from t2t_keras.export.saved_model import export_saved_model

    return export_saved_model(*args, **options)  # type: ignore[arg-type]


def export_formats() -> dict[str, ExportFormat]:
    """Returns the formats by the names for `--format`."""
    saved_model = ExportFormat(
        "a TensorFlow SavedModel, from strings to strings",
        _export_saved_model,
        is_saved_model,
        ("int8", "float16", "bfloat16"),
    )
    return {"savedmodel": saved_model, **plugins("exports")}


def require_quantization(name: str | None, export_format: str) -> None:
    """Refuses a dtype of weights that a format does not have.

    Args:
        name: the dtype; None: float32.
        export_format: a name of `export_formats`.

    Raises:
        UserError: the format does not have it.
    """
    known = export_formats()[export_format].quantizations
    if name is not None and name not in known:
        raise UserError(
            f"--quantization: --format {export_format} has no {name}; the choice is "
            f"{', '.join(known) or 'float32 alone'}"
        )
