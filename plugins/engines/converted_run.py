"""Which runs CTranslate2 translates, and their conversions in the run directory.

Neither TensorFlow nor CTranslate2 is imported before it is needed, so that a converted
run answers in a second, and one that TensorFlow must translate needs no CTranslate2.
"""

import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.devices import visible_gpus
from t2t_keras.errors import UserError
from t2t_keras.exporting.directory import SUMS, UnwritableExport, require_intact
from t2t_keras.exporting.settings import SETTINGS
from t2t_keras.files.atomic import lock
from t2t_keras.files.json_files import read_json, sha256
from t2t_keras.options import OptionValues
from t2t_keras.run.config import CheckpointPaths, RunConfig

_SENTENCES = 20  # for verifying a conversion
_KEPT = 3  # conversions of a run


class Conversion(NamedTuple):
    """The conversion of a checkpoint, which need not exist yet.

    Attributes:
        checkpoint: the path of the checkpoint.
        export: the directory of the export, `RUN/engines/ctranslate2-CHECKSUM`.
        default: the decoding options of the problem, which the export records.
    """

    checkpoint: Path
    export: Path
    default: DecodingOptions

    def is_current(self, is_trusted: bool = False) -> bool:
        """Returns whether the export is complete and has the problem's options.

        Args:
            is_trusted: whether checksums are not compared, which takes time.
        """
        if not (self.export / SUMS).exists():
            return False
        try:
            if not is_trusted:
                require_intact(self.export)
        except UserError:
            return False
        written = read_json(self.export / SETTINGS) or {}
        return bool(written.get("decoding") == self.default.recorded())

    @property
    def refusal(self) -> Path:
        """The file that says why the checkpoint cannot be converted."""
        return self.export.with_suffix(".refused")

    def refuse(self, reason: str) -> None:
        """Records why the checkpoint cannot be converted, so that it is tried once.

        Where nothing can be written, it is tried again.
        """
        with contextlib.suppress(OSError):
            text = f"{self._circumstances()}\n{reason}\n"
            self.refusal.write_text(text, encoding="utf-8")

    def raise_refusal(self) -> None:
        """Raises the `UserError` of an earlier call in the same circumstances."""
        if not self.refusal.exists():
            return
        circumstances, _, reason = self.refusal.read_text("utf-8").partition("\n")
        if circumstances == self._circumstances():
            raise UserError(reason.strip())

    def _circumstances(self) -> str:
        """Returns the versions and the problem's options, as one line of JSON."""
        names = ("t2t_keras", "ctranslate2")
        versions = {name: importlib.metadata.version(name) for name in names}
        return json.dumps([versions, self.default.recorded()], sort_keys=True)


def conversion_of(
    run: Path, checkpoint: str | None, options: OptionValues, is_asked: bool = False
) -> Conversion:
    """Returns the conversion of a run's checkpoint.

    See `ExportFormat.convert` for the arguments.

    Raises:
        UserError: CTranslate2 is not installed, TensorFlow must run the checkpoint, or
            there is no checkpoint.
    """
    if importlib.util.find_spec("ctranslate2") is None:
        raise UserError("CTranslate2 is not installed")
    from .ctranslate2_engine import require_supported

    if checkpoint == "ema":
        raise UserError("--checkpoint=ema is part of a checkpoint")
    if not is_asked and _has_gpu():
        raise UserError("there is a GPU")
    problem = RunConfig.read(run).registered_problem()
    default = DecodingOptions.of_problem(problem)
    resolved = dataclasses.replace(default, **options)
    require_supported(resolved)
    # CTranslate2 draws different samples and has another rule for n-grams.
    for name in ("sampling", "no_repeat_ngram"):
        if getattr(resolved, name) and not is_asked:
            raise UserError(f"{name} differs in CTranslate2")
    if problem.text_processor.repairs_outputs:
        raise UserError(f"outputs of problem '{problem.name}' are repaired")
    max_positions = default.max_source_length + default.extra_length
    if resolved.max_source_length + resolved.extra_length > max_positions:
        raise UserError(f"more than {max_positions} positions are not converted")
    path = CheckpointPaths(run).find(checkpoint)
    # The index has the checksums of all weights.
    digest = sha256(Path(f"{path}.index"))[:12]
    conversion = Conversion(path, run / "engines" / f"ctranslate2-{digest}", default)
    conversion.raise_refusal()
    return conversion


def convert(
    path: Path,
    checkpoint: str | None,
    options: OptionValues,
    is_asked: bool = False,
) -> Path:
    """Returns the export of a checkpoint, which the first call writes.

    See `ExportFormat.convert` for the arguments. The newest conversions of the run are
    kept.

    Raises:
        UserError: TensorFlow must run the checkpoint, there is no checkpoint, or the
            run directory cannot be written.
    """
    conversion = conversion_of(path, checkpoint, options, is_asked)
    if conversion.is_current():
        return conversion.export
    engines = conversion.export.parent
    try:
        # Other processes wait for the first one.
        with lock(engines / "convert.lock", None):
            conversion.raise_refusal()  # of another process
            if not conversion.is_current():
                _write(path, conversion)
    except OSError as error:
        raise UserError(f"{engines} cannot be written ({error.strerror})") from None
    return conversion.export


def find_converted(
    path: Path,
    checkpoint: str | None,
    options: OptionValues,
    is_asked: bool = False,
) -> Path | None:
    """Returns what `convert` has written; see `ExportFormat.find_converted`."""
    # Only TensorFlow knows whether there is a GPU, and this is before its import.
    if not is_asked and "tensorflow" not in sys.modules and visible_gpus():
        return None
    conversion = conversion_of(path, checkpoint, options, is_asked)
    return conversion.export if conversion.is_current(is_trusted=True) else None


def _write(path: Path, conversion: Conversion) -> None:
    """Writes a conversion, and deletes all but the newest."""
    from t2t_keras.exporting.verify import Verification
    from t2t_keras.run.directory import RunDirectory

    from .ctranslate2_export import export_ctranslate2

    shutil.rmtree(conversion.export, ignore_errors=True)
    run = RunDirectory(path)
    verification = Verification(run.example_sources(_SENTENCES))
    translator = run.translator(conversion.checkpoint)
    try:
        export_ctranslate2(translator, conversion.export, verify=verification)
    except UnwritableExport:
        raise  # the next call may succeed
    except UserError as error:
        conversion.refuse(str(error))
        raise
    exports = conversion.export.parent.glob("ctranslate2-????????????")
    for old in sorted(exports, key=os.path.getmtime)[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def _has_gpu() -> bool:
    """Returns whether TensorFlow has a GPU."""
    if "tensorflow" not in sys.modules and not visible_gpus():
        return False  # TensorFlow need not be imported
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))
