"""The class of verbs, and the flags that several verbs share."""

import argparse
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_SEED = 2**31


@dataclasses.dataclass(frozen=True)
class Verb:
    """One verb of `t2t`.

    Attributes:
        summary: one line for `t2t --help`.
        add_flags: declares the verb's flags on its parser.
        run: does the work; returns the object that `--json` prints.
        show: formats that object for people; nothing is printed if it returns "".
        uses_tensorflow: whether the verb needs TensorFlow; may depend on its flags.
        check: refuses mistakes that can be found before TensorFlow is imported.
    """

    summary: str
    add_flags: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], dict[str, Any]]
    show: Callable[[dict[str, Any]], str]
    uses_tensorflow: bool | Callable[[argparse.Namespace], bool] = False
    check: Callable[[argparse.Namespace], None] = lambda args: None

    def needs_tensorflow(self, args: argparse.Namespace) -> bool:
        """Returns whether the verb needs TensorFlow for these flags."""
        if callable(self.uses_tensorflow):
            return self.uses_tensorflow(args)
        return self.uses_tensorflow


def add_usr_dir(parser: argparse._ActionsContainer) -> None:
    """Adds `--usr_dir`, for verbs that look up a problem or an hparam set."""
    parser.add_argument(
        "--usr_dir",
        metavar="DIR",
        help="folder with your own problems and hparam sets, imported first",
    )


def add_checkpoint(parser: argparse._ActionsContainer) -> None:
    """Adds `--checkpoint`, for verbs that read a run directory's weights."""
    parser.add_argument(
        "--checkpoint",
        metavar="WHICH",
        help="a step, 'latest', 'average', 'best' (on dev), 'ema' or a path (default: "
        "the average of the newest step if there is one, otherwise the newest "
        "checkpoint)",
    )


def add_hparams(parser: argparse.ArgumentParser) -> None:
    """Adds `--hparams_set` and `--hparams`, for verbs that build a model."""
    parser.add_argument("--hparams_set", required=True, help="a name of `t2t list`")
    parser.add_argument(
        "--hparams",
        default="",
        metavar="K=V,K=V",
        help='changes to the set, such as "dropout=0.2,num_layers=4"',
    )


def table(rows: Mapping[str, object]) -> str:
    """Formats names and values in two columns."""
    width = max(map(len, rows), default=0)
    lines = (f"{name:<{width}}  {_rounded(value)}" for name, value in rows.items())
    return "\n".join(lines)


def columns(rows: Sequence[Mapping[str, object]]) -> str:
    """Formats rows as a table with a header; numbers are aligned to the right."""
    cells = [list(rows[0]), *([str(_rounded(v)) for v in r.values()] for r in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    texts = [isinstance(value, str) for value in rows[0].values()]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if text else cell.rjust(width)
            for cell, width, text in zip(line, widths, texts, strict=True)
        ).rstrip()
        for line in cells
    )


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.4f}"


def positive(text: str) -> int:
    """Converts a flag's text to an integer of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {text}")
    return number


def not_negative(text: str) -> int:
    """Converts a flag's text to an integer of at least 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must not be negative, but is {text}")
    return number


def positive_number(text: str) -> float:
    """Converts a flag's text to a finite number above 0."""
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return number


def not_negative_number(text: str) -> float:
    """Converts a flag's text to a finite number, 0 or above."""
    number = float(text)
    if not 0 <= number < math.inf:
        raise argparse.ArgumentTypeError(f"must not be negative, but is {text}")
    return number


def seed(text: str) -> int:
    """Converts a flag's text to a seed of 31 bits."""
    number = int(text)
    if not 0 <= number < MAX_SEED:
        raise argparse.ArgumentTypeError(
            f"must be from 0 to {MAX_SEED - 1}, not {text}"
        )
    return number


# The names that argparse prints: "invalid positive integer value: 'x'".
positive.__name__ = "positive integer"
positive_number.__name__ = "number"
not_negative.__name__ = seed.__name__ = "integer"
