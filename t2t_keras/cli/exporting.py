"""The command that writes a model for serving: `export`."""

import dataclasses
import time
from pathlib import Path

from t2t_keras.cli.command import (
    FURTHER,
    REQUIRED,
    CheckpointFlags,
    Command,
    CommandResult,
    RunFlags,
    check_decoding,
    decoding_flag,
    decoding_flags,
    ensemble_flag,
    quoted,
)
from t2t_keras.cli.lines import require_utf8
from t2t_keras.console import table
from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.exporting.directory import require_free
from t2t_keras.exporting.formats import export_formats, require_quantization
from t2t_keras.options import OptionValues, option
from t2t_keras.run.config import require_run


def _format(name: str) -> str:
    """Returns the value of `--format`.

    Raises:
        UserError: there is no such format.
    """
    if name not in (formats := export_formats()):
        hint = did_you_mean(name, formats)
        raise UserError(f"there is no '{name}'{hint} (there are: {', '.join(formats)})")
    return name


def _summaries() -> str:
    rows = [f"{name}: {x.summary}" for name, x in export_formats().items()]
    return "; ".join(rows)


def _quantizations() -> str:
    rows = [
        f"{name}: {', '.join(x.quantizations)}"
        for name, x in export_formats().items()
        if x.quantizations
    ]
    return "; ".join(rows)


@dataclasses.dataclass(kw_only=True)
class Export(RunFlags, CheckpointFlags, Command):
    """Exports a trained model."""

    summary = "export a trained model, as a SavedModel or for another program"
    heading = "using a model"
    waiting = "exporting and verifying the model"

    export_dir: str = option(
        REQUIRED, "the directory to write", metavar="DIR", positional=True
    )
    overwrite: bool = option(False, "replace an earlier export")
    format: str = option(
        "savedmodel", "", metavar="FORMAT", parse=_format, further_help=_summaries
    )
    quantization: str | None = option(
        None,
        "dtype to which the weights are rounded (default: float32): ",
        metavar="DTYPE",
        further_help=_quantizations,
    )
    verify: int = option(
        20,
        "number of sentences of the run's data; the export is refused unless its "
        "outputs equal the run's; 0: no verification",
        ge=0,
    )
    ensemble: tuple[str, ...] = ensemble_flag(FURTHER)
    decoding: OptionValues = decoding_flags()

    def needs_tensorflow(self) -> bool:
        """Needs it to load the run, whatever the format."""
        return True

    def check(self) -> None:
        """Refuses paths that are not runs, a used directory, and impossible options."""
        require_utf8("export_dir", self.export_dir)
        for run in (self.output_dir, *self.ensemble):
            require_run(run)
        require_free(Path(self.export_dir), self.overwrite)
        export_format = export_formats()[self.format]
        check_decoding(self.decoding)
        for name in self.decoding:
            if export_format.options is not None and name not in export_format.options:
                raise UserError(
                    f"{decoding_flag(name)} has no effect with --format={self.format}; "
                    "leave it out, and give it to the library that translates with the "
                    "export"
                )
        export_format.check()
        require_quantization(self.quantization, self.format)

    def run(self) -> CommandResult:
        """Writes the export; returns its size and how it was verified."""
        from t2t_keras.exporting.verify import Verification
        from t2t_keras.run.directory import RunDirectory

        start = time.monotonic()
        run = RunDirectory(self.output_dir)
        verification = Verification(run.example_sources(self.verify))
        size = export_formats()[self.format].export(
            run.translator(self.checkpoint, self.ensemble),
            self.export_dir,
            quantization=self.quantization,
            overwrite=self.overwrite,
            verify=verification if self.verify else None,
            **self.decoding,
        )
        return {
            "export_dir": self.export_dir,
            "bytes": size,
            "verified": len(verification.texts),
            "identical": verification.identical,
            "seconds": round(time.monotonic() - start, 2),
        }

    def show(self, result: CommandResult) -> str:
        """Formats the result as a table."""
        return table(result)

    def next_command(self) -> str:
        """Returns the command that serves the export."""
        return f"t2t serve {quoted(self.export_dir)}"


COMMANDS = {"export": Export}
