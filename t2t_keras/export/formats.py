"""The formats of `t2t export`, and the directory that an export is written to.

Formats are SavedModel, and those of plugins. Every export has a file `SHA256SUMS` with
the checksums of its other files, which `sha256sum -c SHA256SUMS` verifies too.
"""

import contextlib
import dataclasses
import errno
import functools
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from t2t_keras.data.checksums import sha256
from t2t_keras.data.console import say
from t2t_keras.data.json_files import read_json
from t2t_keras.data.locks import lock
from t2t_keras.data.regular_files import refuse_links
from t2t_keras.data.schema import from_fields
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError, first_line
from t2t_keras.pointer_files import require_fetched_file

SUMS = "SHA256SUMS"
SETTINGS = "t2t_export.json"


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
        load: returns a translator of an export of this format, with the methods of
            `ExportedTranslator`; None: only other programs run it. If it needs
            TensorFlow, it imports it in the function.
        convert: returns the export of a run's checkpoint, for given decoding options,
            and writes it into the run directory at the first call. It raises
            `UserError` if TensorFlow must run the checkpoint. None: it always must.
    """

    summary: str
    export: Callable[..., int]
    holds: Callable[[Path], bool]
    quantizations: tuple[str, ...] = ()
    options: tuple[str, ...] | None = None
    check: Callable[[], None] = lambda: None
    load: Callable[[Path], Any] | None = None
    convert: Callable[[Path, str | None, dict[str, Any]], Path] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """The settings of an export, `t2t_export.json`. A format may have more.

    Attributes:
        version: the version of this package that wrote it.
        problem: the name of the problem.
        languages: the language codes of source and target; None: unknown.
        hparams: the hyper-parameters of the model.
        decoding: the decoding options, as `DecodingOptions.recorded` returns them.
        quantization: the dtype to which the weights are rounded; None: float32.
        verified: the number of sentences with which it was verified.
        identical: how many of their outputs were those of the run.
    """

    version: str
    problem: str
    languages: list[str] | None = None
    hparams: dict[str, Any] = dataclasses.field(default_factory=dict)
    decoding: dict[str, Any] = dataclasses.field(default_factory=dict)
    quantization: str | None = None
    verified: int = 0
    identical: int = 0

    @classmethod
    def read(cls, export_dir: Path) -> Self | None:
        """Returns the settings of an export; None if it has none.

        Raises:
            UserError: the file is damaged.
        """
        path = export_dir / SETTINGS
        fields = read_json(path, "export the model again")
        return None if fields is None else from_fields(cls, fields, path)


def is_saved_model(path: Path) -> bool:
    """Returns whether a directory holds a SavedModel."""
    return (path / "saved_model.pb").exists()


def _export_saved_model(*args: object, **options: object) -> int:
    from t2t_keras.export.saved_model import export_saved_model

    return export_saved_model(*args, **options)  # type: ignore[arg-type]


def _load_saved_model(path: Path) -> Any:
    from t2t_keras.export.saved_model_loader import load_translator

    return load_translator(path)


def export_formats() -> dict[str, ExportFormat]:
    """Returns the formats by the names for `--format`."""
    saved_model = ExportFormat(
        "a TensorFlow SavedModel, from strings to strings",
        _export_saved_model,
        is_saved_model,
        ("int8", "float16", "bfloat16"),
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
    names = export_formats()[export_format].quantizations
    if name is not None and name not in names:
        raise UserError(
            f"--quantization: --format {export_format} has no {name}; the choice is "
            f"{', '.join(names) or 'float32 alone'}"
        )


def find_loader(path: Path) -> Callable[[Path], Any] | None:
    """Returns the `load` of the format of an export; None if it has none."""
    for export_format in export_formats().values():
        if export_format.holds(path):
            return export_format.load
    return None


def converted(
    run: Path, checkpoint: str | None, options: dict[str, Any]
) -> tuple[Path, str | None]:
    """Returns what to load for a run, and which checkpoint of it.

    It is the run itself, or an export for a faster engine, which has no checkpoints.

    One line on standard error says which engine it is.

    Args:
        run: the run directory.
        checkpoint: see `t2t_keras.load`.
        options: the decoding options that are given.
    """
    reasons = []
    for name, export_format in export_formats().items():
        if export_format.convert:
            try:
                path = export_format.convert(run, checkpoint, options)
                say(f"engine: {name} ({path})")
                return path, None
            except UserError as error:
                reasons.append(str(error).partition(";")[0])
    say(f"engine: TensorFlow ({', '.join(reasons) or 'no other is installed'})")
    return run, checkpoint


def require_export(path: str | Path) -> None:
    """Refuses a directory without an export that can be loaded.

    Raises:
        UserError: there is none.
    """
    if find_loader(Path(path)) is None:
        raise UserError(f"--export_dir: {path} has no saved_model.pb or other export")


def require_intact(path: Path) -> None:
    """Refuses an export that has changed since it was written.

    Raises:
        UserError: a file differs from its checksum. Exports of earlier versions have no
            checksums.
    """
    if (path / SUMS).exists():
        require_fetched_file(path / SUMS)
    for name, expected in checksums(path):
        if not (path / name).is_file() or sha256(path / name) != expected:
            require_fetched_file(path / name)
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
    if not any(format_.holds(path) for format_ in export_formats().values()):
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
        UserError: another process is writing this export, or the disk is full.
    """
    work = path.with_name(f".{path.name}.incomplete")
    new = work / "new"
    old = work / "old"
    refusal = UserError(
        f"--export_dir: another process is writing {path}; wait for it, or name "
        "another directory"
    )
    try:
        if work.is_symlink():
            refuse_links(work)
        with lock(work / "lock", lambda holder: refusal):
            try:
                refuse_links(work)
                shutil.rmtree(new, ignore_errors=True)
                shutil.rmtree(old, ignore_errors=True)
                yield new
                files = sorted(file for file in new.rglob("*") if file.is_file())
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
        raise UserError(
            f"--export_dir: cannot write {path}: {reason}; nothing was exported; name "
            "another directory, or free space there"
        ) from None


def size_of(path: Path) -> int:
    """Returns the total size in bytes of the files of an export."""
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
