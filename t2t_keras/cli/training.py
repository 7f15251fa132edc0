"""The commands that write weights: `train` and `average`."""

import dataclasses
import inspect
import os
import pkgutil
import signal
from typing import Any

from t2t_keras.cli.command import (
    FURTHER,
    MAX_SEED,
    REQUIRED,
    Command,
    CommandResult,
    FlagGroup,
    RunFlags,
    UsrDirFlags,
    hparams_flag,
    option_flags,
    quoted,
)
from t2t_keras.cli.lines import require_directory, require_utf8
from t2t_keras.console import say
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError, first_line, quantity
from t2t_keras.hparam import CHANGEABLE_FIELDS
from t2t_keras.options import OptionValues, option
from t2t_keras.processes import LAUNCHED, LOST
from t2t_keras.run.config import RunConfig, is_run, other_than_run
from t2t_keras.training.settings import TrainOptions, run_settings

_SAVING = FlagGroup("saving, evaluating, ending")
_FURTHER_SAVING = FlagGroup(
    "further options of saving, evaluating, ending", is_further=True
)
_COMMON = {"save_every", "eval_every", "eval_sentences", "patience"}
_OTHERS = {field.name for field in dataclasses.fields(TrainOptions)} - _COMMON


@dataclasses.dataclass(kw_only=True)
class Train(UsrDirFlags, Command):
    """Trains a model, or resumes its training."""

    summary = "train a model, or resume its training"
    heading = "data and training"
    waiting = "preparing the training"
    resumes = True
    words_hint = "to resume a run: t2t train --output_dir RUN"
    usage = (
        "t2t train --problem NAME --data_dir DIR --output_dir RUN [flags]\n"
        "       t2t train --output_dir RUN [flags]"
    )

    problem: str | None = option(
        None,
        "a name of `t2t list`; without it a run is resumed, with its settings unless "
        "other flags change them",
        metavar="NAME",
    )
    hparams_set: str | None = option(None, "a name of `t2t list`", metavar="SET")
    hparams: str = hparams_flag()
    data_dir: str | None = option(None, "what `t2t datagen` wrote", metavar="DIR")
    output_dir: str | None = option(
        None, "the run directory, new or to be resumed", metavar="RUN"
    )
    train_steps: int | None = option(
        None, "total steps (default: the hparam set's)", ge=1
    )
    init_from: str | None = option(
        None,
        "fine-tuning: a run directory, or a checkpoint in one, to take the initial "
        "weights from; if the vocabularies differ, embeddings are matched by token",
        metavar="RUN",
        group=FlagGroup("earlier runs"),
    )
    options: OptionValues = option_flags(
        TrainOptions, {_SAVING: _COMMON, _FURTHER_SAVING: _OTHERS}
    )
    seed: int | None = option(
        None,
        "seed of the initial weights, the order of the data, and dropout (default: 0)",
        ge=0,
        lt=MAX_SEED,
        group=FURTHER,
    )
    simulate_devices: int = option(
        0,
        "number of replicas on the CPU, for tests (default: one on every GPU)",
        ge=0,
        group=FURTHER,
    )
    accumulate: int | None = option(
        None,
        "gradient accumulation: each replica divides its part of a batch into N "
        "micro-batches, which takes the memory of one and gives the same update "
        "(default: 1)",
        ge=1,
        group=FURTHER,
    )
    change_settings: bool = option(
        False,
        "resume the run with other values of some hyper-parameters: "
        f"{', '.join(sorted(CHANGEABLE_FIELDS))}",
        group=FURTHER,
    )
    callbacks: str | None = option(
        None,
        "a function without arguments, such as one in --usr_dir, that returns a list "
        "of Keras callbacks",
        metavar="MODULE:FUNCTION",
        group=FURTHER,
    )

    @classmethod
    def plugin_flags(cls, problem: str | None, usr_dir: str | None) -> type | None:
        """Returns a flag for each hook of a plugin."""
        hooks = load_plugins("hooks").items()
        return dataclasses.make_dataclass(
            "Hooks",
            [(name, bool, option(False, x.help, group=FURTHER)) for name, x in hooks],
        )

    def needs_tensorflow(self) -> bool:
        """Needs it to train."""
        return True

    def check(self) -> None:
        """Refuses settings and data with which no training can begin."""
        self.settings()

    def settings(self) -> RunConfig:
        """Returns the configuration of the run that the flags mean.

        Raises:
            UserError: a flag is missing or impossible, or the data cannot be used.
        """
        if self.output_dir is None:
            required = "--problem, --hparams_set, --data_dir and "
            raise UserError(
                f"give {'' if self.problem else required}--output_dir; to resume a "
                "run, only --output_dir"
            )
        require_utf8("output_dir", self.output_dir)
        config, _, _ = run_settings(
            self.output_dir,
            self.problem,
            self.hparams_set,
            self.hparams,
            usr_dir=self.usr_dir,
            data_dir=self.data_dir,
            init_from=self.init_from,
            options=self.options,
        )
        return config

    def run(self) -> CommandResult:
        """Trains, and returns the result of `train`."""
        from t2t_keras.training.strategy import LostProcess
        from t2t_keras.training.train import train

        # All other parameters of `train` have a flag of the same name.
        names = {*inspect.signature(train).parameters}
        names -= {"options", "callbacks", "hooks"}
        flags = {name: getattr(self, name) for name in names}
        hooks = [name for name, asked in vars(self.plugin_values).items() if asked]
        try:
            callbacks = _load_callbacks(self.callbacks)
            result = train(**flags, **self.options, callbacks=callbacks, hooks=hooks)
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

    def show(self, result: CommandResult) -> str:
        """Says how the training has ended; its log has the metrics."""
        steps = quantity(result["step"], "steps")
        return f"{self.output_dir}: {steps}, ended by {result['stopped_by']}"

    def next_command(self) -> str:
        """Returns the command that evaluates the run."""
        return f"t2t evaluate {quoted(self.output_dir or '')}"


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


@dataclasses.dataclass(kw_only=True)
class Average(RunFlags, Command):
    """Averages the newest checkpoints of a run."""

    summary = "average the newest checkpoints of a run"
    heading = "data and training"
    waiting = "averaging the checkpoints"

    last: int = option(REQUIRED, "how many of the newest checkpoints to average", ge=1)

    def needs_tensorflow(self) -> bool:
        """Needs it to read and write checkpoints."""
        return True

    def check(self) -> None:
        """Refuses a path without checkpoints."""
        if not is_run(self.output_dir):
            if what := other_than_run(self.output_dir):
                raise UserError(what)
            require_directory("output_dir", self.output_dir)

    def run(self) -> CommandResult:
        """Returns the path of the average."""
        from t2t_keras.run.checkpoint import average_run

        return {"checkpoint": str(average_run(self.output_dir, self.last))}

    def show(self, result: CommandResult) -> str:
        """Returns the path of the average."""
        return str(result["checkpoint"])

    def next_command(self) -> str:
        """Returns the command that evaluates the run."""
        return f"t2t evaluate {quoted(self.output_dir)}"


COMMANDS = {"train": Train, "average": Average}
