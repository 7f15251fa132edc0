"""The program `t2t`: a file for each group of commands, a dataclass for each command.

The commands of the core are in `listing`, `data`, `training`, `repeating`,
`translation`, `scoring`, `evaluation` and `exporting`; plugins add others by the entry
points `t2t_keras.commands`. The fields of a command are its flags, and its methods call
the library with their values. `command` has the base class and the flags that several
commands share. `flags` reads the flags of a dataclass, `parsing` parses command lines
with cyclopts, `config_file` reads files of flags, and `lines` reads and writes text.
`program` finds the command, runs it, prints, and turns errors into exit codes.
TensorFlow is imported inside the commands, so that `--help` and `t2t list` are fast.
"""

import sys
from collections.abc import Sequence

from t2t_keras.errors import first_line

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program; a library that cannot be imported is one sentence.

    Returns:
        The exit code, see `program.main`.
    """
    words = sys.argv[1:] if argv is None else argv
    try:
        from t2t_keras.cli import program

        return program.main(words)
    except Exception as error:
        if not _is_of_a_library(error):
            raise
        print(
            f"t2t: error: a library cannot be imported: {first_line(error)}; install "
            "t2t_keras again in a new environment",
            file=sys.stderr,
        )
        return 2


def _is_of_a_library(error: Exception) -> bool:
    """Whether an error was raised by the import of another package's module."""
    if isinstance(error, ImportError):
        return not (error.name or "").startswith("t2t_keras")
    # Libraries also raise others while `program` imports them.
    return "t2t_keras.cli.program" not in sys.modules
