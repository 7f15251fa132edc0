"""Which runs CTranslate2 translates with, and their conversions on disk.

This file does without TensorFlow, so that a converted run answers in a second.
"""

import contextlib
import dataclasses
import importlib.metadata
import json
from pathlib import Path
from typing import NamedTuple

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.export.directory import SUMS, require_intact
from t2t_keras.export.settings import SETTINGS
from t2t_keras.files.json_files import read_json, sha256
from t2t_keras.options import OptionValues
from t2t_keras.run.config import CheckpointPaths, RunConfig

from .ctranslate2_settings import require_supported
from .gpus import has_gpu


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
        UserError: TensorFlow must run the checkpoint, or there is no checkpoint.
    """
    if checkpoint == "ema":
        raise UserError("--checkpoint ema is part of a checkpoint")
    if not is_asked and has_gpu():
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
