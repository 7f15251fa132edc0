"""The settings of an export, which `t2t_export.json` has."""

import dataclasses
from pathlib import Path
from typing import Any, Self

from t2t_keras.data.json_files import read_json
from t2t_keras.data.schema import from_fields

SETTINGS = "t2t_export.json"
# Fields of exports of earlier versions, and their names now.
_RENAMED = {"text_form": "text_processor"}


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
        if fields is None:
            return None
        renamed = {_RENAMED.get(name, name): value for name, value in fields.items()}
        return from_fields(cls, renamed, path)
