"""`t2t sweep`: trains with hyper-parameters of some ranges, and finds the best ones."""

import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras import registry
from t2t_keras.cli.command import (
    FURTHER,
    MAX_SEED,
    REQUIRED,
    Command,
    CommandResult,
    FlagGroup,
    UsrDirFlags,
    hparams_flag,
    option_flags,
)
from t2t_keras.console import columns, progress, say, short_number
from t2t_keras.errors import UserError, require_extra
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.files.atomic import open_lines
from t2t_keras.options import OptionValues, option, split_pairs
from t2t_keras.ranged_hparams import Value
from t2t_keras.run.config import CheckpointPaths
from t2t_keras.training.settings import TrainOptions

from .page import best_complete, best_first, shown_value, sweep_page

if TYPE_CHECKING:
    from .study import ClaimedTrial, SweepSettings, SweepTrial

# A trial is compared by its best evaluation, and is not used for anything else.
_DEFAULTS: OptionValues = {"best_by": "metric", "average_last": 0, "keep": 1}
_EVALUATIONS = 10  # of a trial, unless --eval_every says otherwise

# The commands for the best trials.
_TRAIN = "train with the best values"
_COMPARE = "compare the best two"


_EVALUATING = FlagGroup("evaluating")
_TRAINING = FlagGroup(
    "options of each training",
    "Here best_by is metric, average_last 0 and keep 1, unless given.",
    is_further=True,
)
# `max_minutes` would make the trials depend on the speed of the machine.
_OTHERS = {field.name for field in dataclasses.fields(TrainOptions)} - {
    *("eval_every", "eval_sentences", "max_minutes")
}


@dataclasses.dataclass(kw_only=True)
class Sweep(UsrDirFlags, Command):
    """Trains with hyper-parameters of some ranges, and finds the best ones."""

    summary = "search for the best hyper-parameters in some ranges"
    heading = "data and training"
    waiting = "opening the study"
    resumes = True

    problem: str = option(REQUIRED, "a name of `t2t list`", metavar="NAME")
    ranges: str = option(
        REQUIRED,
        "the ranges of the hyper-parameters, a name of `t2t list`",
        metavar="NAME",
    )
    trials: int = option(
        REQUIRED, "number of training runs, including those of earlier calls", ge=1
    )
    hparams_set: str = option(REQUIRED, "a name of `t2t list`", metavar="SET")
    hparams: str = hparams_flag()
    data_dir: str = option(REQUIRED, "what `t2t datagen` wrote", metavar="DIR")
    output_dir: str = option(
        REQUIRED,
        "the directory of the sweep, new or to be resumed: the study, a run directory "
        "for each trial, and page.html; several machines that share it may run the "
        "same command at once",
        metavar="SWEEP",
    )
    train_steps: int | None = option(
        None, "steps of each trial (default: the hparam set's)", ge=1
    )
    workers: int = option(
        1,
        "number of trials at a time on this machine, each with one of the visible GPUs "
        "or its share of the cores",
        ge=1,
    )
    eval_every: int | None = option(
        None,
        "steps between evaluations (default: a tenth of the steps)",
        ge=1,
        group=_EVALUATING,
    )
    options: OptionValues = option_flags(
        TrainOptions, {_EVALUATING: ["eval_sentences"], _TRAINING: _OTHERS}
    )
    seed: int = option(
        0,
        "seed of the search and of each training (default: 0)",
        ge=0,
        lt=MAX_SEED,
        group=FURTHER,
    )
    startup_trials: int = option(
        5,
        "number of trials that are drawn at random and never pruned",
        ge=0,
        group=FURTHER,
    )
    no_pruning: bool = option(
        False,
        "train every trial to the end; otherwise one ends at an evaluation if its best "
        "score is below the median of the others at that step",
        group=FURTHER,
    )

    def check(self) -> None:
        """Refuses settings and data with which no trial can begin."""
        from t2t_keras.data.manifest import Manifest

        require_extra("sweep", "t2t sweep", "optuna")
        if os.environ.get("TF_CONFIG"):
            raise UserError(
                "the environment variable TF_CONFIG names the processes of one "
                "training, and each trial is a training of one process; unset it"
            )
        problem = registry.problem(self.problem)
        settings = self.settings()
        manifest = Manifest.open(Path(self.data_dir), problem.data_name)
        if not manifest.examples.get("dev"):
            raise UserError(
                f"--data_dir: {self.data_dir} has no dev split, on which trials are "
                "compared; run `t2t datagen` with dev files"
            )
        duplicates = settings.ranges.keys() & split_pairs(self.hparams).keys()
        for name in sorted(duplicates):
            raise UserError(f"--hparams: '{name}' has a range in '{self.ranges}'")

    def settings(self) -> "SweepSettings":
        """Returns the settings that the flags mean.

        Raises:
            UserError: a name is unknown, or a value is impossible.
        """
        from .study import Direction, SweepSettings

        hparams = registry.hparams(self.hparams_set).parse(self.hparams)
        try:
            ranges = registry.ranged_hparams(self.ranges).resolve(hparams)
        except UserError as error:
            raise UserError(f"--ranges '{self.ranges}': {error}") from None
        steps = self.train_steps or hparams.train_steps
        options = self._train_options(steps)
        metric = "nll"
        direction: Direction = "minimize"
        if options["best_by"] == "metric":
            metrics = metrics_of(registry.problem(self.problem))
            metric = metrics.selection_metric
            direction = "maximize" if metrics.higher_is_better else "minimize"
        return SweepSettings(
            problem=self.problem,
            ranges_name=self.ranges,
            ranges=ranges,
            hparams_set=self.hparams_set,
            hparams=self.hparams,
            data_dir=str(Path(self.data_dir).resolve()),
            usr_dir=self.usr_dir and str(Path(self.usr_dir).resolve()),
            train_steps=steps,
            seed=self.seed,
            options=options,
            metric=metric,
            direction=direction,
            startup_trials=self.startup_trials,
            prunes=not self.no_pruning,
            workers=self.workers,
        )

    def _train_options(self, steps: int) -> OptionValues:
        """Returns the options of each training, which has so many steps."""
        options = _DEFAULTS | self.options
        options["eval_every"] = self.eval_every or max(1, steps // _EVALUATIONS)
        if options.get("eval_sentences") == 0 and "best_by" not in self.options:
            options["best_by"] = "nll"
        TrainOptions(**options)
        return options

    def run(self) -> CommandResult:
        """Runs the trials that are missing, and returns all of them."""
        from .study import SweepStudy
        from .trial import TrialRunner

        directory = Path(self.output_dir)
        study = SweepStudy.open(directory, self.settings())
        settings = study.settings
        trials = study.trials()
        ended = sum(trial.state != "running" for trial in trials)
        total = max(self.trials, len(trials))
        with progress("sweep", "trials", total, ended) as advance:

            def on_end(trial: "SweepTrial") -> None:
                say(_end_line(trial, settings.metric))
                advance(1)
                _write_page(directory, settings, study.trials(), total)

            runner = TrialRunner(study, self.workers, _say_start, on_end)
            runner.run(self.trials)
        if runner.signal:
            say(f"t2t sweep: {runner.signal.name}; run the same command to continue")
            raise SystemExit(128 + runner.signal)
        return _result(directory, settings, study.trials(), total)

    def show(self, result: CommandResult) -> str:
        """Formats the trials, the best first, and the commands for the best."""
        metric = result["metric"]
        rows = []
        for trial in result["trials"]:
            rows.append(
                {
                    "trial": trial["trial"],
                    "state": trial["state"],
                    metric: shown_value(trial["score"]),
                    "step": "" if trial["step"] is None else str(trial["step"]),
                    "hparams": trial["error"] or _shown_hparams(trial["hparams"]),
                }
            )
        parts = [
            columns(rows),
            f"page: {Path(result['page']).resolve().as_uri()}",
            f"{_TRAIN}: {result['command']}",
        ]
        if result["compare"]:
            parts.append(f"{_COMPARE}: {result['compare']}")
        return "\n\n".join(parts)


def _say_start(trial: "ClaimedTrial") -> None:
    step = max(CheckpointPaths(trial.run_dir).steps(), default=0)
    begins = f"resumes from step {step}:" if step else "has"
    say(f"trial {trial.index} {begins} {_shown_hparams(trial.hparams)}")


def _end_line(trial: "SweepTrial", metric: str) -> str:
    text = f"trial {trial.index}: {trial.state}"
    if trial.score is not None:
        text += f", {metric} {short_number(trial.score)} at step {trial.best_step}"
    return f"{text}: {trial.error}" if trial.error else text


def _result(
    directory: Path,
    settings: "SweepSettings",
    trials: Sequence["SweepTrial"],
    count: int,
) -> dict[str, Any]:
    """Writes the last page, and returns the result.

    Raises:
        UserError: no trial was trained to the end.
    """
    from .study import run_dir

    best = best_complete(settings, trials)
    if not best:
        failed = next((trial for trial in trials if trial.error), trials[0])
        raise UserError(
            f"no trial of {len(trials)} was trained to the end; trial "
            f"{failed.index}: {failed.error or failed.state}"
        )
    commands = _commands(directory, settings, best)
    return {
        "metric": settings.metric,
        "best": best[0].to_json(),
        "run": str(run_dir(directory, best[0].index)),
        "trials": [trial.to_json() for trial in best_first(trials, best)],
        "command": shlex.join(commands[_TRAIN]),
        "compare": shlex.join(commands.get(_COMPARE, [])) or None,
        "page": str(_write_page(directory, settings, trials, count)),
    }


def _write_page(
    directory: Path,
    settings: "SweepSettings",
    trials: Sequence["SweepTrial"],
    count: int,
) -> Path:
    # The page's commands are copied in any folder.
    folder = directory.resolve()
    commands = _commands(folder, settings, best_complete(settings, trials))
    page = sweep_page(folder.name, settings, trials, count, commands)
    path = directory / "page.html"
    with open_lines(path) as file:
        file.write(page)
    return path


def _commands(
    directory: Path, settings: "SweepSettings", best: Sequence["SweepTrial"]
) -> dict[str, list[str]]:
    """Returns the words of commands for the trials that were trained to the end.

    Args:
        directory: the directory of the sweep.
        settings: its settings.
        best: the trials, the best first.
    """
    from .study import run_dir

    commands = {}
    if best:
        flags = settings.train_flags(best[0].hparams, directory / "best")
        commands[_TRAIN] = ["t2t", "train", *flags]
    if len(best) > 1:
        runs = [str(run_dir(directory, trial.index)) for trial in best[1::-1]]
        commands[_COMPARE] = ["t2t", "compare", *runs, "--checkpoint", "best"]
    return commands


def _shown_hparams(hparams: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={shown_value(value)}" for name, value in hparams.items())


COMMAND = Sweep
