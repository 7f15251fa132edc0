"""The flags of decoding, and the checks of their values."""

import argparse
import dataclasses
from typing import Any, get_args

from t2t_keras.cli.verb import given_options, not_negative, positive, seed
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.export.export_dir import require_export
from t2t_keras.option import UserError
from t2t_keras.training.runs import require_run


def decoding_flags(
    *without: str, sampling: bool = False
) -> list[dataclasses.Field[Any]]:
    """Returns the options for which `add_decoding_flags` declares a flag."""
    of_sampling = {"sampling", *DecodingOptions.names("of_sampling")}
    return [
        field
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
    search = parser.add_argument_group("decoding")
    draws = parser.add_argument_group("sampling, in place of beam search")
    for field in decoding_flags(*without, sampling=sampling):
        about = field.metadata
        is_draw = field.name == "sampling" or about["of_sampling"]
        add = (draws if is_draw else search).add_argument
        flag = "--sample" if field.name == "sampling" else f"--{field.name}"
        meaning = about["meaning"]
        if field.type is bool:
            add(flag, dest=field.name, action="store_true", default=None, help=meaning)
            continue
        default = "the problem's" if about["from_problem"] else field.default
        meaning += f" (default: {default})"
        if about["parse"]:
            add(flag, type=about["parse"], metavar="PHRASES", help=about["meaning"])
        elif field.type is int:
            converter = positive if about["least"] else not_negative
            converter = seed if field.name == "seed" else converter
            add(flag, type=converter, metavar="N", help=meaning)
        elif field.type is float:
            add(flag, type=float, metavar="X", help=meaning)
        elif choices := get_args(field.type):
            add(flag, choices=choices, help=meaning)
        else:
            add(flag, metavar="NAME", help=meaning)


def check_decoding(args: argparse.Namespace) -> None:
    """Refuses decoding options that are impossible for any model.

    Raises:
        UserError: a value is impossible, or has no effect with the other options.
    """
    options = given_options(args, DecodingOptions)
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
    """Refuses flags with which no model can be loaded.

    Raises:
        UserError: there is no such model, or it does not take these options.
    """
    check_decoding(args)
    if not args.export_dir:
        for run in (args.output_dir, *args.ensemble):
            require_run(run)
        return
    if args.ensemble:
        raise UserError("--ensemble needs --output_dir; export an ensemble instead")
    options = given_options(args, DecodingOptions)
    served = DecodingOptions.names("is_served")
    fixed = [name for name in options if name not in served]
    if args.checkpoint or fixed:
        flag = "sample" if args.sampling else [*fixed, "checkpoint"][0]
        raise UserError(f"--{flag} needs --output_dir; an export has it built in")
    require_export(args.export_dir)
