"""The flags of decoding, and the models they apply to: of a run, or exported."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

from t2t_keras.cli.checks import require_run
from t2t_keras.cli.verb import MAX_SEED, not_negative, positive
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.problem import Constraint
from t2t_keras.serving.export_dir import is_export


class Output(NamedTuple):
    """One output for a line.

    Attributes:
        score: log-probability over length penalty.
        text: one line.
        is_repaired: see `Hypothesis`; None for a problem without trees, and for an
            exported model, in which nothing is repaired.
    """

    score: float
    text: str
    is_repaired: bool | None = None


Advance = Callable[[int], None]  # called with a number of lines that are done

# Lines, and how many came before them -> the outputs for each line, best first.
Decoder = Callable[[list[str], int, Advance | None], list[list[Output]]]

# What `add_decoding_flags` declares.
DECODING_FLAGS = (
    *("beam_size", "alpha", "min_length", "extra_length", "max_source_length"),
    *("batch_tokens", "constraint"),
)
_BEAM = (*DECODING_FLAGS, "n_best", "raw")
_SAMPLING = ("temperature", "top_k", "top_p", "seed")


def add_decoding_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of beam search; `decoding_options` reads them."""
    beam = parser.add_argument_group("beam search")
    beam.add_argument(
        "--beam_size", type=positive, help="default: the problem's; 1: greedy"
    )
    beam.add_argument(
        "--alpha", type=float, help="of the length penalty (default: the problem's)"
    )
    beam.add_argument(
        "--min_length", type=positive, metavar="N", help="fewest pieces of an output"
    )
    beam.add_argument(
        "--extra_length",
        type=not_negative,
        metavar="N",
        help="pieces that an output may have more than its input",
    )
    beam.add_argument(
        "--max_source_length",
        type=positive,
        metavar="N",
        help="inputs of more tokens are cut there, with a warning (default: "
        f"{DecodingOptions.max_source_length})",
    )
    beam.add_argument(
        "--batch_tokens", type=positive, metavar="N", help="pieces decoded at once"
    )
    beam.add_argument(
        "--constraint",
        choices=get_args(Constraint),
        help="brackets: only trees over the words are searched; none: the search is "
        "free, and malformed trees are repaired (default: the problem's)",
    )


def add_raw(parser: argparse.ArgumentParser) -> None:
    """`--raw`, of the verbs that take sentences to parse from outside."""
    parser.add_argument(
        "--raw",
        action="store_true",
        default=None,
        help="of a parser: the input is raw sentences, and is split into words as the "
        "Penn Treebank does (default: words with spaces between them)",
    )


def decoding_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the decoding options that were given, by name."""
    given = {name: getattr(args, name, None) for name in (*_BEAM, *_SAMPLING)}
    return {name: value for name, value in given.items() if value is not None}


def check_decoding(args: argparse.Namespace) -> None:
    """Refuses decoding options that are impossible, whatever the model.

    Raises:
        UserError: a value is impossible, or has no effect beside the others.
    """
    options = decoding_options(args)
    sampling = getattr(args, "sample", False)
    useless = [name for name in _SAMPLING if name in options]
    if useless and not sampling:
        raise UserError(f"--{useless[0]} needs --sample beside it")
    if sampling and "beam_size" in options:
        raise UserError(
            "--beam_size has no effect with --sample; leave out one of them"
        )
    default = {"beam_size": options.get("n_best", 1)}  # the problem's is not known yet
    DecodingOptions(**default | options, sampling=sampling)


def check_decoder(args: argparse.Namespace) -> None:
    """Refuses flags with which `open_decoder` cannot work.

    Raises:
        UserError: there is no such model, or options do not suit it.
    """
    check_decoding(args)
    if not args.export_dir:
        require_run(args.output_dir)
        return
    options = decoding_options(args)
    fixed = [name for name in options if name not in ("beam_size", "alpha", "n_best")]
    if args.sample or args.checkpoint or fixed:
        flag = "sample" if args.sample else [*fixed, "checkpoint"][0]
        raise UserError(f"--{flag} needs --output_dir; an export has it built in")
    if not is_export(Path(args.export_dir)):
        raise UserError(f"--export_dir: {args.export_dir} has no saved_model.pb")


def open_decoder(args: argparse.Namespace) -> Decoder:
    """Loads the model that the flags name."""
    options = decoding_options(args)
    if args.export_dir:
        return _exported(args, options)
    from t2t_keras.training.run_dir import RunDirectory

    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
    seed = options.pop("seed", 0)
    has_trees = translator.problem.output == "trees"

    def decode(
        lines: list[str], before: int, advance: Advance | None
    ) -> list[list[Output]]:
        found = translator.n_best(
            lines,
            sampling=args.sample,
            seed=(seed + before) % MAX_SEED,
            before=before,
            advance=advance,
            **options,
        )
        return [
            [
                Output(x.score, x.text, x.is_repaired if has_trees else None)
                for x in outputs
            ]
            for outputs in found
        ]

    return decode


def _exported(args: argparse.Namespace, options: dict[str, Any]) -> Decoder:
    """Loads a SavedModel, which has its options from `t2t export`."""
    from t2t_keras.serving.client import ExportedTranslator

    translator = ExportedTranslator(args.export_dir)
    translator.choose(**options)  # raises before any text is read

    def decode(
        lines: list[str], before: int, advance: Advance | None
    ) -> list[list[Output]]:
        found = translator.n_best(lines, before=before, advance=advance, **options)
        return [[Output(x.score, x.text) for x in outputs] for outputs in found]

    return decode
