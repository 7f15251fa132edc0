"""`t2t adopt`: makes a data directory of tensor2tensor's TFRecords."""

import dataclasses

from t2t_keras import registry
from t2t_keras.cli.command import REQUIRED, Command, CommandResult, UsrDirFlags, quoted
from t2t_keras.console import table
from t2t_keras.options import option


@dataclasses.dataclass(kw_only=True)
class Adopt(UsrDirFlags, Command):
    """Makes a data directory of tensor2tensor's TFRecords."""

    summary = "use data that tensor2tensor wrote, without a conversion"
    heading = "data and training"
    waiting = "reading the data"

    source: str = option(
        REQUIRED,
        "the files DIR/NAME-train-* ... that tensor2tensor wrote",
        metavar="DIR/NAME",
        positional=True,
    )
    problem: str = option(REQUIRED, "a name of `t2t list`", metavar="NAME")
    data_dir: str = option(REQUIRED, "data directory to write", metavar="DIR")
    vocab: str | None = option(
        None, "the vocabulary (default: the only DIR/vocab.*)", metavar="FILE"
    )

    def needs_tensorflow(self) -> bool:
        """Needs it to read TFRecords."""
        return True

    def run(self) -> CommandResult:
        """Makes the directory, and returns the numbers of examples and tokens."""
        from .t2t.data import adopt

        problem = registry.problem(self.problem)
        manifest = adopt(problem, self.source, self.data_dir, self.vocab)
        return {
            "examples": dict(manifest.examples),
            "vocab_size": manifest.vocab_sizes["target"],
        }

    def show(self, result: CommandResult) -> str:
        """Formats the numbers as a table."""
        return table(result["examples"] | {"vocabulary": result["vocab_size"]})

    def next_command(self) -> str:
        """Returns the command that trains on the data."""
        return (
            f"t2t train --problem {self.problem} --data_dir {quoted(self.data_dir)} "
            "--hparams_set SET --output_dir RUN"
        )


COMMAND = Adopt
