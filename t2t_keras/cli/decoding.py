"""The flags of decoding, and the checks of their values."""

import argparse
import contextlib
import dataclasses
from pathlib import Path

from t2t_keras.cli.command import (
    add_keys,
    add_option_flags,
    given_options,
)
from t2t_keras.cli.parser import add_further
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.export.directory import is_saved_model
from t2t_keras.export.formats import find_converted, require_export
from t2t_keras.options import OptionValues
from t2t_keras.run.config import require_run

# Of `--engine`.
DEFAULT_ENGINE = "auto"
FLAGS = ("beam_size", "alpha", "n_best")
_SAMPLING_OPTIONS = ("sampling", *DecodingOptions.names("of_sampling"))
_RULE = """\
  A list is written [...]: protect=[url,email], glossary=[dog=Hund,cat=Katze].
  glossary and forbidden may also name a file, with `source TAB target`, or a
  phrase, in each line.
"""


def add_decoding_flags(
    parser: argparse.ArgumentParser, *without: str, sampling: bool = False
) -> None:
    """Adds the flags of decoding: `FLAGS`, and `--decode_hparams` for any option.

    Args:
        parser: the command's parser.
        *without: names of options that the command does not take.
        sampling: whether the command takes the options of sampling. Its `--help` has
            the flags then; that of other commands leaves them to `--help-all`.
    """
    without = without if sampling else (*without, *_SAMPLING_OPTIONS)
    group = (
        parser.add_argument_group("decoding")
        if sampling
        else add_further(parser, "decoding")
    )
    add_option_flags(group, DecodingOptions, [x for x in FLAGS if x not in without])
    names = {field.name for field in dataclasses.fields(DecodingOptions)}
    add_keys(
        parser,
        group,
        "--decode_hparams",
        DecodingOptions,
        "length_penalty=average,no_repeat_ngram=3",
        _RULE,
        listed=names - {*FLAGS, *without},
        refused=without,
    )


def add_engine(parser: argparse._ActionsContainer) -> None:
    """Adds `--engine`, for commands that translate with a run."""
    parser.add_argument(
        "--engine",
        choices=("tensorflow", "auto"),
        default=DEFAULT_ENGINE,
        help="the library that computes a run's model; auto: CTranslate2 on a CPU "
        "where it is installed and suits model and options "
        f"(default: {DEFAULT_ENGINE})",
    )


def is_converted(args: argparse.Namespace, run: str | Path) -> bool:
    """Returns whether `--engine auto` runs a model without TensorFlow at once."""
    if args.engine != "auto":
        return False
    with contextlib.suppress(UserError):  # `check` finds the mistake
        options = given_decoding(args)
        return find_converted(Path(run), args.checkpoint, options) is not None
    return False


def given_decoding(args: argparse.Namespace) -> OptionValues:
    """Returns the decoding options that the command line gives, by name.

    Raises:
        UserError: an option is given by its flag and in `--decode_hparams`.
    """
    return given_options(args, DecodingOptions, "decode_hparams")


def flag_name(name: str) -> str:
    """Returns an option as it is written on the command line, for messages."""
    return f"--{name}" if name in FLAGS else f"--decode_hparams {name}"


def check_decoding(args: argparse.Namespace) -> OptionValues:
    """Returns the given options; refuses options that no model takes.

    Raises:
        UserError: a value is impossible, or has no effect with the other options.
    """
    options = given_decoding(args)
    if not options.get("sampling"):
        for name in options.keys() & {*_SAMPLING_OPTIONS[1:]}:
            raise UserError(f"{flag_name(name)} needs sampling=true as well")
    elif "beam_size" in options:
        raise UserError(
            "--beam_size has no effect with sampling=true; leave out one of them"
        )
    default = {"beam_size": options.get("n_best", 1)}  # not yet the problem's
    DecodingOptions(**default | options)
    return options


def check_decoder(args: argparse.Namespace) -> None:
    """Refuses flags with which no model can be loaded.

    Raises:
        UserError: there is no such model, or it does not take these options.
    """
    options = check_decoding(args)
    if not args.export_dir:
        for run in (args.output_dir, *args.ensemble):
            require_run(run)
        return
    if args.ensemble:
        raise UserError("--ensemble needs --output_dir; export an ensemble instead")
    if args.checkpoint:
        raise UserError("--checkpoint needs --output_dir; an export has it built in")
    check_export(options, args.export_dir)


def check_export(options: OptionValues, export_dir: str | Path) -> None:
    """Refuses a directory without an export, and options that are fixed in the export.

    Raises:
        UserError: there is no export, or such an option is given.
    """
    require_export(export_dir)
    check_served(options, export_dir)


def check_served(options: OptionValues, export_dir: str | Path) -> None:
    """Refuses options that are fixed in a SavedModel; other formats check their own.

    Raises:
        UserError: such an option is given.
    """
    served = DecodingOptions.names("is_served")
    for name in options:
        if name not in served and is_saved_model(Path(export_dir)):
            raise UserError(
                f"{flag_name(name)} needs a run: the export {export_dir} has it built "
                "in"
            )
