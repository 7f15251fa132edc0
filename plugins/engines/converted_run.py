"""A run's checkpoint, converted for CTranslate2 into the run directory."""

import dataclasses
import shutil
from pathlib import Path

import tensorflow as tf

from t2t_keras.data.checksums import sha256
from t2t_keras.data.json_files import read_json
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.export.integrity import SUMS, require_intact
from t2t_keras.export.settings import SETTINGS
from t2t_keras.export.verify import Verification
from t2t_keras.options import OptionValues
from t2t_keras.run.directory import RunDirectory

from .ctranslate2_engine import require_supported
from .ctranslate2_model import export_ctranslate2

_SENTENCES = 20  # for verifying a conversion


def convert(path: Path, checkpoint: str | None, options: OptionValues) -> Path:
    """Returns the export of a checkpoint, `RUN/engines/ctranslate2-CHECKSUM`.

    The first call writes it. See `ExportFormat.convert` for the arguments.

    Raises:
        UserError: TensorFlow must run the checkpoint, or there is no checkpoint.
    """
    if checkpoint == "ema":
        raise UserError("--checkpoint ema is part of a checkpoint")
    if tf.config.list_physical_devices("GPU"):
        raise UserError("there is a GPU")
    run = RunDirectory(path)
    default = DecodingOptions.of(run.problem)
    resolved = dataclasses.replace(default, **options)
    require_supported(resolved)
    # CTranslate2 draws different samples and has another rule for n-grams.
    for name in ("sampling", "no_repeat_ngram"):
        if getattr(resolved, name):
            raise UserError(f"{name} differs in CTranslate2")
    if run.problem.text_processor.repairs_outputs:
        raise UserError(f"outputs of problem '{run.problem.name}' are repaired")
    max_positions = default.max_source_length + default.extra_length
    if resolved.max_source_length + resolved.extra_length > max_positions:
        raise UserError(f"more than {max_positions} positions are not converted")
    # The index has the checksums of all weights.
    checkpoint_path = run.checkpoints.find(checkpoint)
    digest = sha256(Path(f"{checkpoint_path}.index"))[:12]
    export = run.path / "engines" / f"ctranslate2-{digest}"
    if not _is_current(export, default):
        shutil.rmtree(export, ignore_errors=True)
        verification = Verification(run.example_sources(_SENTENCES))
        translator = run.translator(checkpoint_path)
        export_ctranslate2(translator, export, verify=verification)
    return export


def _is_current(export: Path, default: DecodingOptions) -> bool:
    """Returns whether an export is complete and has the problem's default options."""
    if not (export / SUMS).exists():
        return False
    try:
        require_intact(export)
    except UserError:
        return False
    written = read_json(export / SETTINGS) or {}
    return bool(written.get("decoding") == default.recorded())
