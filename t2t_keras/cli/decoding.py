"""The flags of decoding, and the model that they name: a run's or an export."""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras.cli.checks import require_run
from t2t_keras.cli.verb import MAX_SEED, not_negative, positive, seed
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.serving.export_dir import is_export


class Output(NamedTuple):
    """One output for an input line.

    Attributes:
        score: the log-probability over the length penalty.
        text: the output, in one line.
        is_repaired: see `Hypothesis`; None if the text form repairs no outputs, and
            for an exported model.
    """

    score: float
    text: str
    is_repaired: bool | None = None


Advance = Callable[[int], None]  # called with the number of lines just done

# Maps lines, and the number of lines before them, to each line's outputs, best first.
Decoder = Callable[[list[str], int, Advance | None], list[list[Output]]]


def decoding_flags(*without: str, sampling: bool = False) -> list[str]:
    """Returns the options that `add_decoding_flags` declares."""
    of_sampling = {"sampling", *DecodingOptions.names("of_sampling")}
    return [
        field.name
        for field in dataclasses.fields(DecodingOptions)
        if field.name not in without and (sampling or field.name not in of_sampling)
    ]


def add_decoding_flags(
    parser: argparse.ArgumentParser, *without: str, sampling: bool = False
) -> None:
    """Declares a flag for every field of `DecodingOptions`.

    Args:
        parser: the verb's parser.
        *without: names of options for which the verb has no flag.
        sampling: whether the verb has the flags for sampling.
    """
    converters: dict[object, Callable[[str], object]]
    converters = {int: not_negative, float: float}
    search = parser.add_argument_group("decoding")
    draws = parser.add_argument_group("sampling, in place of beam search")
    names = decoding_flags(*without, sampling=sampling)
    for field in dataclasses.fields(DecodingOptions):
        if field.name not in names:
            continue
        about = field.metadata
        is_draw = field.name == "sampling" or about["of_sampling"]
        group = draws if is_draw else search
        flag = "--sample" if field.name == "sampling" else f"--{field.name}"
        if field.type is bool:
            group.add_argument(
                flag,
                dest=field.name,
                action="store_true",
                default=None,
                help=about["meaning"],
            )
            continue
        default = "the problem's" if about["from_problem"] else field.default
        converter = converters.get(field.type, str)
        if about["least"] == 1:
            converter = positive
        if field.name == "seed":
            converter = seed
        group.add_argument(
            flag,
            type=converter,
            metavar="NAME" if converter is str else "N" if field.type is int else "X",
            help=f"{about['meaning']} (default: {default})",
        )


def decoding_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the decoding options that were given, by name."""
    names = (field.name for field in dataclasses.fields(DecodingOptions))
    given = {name: getattr(args, name, None) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def check_decoding(args: argparse.Namespace) -> None:
    """Refuses decoding options that are impossible for any model.

    Raises:
        UserError: a value is impossible, or has no effect with the other options.
    """
    options = decoding_options(args)
    useless = [n for n in DecodingOptions.names("of_sampling") if n in options]
    if useless and "sampling" not in options:
        raise UserError(f"--{useless[0]} needs --sample beside it")
    if "sampling" in options and "beam_size" in options:
        raise UserError(
            "--beam_size has no effect with --sample; leave out one of them"
        )
    default = {"beam_size": options.get("n_best", 1)}  # the problem's is not known yet
    DecodingOptions(**default | options)


def check_decoder(args: argparse.Namespace) -> None:
    """Refuses flags with which `open_decoder` cannot work.

    Raises:
        UserError: there is no such model, or it does not take these options.
    """
    check_decoding(args)
    if not args.export_dir:
        require_run(args.output_dir)
        return
    options = decoding_options(args)
    served = DecodingOptions.names("is_served")
    fixed = [name for name in options if name not in served]
    if args.checkpoint or fixed:
        flag = "sample" if args.sampling else [*fixed, "checkpoint"][0]
        raise UserError(f"--{flag} needs --output_dir; an export has it built in")
    if not is_export(Path(args.export_dir)):
        raise UserError(f"--export_dir: {args.export_dir} has no saved_model.pb")


def open_decoder(args: argparse.Namespace) -> Decoder:
    """Loads the model that the flags name."""
    options = decoding_options(args)
    if args.export_dir:
        return _exported(args, options)
    from t2t_keras.runs.run_dir import RunDirectory

    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
    first_seed = options.pop("seed", 0)
    repairs = translator.problem.text_form.repairs_outputs

    def decode(
        lines: list[str], before: int, advance: Advance | None
    ) -> list[list[Output]]:
        found = translator.n_best(
            lines,
            seed=(first_seed + before) % MAX_SEED,
            before=before,
            advance=advance,
            **options,
        )
        return [
            [
                Output(x.score, x.text, x.is_repaired if repairs else None)
                for x in outputs
            ]
            for outputs in found
        ]

    return decode


def _exported(args: argparse.Namespace, options: dict[str, Any]) -> Decoder:
    """Loads a SavedModel, most of whose options were fixed by `t2t export`."""
    from t2t_keras.serving.client import ExportedTranslator

    translator = ExportedTranslator(args.export_dir)
    translator.choose(**options)  # raises before any text is read

    def decode(
        lines: list[str], before: int, advance: Advance | None
    ) -> list[list[Output]]:
        found = translator.n_best(lines, before=before, advance=advance, **options)
        return [[Output(x.score, x.text) for x in outputs] for outputs in found]

    return decode
