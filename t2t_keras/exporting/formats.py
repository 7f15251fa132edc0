"""The formats of `t2t export`: SavedModel, and the formats of plugins."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.console import folded, say
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.exporting.directory import is_saved_model
from t2t_keras.options import OptionValues
from t2t_keras.run.config import CheckpointPaths, RunConfig

if TYPE_CHECKING:
    from t2t_keras.exporting.settings import ExportedTranslator


# Those of a SavedModel, besides float32; see `StoredWeight`.
_DTYPES = ("int8", "float16", "bfloat16")


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
        load: returns the translator of an export of this format, with an engine that
            runs it; None: only other programs run it. If it needs TensorFlow, it
            imports it in the function.
        convert: returns the export of a run's checkpoint, for given decoding options,
            and writes it into the run directory at the first call. It raises
            `UserError` if TensorFlow must run the checkpoint, or if it is the better
            choice. The last argument is true if the user asks for the format's engine;
            the better choice does not matter then. None: TensorFlow must always run it.
        find_converted: returns what `convert` has written for these arguments, or None,
            without TensorFlow; it raises `UserError` as `convert` does.
    """

    summary: str
    export: Callable[..., int]
    holds: Callable[[Path], bool]
    quantizations: tuple[str, ...] = ()
    options: tuple[str, ...] | None = None
    check: Callable[[], None] = lambda: None
    load: "Callable[[Path], ExportedTranslator] | None" = None
    convert: Callable[[Path, str | None, OptionValues, bool], Path] | None = None
    find_converted: (
        Callable[[Path, str | None, OptionValues, bool], Path | None] | None
    ) = None


def _export_saved_model(*args: object, **options: object) -> int:
    from t2t_keras.exporting.saved_model import export_saved_model

    return export_saved_model(*args, **options)  # type: ignore[arg-type]


def _load_saved_model(path: Path) -> "ExportedTranslator":
    from t2t_keras.exporting.saved_model import load_translator

    return load_translator(path)


def export_formats() -> dict[str, ExportFormat]:
    """Returns the formats by the names for `--format`."""
    saved_model = ExportFormat(
        "a TensorFlow SavedModel, from strings to strings",
        _export_saved_model,
        is_saved_model,
        _DTYPES,
        load=_load_saved_model,
    )
    of_ids = dataclasses.replace(
        saved_model,
        summary="the same from ids to ids, which loads without TensorFlow Text",
        export=functools.partial(_export_saved_model, ids_only=True),
    )
    formats = {"savedmodel": saved_model, "savedmodel_ids": of_ids}
    return formats | load_plugins("exports")


def require_quantization(name: str | None, export_format: str) -> None:
    """Refuses a dtype of weights that a format does not have.

    Args:
        name: the dtype; None: float32.
        export_format: a name of `export_formats`.

    Raises:
        UserError: the format does not have it.
    """
    dtypes = export_formats()[export_format].quantizations
    if name is not None and name not in dtypes:
        raise UserError(
            f"--quantization: --format={export_format} has no {name}; the choice is "
            f"{', '.join(dtypes) or 'float32 alone'}"
        )


def find_loader(path: Path) -> "Callable[[Path], ExportedTranslator] | None":
    """Returns the `load` of the format of an export; None if it has none."""
    name = format_of(path)
    return export_formats()[name].load if name else None


def format_of(path: Path) -> str:
    """Returns the format of an export, as `t2t export --format`; "": it is none."""
    for name, export_format in export_formats().items():
        if export_format.holds(path):
            return name
    return ""


def engine_of(path: Path) -> str:
    """Returns the name of the library that runs an export, as for `--engine`."""
    return "tensorflow" if is_saved_model(path) else format_of(path)


def find_converted(
    run: Path, checkpoint: str | None, options: OptionValues, engine: str
) -> Path | None:
    """Returns what `converted` has written for a run before, without TensorFlow.

    It takes the arguments of `converted`.
    """
    for name, export_format in export_formats().items():
        if export_format.find_converted and engine in (name, "auto"):
            with contextlib.suppress(UserError):
                is_asked = engine == name
                return export_format.find_converted(run, checkpoint, options, is_asked)
    return None


def converted(
    run: Path, checkpoint: str | None, options: OptionValues, engine: str
) -> tuple[Path, str | None]:
    """Returns what to load for a run, and which checkpoint of it.

    It is the run itself, or an export for a faster engine, which has no checkpoints.

    One line on standard error says which engine it is, and where the export is.

    Args:
        run: the run directory.
        checkpoint: see `t2t_keras.load`.
        options: the decoding options that are given.
        engine: "auto", "tensorflow", or the name of a format, such as "ctranslate2".

    Raises:
        UserError: there is no such checkpoint, an option is impossible together with
            those of the problem, or the engine that is named cannot run the model.
    """
    if engine == "tensorflow":
        return run, checkpoint
    problem = RunConfig.read(run).registered_problem()
    dataclasses.replace(DecodingOptions.of_problem(problem), **options)
    checkpoint = CheckpointPaths(run).pinned(checkpoint)
    reasons = []
    for name, export_format in export_formats().items():
        if export_format.convert and engine in (name, "auto"):
            try:
                path = export_format.convert(run, checkpoint, options, engine == name)
                weights = Path(checkpoint).name
                choice = f"engine: {name}, with {weights} converted to {path}"
                exact = "--engine=tensorflow computes as in training"
                say(folded([choice, exact], "; ", line_end=";"))
                return path, None
            except UserError as error:
                reasons.append(str(error).partition(";")[0])
    if engine != "auto":
        reason = ", ".join(reasons) or "it is not installed"
        raise UserError(f"--engine={engine}: {reason}; leave out --engine")
    say(f"engine: TensorFlow ({', '.join(reasons) or 'no other is installed'})")
    return run, checkpoint


def require_export(path: str | Path) -> None:
    """Refuses a directory without an export that can be loaded.

    Raises:
        UserError: there is none.
    """
    if find_loader(Path(path)) is None:
        raise UserError(f"{path} has no saved_model.pb or other export")
