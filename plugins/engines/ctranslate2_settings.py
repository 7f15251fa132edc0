"""What an export for CTranslate2 records: settings, and the strings of its tokens."""

import dataclasses
import importlib.metadata
from pathlib import Path

import ctranslate2

from t2t_keras.checking import Positive
from t2t_keras.decoding.engine import refuse_changes
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.export.settings import SETTINGS, ExportSettings
from t2t_keras.files.json_files import write_json
from t2t_keras.problem import Problem, TextProcessor
from t2t_keras.text.tokenizer import Tokenizer

PAD_TOKEN = "<pad>"
EOS_TOKEN = "</s>"

_UNSUPPORTED = (
    "coverage_penalty",
    "glossary",
    "protect",
    "forbidden",
    "constraint",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CTranslate2Settings(ExportSettings):
    """The settings of an export for CTranslate2.

    Attributes:
        tags: words before sources that are one token; None: the text processor is
            that of the registered problem.
        positions: the number of tokens in the longest output.
        compute_type: CTranslate2's type of computation on the machine that wrote it.
    """

    tags: list[str] | None = None
    positions: Positive
    compute_type: str


def write_settings(
    path: Path, problem: Problem, options: DecodingOptions, **extra: object
) -> None:
    """Writes the settings that `CTranslate2Engine` reads.

    Args:
        path: the directory of the export.
        problem: the problem of the model.
        options: the default options.
        **extra: further settings.
    """
    # None: the text processor is taken from the registered problem.
    is_plain = type(problem.text_processor) is TextProcessor
    settings = {
        "version": importlib.metadata.version("t2t_keras"),
        "problem": problem.name,
        "languages": problem.languages,
        "tags": problem.text_processor.tags if is_plain else None,
        "decoding": options.recorded(),
        "positions": options.max_source_length + options.extra_length,
        "compute_type": ctranslate2.Translator(str(path)).compute_type,
    }
    write_json(path / SETTINGS, settings | extra)


def require_supported(options: DecodingOptions) -> None:
    """Refuses options that CTranslate2 does not support.

    Raises:
        UserError: one of them is set.
    """
    refuse_changes(
        options,
        DecodingOptions(),
        _UNSUPPORTED,
        "CTranslate2 does not support it; use the run (--engine tensorflow) or an "
        "export with --format savedmodel",
    )


def token_strings(tokenizer: Tokenizer) -> list[str]:
    """Returns a distinct, non-empty string for every id of a vocabulary."""
    strings = [PAD_TOKEN, EOS_TOKEN]
    taken = {*strings, ""}
    for token, piece in enumerate(tokenizer.pieces[len(strings) :], len(strings)):
        if piece in taken:
            piece = f"<{token}>"
        while piece in taken:
            piece = f"<{piece}>"
        strings.append(piece)
        taken.add(piece)
    return strings
