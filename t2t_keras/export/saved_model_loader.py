"""Loads SavedModels, and makes translators of them."""

import dataclasses
from pathlib import Path

import tensorflow as tf
import tensorflow_text  # noqa: F401  (the tokenizers' operations)

from t2t_keras.captured_stderr import diverted_stderr
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError, first_line
from t2t_keras.export.directory import is_saved_model
from t2t_keras.export.exported_translator import ExportedTranslator
from t2t_keras.export.integrity import require_intact
from t2t_keras.export.saved_model_engine import SavedModelEngine
from t2t_keras.export.settings import SETTINGS
from t2t_keras.export.text_processor_settings import TextProcessorSettings
from t2t_keras.export.text_saved_model import TextSavedModel
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.tokenizers import load_tokenizer

# The folder of files besides the SavedModel's own. Every loader ignores it, and tools
# copy it.
EXTRA = "assets.extra"

# Characters that lossy vocabularies leave out or replace.
_PROBE = "a \u2460\u0416\u4e2d\U0001f600 \u00df"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SavedModelSettings(TextProcessorSettings):
    """The settings of a SavedModel.

    Attributes:
        ids_only: whether the graph has no tokenizers.
    """

    ids_only: bool = False


def load_translator(export_dir: str | Path) -> ExportedTranslator | TextSavedModel:
    """Loads a SavedModel that `export_saved_model` wrote.

    Raises:
        UserError: it has no SavedModel, or not one that `t2t export` wrote, or one from
            ids to ids; or a file is damaged.
    """
    path = Path(export_dir)
    if not is_saved_model(path):
        raise UserError(f"--export_dir: {path} has no saved_model.pb")
    require_intact(path)
    settings = SavedModelSettings.read(path)
    if settings is not None and settings.ids_only:
        raise UserError(
            f"--export_dir: {path} maps ids to ids; call its signatures with "
            "TensorFlow, or export the model with --format savedmodel"
        )
    served = load_saved_model(path)
    if not {"options", "translate"} <= set(served.signatures):
        raise UserError(f"--export_dir: {path} was not written by `t2t export`")
    engine = None if settings is None else _engine(served, settings, path)
    if settings is None or engine is None:
        return TextSavedModel(served, settings)
    return ExportedTranslator(engine, settings, engine.request_options)


def _engine(
    served: tf.Module, settings: SavedModelSettings, path: Path
) -> SavedModelEngine | None:
    """Returns the engine of a SavedModel; None if only the graph can encode texts."""
    text_processor = settings.make_text_processor()
    if text_processor is None:
        return None
    source_tokenizer = load_tokenizer(next((path / EXTRA).glob("source.*")))
    target_tokenizer = load_tokenizer(next((path / EXTRA).glob("target.*")))
    # The graph reads the text of a source from its ids, which must have all of it.
    if not _is_lossless(source_tokenizer):
        return None
    options = DecodingOptions.of_recorded(settings.decoding, path / SETTINGS)
    return SavedModelEngine(
        served,
        settings.problem,
        text_processor,
        source_tokenizer,
        target_tokenizer,
        options,
    )


def _is_lossless(tokenizer: Tokenizer) -> bool:
    """Returns whether the ids of a text have all of its characters."""
    return tokenizer.decode(tokenizer.encode(_PROBE)) == _PROBE


def load_saved_model(export_dir: str | Path) -> tf.Module:
    """Loads a SavedModel; its vocabularies are silent as in `sentence_piece_op`.

    Raises:
        UserError: TensorFlow cannot load it.
    """
    try:
        with diverted_stderr():
            return tf.saved_model.load(str(export_dir))
    except Exception as error:  # which one depends on the damage
        raise UserError(
            f"--export_dir: TensorFlow cannot load {export_dir}: "
            f"{first_line(error) or type(error).__name__}; copy or export the model "
            "again"
        ) from None
