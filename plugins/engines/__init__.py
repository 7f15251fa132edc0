"""Other engines that run a trained model: CTranslate2 and LiteRT."""

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError, require_extra
from t2t_keras.export.formats import ExportFormat
from t2t_keras.options import OptionValues

if TYPE_CHECKING:
    from t2t_keras.export.settings import ExportedTranslator

    from .conversions import Conversion


def _export(*args: object, **options: object) -> int:
    from .ctranslate2_model import export_ctranslate2

    return export_ctranslate2(*args, **options)  # type: ignore[arg-type]


def _load(path: Path) -> "ExportedTranslator":
    require_extra("ctranslate2", f"the export {path}", "ctranslate2")
    from t2t_keras.export.settings import ExportedTranslator

    from .ctranslate2_engine import CTranslate2Engine

    engine = CTranslate2Engine(path)
    return ExportedTranslator(engine, engine.settings)


def _conversion(
    run: Path, checkpoint: str | None, options: OptionValues, is_asked: bool
) -> "Conversion":
    if importlib.util.find_spec("ctranslate2") is None:
        raise UserError("CTranslate2 is not installed")
    from .conversions import conversion_of

    return conversion_of(run, checkpoint, options, is_asked)


def _convert(
    run: Path, checkpoint: str | None, options: OptionValues, is_asked: bool
) -> Path:
    conversion = _conversion(run, checkpoint, options, is_asked)
    if conversion.is_current():
        return conversion.export
    from .converted_run import convert

    return convert(run, checkpoint, options, is_asked)


def _find_converted(
    run: Path, checkpoint: str | None, options: OptionValues, is_asked: bool
) -> Path | None:
    from .gpus import may_have_gpu

    # Only TensorFlow knows whether there is a GPU, and this is before its import.
    if not is_asked and "tensorflow" not in sys.modules and may_have_gpu():
        return None
    conversion = _conversion(run, checkpoint, options, is_asked)
    return conversion.export if conversion.is_current(is_trusted=True) else None


CTRANSLATE2 = ExportFormat(
    "a CTranslate2 model, which needs no TensorFlow",
    _export,
    lambda path: (path / "model.bin").exists() and (path / "config.json").exists(),
    quantizations=("int8", "bfloat16", "float16", "int16", "int8_float16"),
    check=lambda: require_extra("ctranslate2", "--format ctranslate2", "ctranslate2"),
    load=_load,
    convert=_convert,
    find_converted=_find_converted,
)


LITERT_OPTIONS = (
    "beam_size",
    "alpha",
    "n_best",
    "length_penalty",
    "max_source_length",
    "extra_length",
)


def _export_litert(*args: object, **options: object) -> int:
    from .litert_model import export_litert

    return export_litert(*args, **options)  # type: ignore[arg-type]


def _load_litert(path: Path) -> "ExportedTranslator":
    require_extra("litert", f"the export {path}", "ai_edge_litert")
    from .litert_engine import load_litert

    return load_litert(path)


LITERT = ExportFormat(
    "a LiteRT (TensorFlow Lite) model for phones, from ids to ids",
    _export_litert,
    lambda path: (path / "model.tflite").exists(),
    quantizations=("int8", "float16"),
    options=LITERT_OPTIONS,
    check=lambda: require_extra("litert", "--format litert", "ai_edge_litert"),
    load=_load_litert,
)
