"""Other libraries that run a trained model: CTranslate2 and LiteRT.

- `ctranslate2_export` writes a model for CTranslate2. `ctranslate2_engine` runs it
  without TensorFlow, with the threads of `ctranslate2_pool`, and `converted_run`
  converts the checkpoint of a run once, so that `t2t translate` is faster.
- `litert` writes a model for LiteRT (TensorFlow Lite), which runs on phones.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from t2t_keras.errors import UserError, require_extra
from t2t_keras.exporting.formats import ExportFormat

from .converted_run import convert, find_converted

if TYPE_CHECKING:
    from t2t_keras.decoding.graph_engine import ModelTranslator
    from t2t_keras.exporting.settings import ExportedTranslator


def _export(
    translator: "ModelTranslator", export_dir: str | Path, **options: Any
) -> int:
    from .ctranslate2_export import export_ctranslate2

    return export_ctranslate2(translator, export_dir, **options)


def _load(path: Path) -> "ExportedTranslator":
    require_extra("ctranslate2", f"the export {path}", "ctranslate2")
    from t2t_keras.exporting.directory import require_intact
    from t2t_keras.exporting.settings import ExportedTranslator

    from .ctranslate2_engine import CTranslate2Engine

    require_intact(path)
    engine = CTranslate2Engine(path)
    return ExportedTranslator(engine, engine.settings)


CTRANSLATE2 = ExportFormat(
    "a CTranslate2 model, which needs no TensorFlow",
    _export,
    lambda path: (path / "model.bin").exists() and (path / "config.json").exists(),
    quantizations=("int8", "bfloat16", "float16", "int16", "int8_float16"),
    check=lambda: require_extra("ctranslate2", "--format=ctranslate2", "ctranslate2"),
    load=_load,
    convert=convert,
    find_converted=find_converted,
)


LITERT_OPTIONS = (
    "beam_size",
    "alpha",
    "n_best",
    "length_penalty",
    "max_source_length",
    "extra_length",
)


def _export_litert(
    translator: "ModelTranslator", export_dir: str | Path, **options: Any
) -> int:
    from .litert import export_litert

    return export_litert(translator, export_dir, **options)


def _refuse_to_load(path: Path) -> NoReturn:
    raise UserError(
        f"{path} is for LiteRT's own interpreter, on a phone; give the "
        "run directory, or an export of another format"
    )


LITERT = ExportFormat(
    "a LiteRT (TensorFlow Lite) model for phones, from ids to ids",
    _export_litert,
    lambda path: (path / "model.tflite").exists(),
    quantizations=("int8", "float16"),
    options=LITERT_OPTIONS,
    check=lambda: require_extra("litert", "--format=litert", "ai_edge_litert"),
    load=_refuse_to_load,
)
