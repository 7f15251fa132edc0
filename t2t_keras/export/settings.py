"""The settings of an export, which `t2t_export.json` has."""

import dataclasses
from pathlib import Path
from typing import Any, Self

from t2t_keras.data.json_files import read_json
from t2t_keras.data.schema import from_fields
from t2t_keras.text_processor import TextProcessor

SETTINGS = "t2t_export.json"
# Fields of exports of earlier versions, and their names now.
_RENAMED = {"text_form": "text_processor"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """The settings of an export, `t2t_export.json`. A format may have more.

    Attributes:
        version: the version of this package that wrote it.
        problem: the name of the problem.
        sentence_starts: see `TextProcessor`; exports of earlier versions have none.
        languages: the language codes of source and target; None: unknown.
        hparams: the hyper-parameters of the model.
        decoding: the decoding options, as `DecodingOptions.recorded` returns them.
        quantization: the dtype to which the weights are rounded; None: float32.
        verified: the number of sentences with which it was verified.
        identical: how many of their outputs were those of the run.
    """

    version: str
    problem: str
    sentence_starts: list[str] = dataclasses.field(default_factory=list)
    languages: list[str] | None = None
    hparams: dict[str, Any] = dataclasses.field(default_factory=dict)
    decoding: dict[str, Any] = dataclasses.field(default_factory=dict)
    quantization: str | None = None
    verified: int = 0
    identical: int = 0

    def with_sentence_starts(self, text_processor: TextProcessor) -> TextProcessor:
        """Returns a text processor with the `sentence_starts` of the export."""
        starts = tuple(self.sentence_starts)
        return dataclasses.replace(text_processor, sentence_starts=starts)

    @classmethod
    def read(cls, export_dir: Path) -> Self | None:
        """Returns the settings of an export; None if it has none.

        Raises:
            UserError: the file is damaged.
        """
        path = export_dir / SETTINGS
        fields = read_json(path, "export the model again")
        if fields is None:
            return None
        renamed = {_RENAMED.get(name, name): value for name, value in fields.items()}
        return from_fields(cls, renamed, path)
