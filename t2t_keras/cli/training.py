"""The commands that write weights: `train` and `average`."""

import argparse
import dataclasses
import inspect
import os
import pkgutil
import signal
from pathlib import Path
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.command import (
    Command,
    add_further,
    add_hparams,
    add_option_flags,
    add_run_dir,
    add_usr_dir,
    given_options,
    not_negative,
    positive,
    quoted,
    seed,
)
from t2t_keras.cli.lines import require_directory, require_utf8
from t2t_keras.console import say, table
from t2t_keras.entry_points import load_plugins, plugin_names
from t2t_keras.errors import UserError, first_line
from t2t_keras.hparam import CHANGEABLE_FIELDS
from t2t_keras.processes import LAUNCHED, LOST
from t2t_keras.training.settings import (
    TrainOptions,
    TrainSettings,
    train_settings,
)


def _train_flags(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "t2t train --problem NAME --data_dir DIR --output_dir RUN [flags]\n"
        "       t2t train --output_dir RUN [flags]"
    )
    parser.add_argument(
        "--problem",
        metavar="NAME",
        help="a name of `t2t list`; without it a run is resumed, with its settings "
        "unless other flags change them",
    )
    add_hparams(parser, "with --init_from the hyper-parameters of that run")
    parser.add_argument("--data_dir", metavar="DIR", help="what `t2t datagen` wrote")
    parser.add_argument(
        "--output_dir",
        metavar="RUN",
        help="the run directory, new or to be resumed",
    )
    add_usr_dir(parser)
    parser.add_argument(
        "--train_steps",
        type=positive,
        metavar="N",
        help="total steps (default: the hparam set's)",
    )
    _add_source_run_flags(parser)
    _add_reporting_flags(parser)
    _add_further_flags(parser)


def _add_source_run_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("earlier runs")
    group.add_argument(
        "--init_from",
        metavar="RUN",
        help="fine-tuning: a run directory, or a checkpoint in one, to take the "
        "initial weights from; if the vocabularies differ, embeddings are matched by "
        "token",
    )


def _add_reporting_flags(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each field of `TrainOptions`, first those that most need."""
    common = {"save_every", "eval_every", "eval_sentences", "patience"}
    group = parser.add_argument_group("saving, evaluating, ending")
    add_option_flags(group, TrainOptions, common)
    further = add_further(parser, "further options of saving, evaluating, ending")
    add_option_flags(
        further,
        TrainOptions,
        {field.name for field in dataclasses.fields(TrainOptions)} - common,
    )


def _add_further_flags(parser: argparse.ArgumentParser) -> None:
    further = add_further(parser, "further options")
    further.add_argument(
        "--seed",
        type=seed,
        help="seed of the initial weights, the order of the data, and dropout "
        "(default: 0)",
    )
    further.add_argument(
        "--simulate_devices",
        type=not_negative,
        default=0,
        metavar="N",
        help="number of replicas on the CPU, for tests (default: one on every GPU)",
    )
    further.add_argument(
        "--accumulate",
        type=positive,
        metavar="N",
        help="gradient accumulation: each replica divides its part of a batch into N "
        "micro-batches, which takes the memory of one and gives the same update "
        "(default: 1)",
    )
    further.add_argument(
        "--change_settings",
        action="store_true",
        help="resume the run with other values of some hyper-parameters: "
        f"{', '.join(sorted(CHANGEABLE_FIELDS))}",
    )
    for name, plugin in load_plugins("hooks").items():
        further.add_argument(f"--{name}", action="store_true", help=plugin.help)
    further.add_argument(
        "--callbacks",
        metavar="MODULE:FUNCTION",
        help="a function without arguments, such as one in --usr_dir, that returns a "
        "list of Keras callbacks",
    )


def settings_of(args: argparse.Namespace) -> TrainSettings:
    """Returns the settings that the flags of `t2t train` mean.

    Raises:
        UserError: a flag is missing, or names what is not there.
    """
    if args.output_dir is None:
        required = "" if args.problem else "--problem, --hparams_set, --data_dir and "
        raise UserError(
            f"give {required}--output_dir; to resume a run, only --output_dir"
        )
    require_utf8("output_dir", args.output_dir)
    return train_settings(
        args.output_dir,
        args.problem,
        args.hparams_set,
        usr_dir=args.usr_dir,
        data_dir=args.data_dir,
        init_from=args.init_from,
        options=given_options(args, TrainOptions),
    )


def _check_train(args: argparse.Namespace) -> None:
    from t2t_keras.data.manifest import Manifest

    settings = settings_of(args)
    problem = registry.problem(settings.problem)
    settings.hparams.parse(args.hparams)
    Manifest.open(Path(settings.data_dir), problem.data_name)


def _load_callbacks(function_name: str | None) -> list[Any]:
    """Returns the Keras callbacks that the function `module:function` returns."""
    if not function_name:
        return []
    module, _, name = function_name.partition(":")
    if not (module and name):
        raise UserError(
            f"--callbacks {function_name}: give MODULE:FUNCTION, such as "
            "my_callbacks:board for the function board of my_callbacks.py in --usr_dir"
        )
    try:
        callbacks = pkgutil.resolve_name(function_name)()
    except Exception as error:
        raise UserError(
            f"--callbacks {function_name}: {type(error).__name__}: {first_line(error)}"
        ) from error
    if not isinstance(callbacks, list):
        raise UserError(
            f"--callbacks {function_name}: it must return a list of callbacks, not "
            f"{type(callbacks).__name__}"
        )
    return callbacks


def _train(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.training.strategy import LostProcess
    from t2t_keras.training.train import train

    # All other parameters of `train` have a flag of the same name.
    names = {*inspect.signature(train).parameters} - {"options", "callbacks", "hooks"}
    flags = {name: getattr(args, name) for name in names}
    hooks = [name for name in plugin_names("hooks") if getattr(args, name, False)]
    try:
        callbacks = _load_callbacks(args.callbacks)
        options = given_options(args, TrainOptions)
        result = train(**flags, **options, callbacks=callbacks, hooks=hooks)
    except LostProcess:
        if LAUNCHED in os.environ:
            raise SystemExit(LOST) from None
        raise
    stopped_by = result.stopped_by
    by_signal = stopped_by in signal.Signals.__members__
    if by_signal and result.is_chief:
        say(
            f"t2t train: {stopped_by}: saved step {result.step}; the same command "
            "continues"
        )
    code = 128 + signal.Signals[stopped_by] if by_signal else 0
    if not result.is_chief:
        os._exit(code)  # TensorFlow would report the end of the chief as an error
    if by_signal:
        raise SystemExit(code)
    return result.to_dict()


def _show_train(result: dict[str, Any]) -> str:
    """Formats the end of a training in five rows, those of dev for the average too."""
    rows: dict[str, str] = {"steps": f"{result['step']} ({result['stopped_by']})"}
    rows["loss"] = _short(result["loss"])
    rows["dev nll"] = _short(result["dev_loss"])
    average = result["dev_average"] or {}
    if "loss" in average:
        rows["dev nll"] += f"; of the average {_short(average['loss'])}"
    for name, value in (result["dev_metrics"] or {}).items():
        rows[f"dev {name}"] = _short(value)
        if name in average:
            rows[f"dev {name}"] += f"; of the average {_short(average[name])}"
    rows["target tokens/s"] = _short(result["target_tokens_per_s"])
    return table(rows)


def _short(value: float | None) -> str:
    """Formats a number with four digits."""
    return "not measured" if value is None else f"{value:.4g}"


def _average_flags(parser: argparse.ArgumentParser) -> None:
    add_run_dir(parser)
    parser.add_argument(
        "--last",
        type=positive,
        required=True,
        metavar="N",
        help="number of checkpoints to average: the newest ones",
    )


def _average(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.run.checkpoint import average_run

    return {"checkpoint": str(average_run(args.output_dir, args.last))}


COMMANDS = {
    "train": Command(
        "train a model, or resume its training",
        _train_flags,
        _train,
        _show_train,
        uses_tensorflow=True,
        check=_check_train,
        waiting="preparing the training",
        resumes=True,
        words_hint="to resume a run: t2t train --output_dir RUN",
        next_command=lambda args: f"t2t evaluate {quoted(args.output_dir)}",
        group="data and training",
    ),
    "average": Command(
        "average the newest checkpoints of a run",
        _average_flags,
        _average,
        lambda result: result["checkpoint"],
        uses_tensorflow=True,
        check=lambda args: require_directory("output_dir", args.output_dir),
        waiting="averaging the checkpoints",
        next_command=lambda args: f"t2t evaluate {quoted(args.output_dir)}",
        group="data and training",
    ),
}
