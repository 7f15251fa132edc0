"""Converts a run's checkpoint for CTranslate2 into the run directory."""

import os
import shutil
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.export.directory import UnwritableExport
from t2t_keras.export.verify import Verification
from t2t_keras.files.atomic import lock
from t2t_keras.options import OptionValues
from t2t_keras.run.directory import RunDirectory

from .conversions import Conversion, conversion_of
from .ctranslate2_model import export_ctranslate2

_SENTENCES = 20  # for verifying a conversion
_KEPT = 3  # conversions of a run


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


def _write(path: Path, conversion: Conversion) -> None:
    """Writes a conversion, and deletes all but the newest."""
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
