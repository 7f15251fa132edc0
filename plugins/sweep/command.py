"""`t2t sweep`: trains with hyper-parameters of some ranges, and finds the best ones."""

import argparse
import dataclasses
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras import registry
from t2t_keras.cli.command import (
    Command,
    add_further,
    add_hparams,
    add_option_flags,
    add_usr_dir,
    given_options,
    not_negative,
    positive,
    seed,
)
from t2t_keras.console import columns, progress, say
from t2t_keras.errors import UserError, require_extra, require_local
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.files.atomic import open_lines
from t2t_keras.metrics import short_number
from t2t_keras.options import OptionValues, split_pairs
from t2t_keras.ranged_hparams import Value
from t2t_keras.run.config import CheckpointPaths
from t2t_keras.training.settings import TrainOptions

from .page import best_complete, best_first, shown_value, sweep_page

if TYPE_CHECKING:
    from .study import ClaimedTrial, Direction, SweepSettings, SweepTrial

# A trial is compared by its best evaluation, and is not used for anything else.
_DEFAULTS: OptionValues = {"best_by": "metric", "average_last": 0, "keep": 1}
_EVALUATIONS = 10  # of a trial, unless --eval_every says otherwise

# The commands for the best trials.
_TRAIN = "train with the best"
_COMPARE = "compare the best two"


def _sweep_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--problem", required=True, metavar="NAME", help="a name of `t2t list`"
    )
    parser.add_argument(
        "--ranges",
        required=True,
        metavar="NAME",
        help="the ranges of the hyper-parameters, a name of `t2t list`",
    )
    parser.add_argument(
        "--trials",
        type=positive,
        required=True,
        metavar="N",
        help="number of trainings, those of earlier calls included",
    )
    add_hparams(parser)
    parser.add_argument(
        "--data_dir", required=True, metavar="DIR", help="what `t2t datagen` wrote"
    )
    parser.add_argument(
        "--output_dir",
        required=True,
        metavar="SWEEP",
        help="the directory of the sweep, new or to be resumed: the study, a run "
        "directory for each trial, and page.html; several machines that share it may "
        "run the same command at once",
    )
    add_usr_dir(parser)
    parser.add_argument(
        "--train_steps",
        type=positive,
        metavar="N",
        help="steps of each trial (default: the hparam set's)",
    )
    parser.add_argument(
        "--workers",
        type=positive,
        default=1,
        metavar="N",
        help="number of trials at a time on this machine, each with one of the visible "
        "GPUs or its share of the cores (default: 1)",
    )
    _add_search_flags(parser)
    _add_evaluation_flags(parser)


def _add_evaluation_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("evaluating")
    group.add_argument(
        "--eval_every",
        type=positive,
        metavar="N",
        help="steps between evaluations (default: a tenth of the steps)",
    )
    add_option_flags(group, TrainOptions, ["eval_sentences"])
    rule = "Here best_by is metric, average_last 0 and keep 1, unless given."
    further = add_further(parser, "options of each training", rule)
    # `max_minutes` would make the trials depend on the speed of the machine.
    names = {field.name for field in dataclasses.fields(TrainOptions)}
    shown = {"eval_every", "eval_sentences", "max_minutes"}
    add_option_flags(further, TrainOptions, names - shown)


def _add_search_flags(parser: argparse.ArgumentParser) -> None:
    further = add_further(parser, "further options")
    further.add_argument(
        "--seed",
        type=seed,
        default=0,
        help="seed of the search and of each training (default: 0)",
    )
    further.add_argument(
        "--startup_trials",
        type=not_negative,
        default=5,
        metavar="N",
        help="number of trials that are drawn at random and never pruned (default: 5)",
    )
    further.add_argument(
        "--no_pruning",
        action="store_true",
        help="train every trial to the end; otherwise one ends at an evaluation if its "
        "best score is below the median of the others at that step",
    )


def _check_sweep(args: argparse.Namespace) -> None:
    from t2t_keras.data.manifest import Manifest

    require_extra("sweep", "t2t sweep", "optuna")
    if os.environ.get("TF_CONFIG"):
        raise UserError(
            "the environment variable TF_CONFIG names the processes of one training, "
            "and each trial is a training of one process; unset it"
        )
    for flag in ("data_dir", "output_dir"):
        require_local(f"--{flag}", getattr(args, flag))
    problem = registry.problem(args.problem)
    settings = _settings(args)
    manifest = Manifest.open(Path(args.data_dir), problem.data_name)
    if not manifest.examples.get("dev"):
        raise UserError(
            f"--data_dir: {args.data_dir} has no dev split, on which trials are "
            "compared; run `t2t datagen` with dev files"
        )
    duplicates = settings.ranges.keys() & split_pairs(args.hparams).keys()
    for name in sorted(duplicates):
        raise UserError(f"--hparams: '{name}' has a range in '{args.ranges}'")


def _settings(args: argparse.Namespace) -> "SweepSettings":
    """Returns the settings that the flags give; raises UserError for mistakes."""
    from .study import SweepSettings

    hparams = registry.hparams(args.hparams_set).parse(args.hparams)
    try:
        ranges = registry.ranged_hparams(args.ranges).resolve(hparams)
    except UserError as error:
        raise UserError(f"--ranges '{args.ranges}': {error}") from None
    given_values = given_options(args, TrainOptions)
    options: OptionValues = _DEFAULTS | given_values
    steps = args.train_steps or hparams.train_steps
    options.setdefault("eval_every", max(1, steps // _EVALUATIONS))
    if options.get("eval_sentences") == 0 and "best_by" not in given_values:
        options["best_by"] = "loss"
    TrainOptions(**options)
    metric = "loss"
    direction: Direction = "minimize"
    if options["best_by"] == "metric":
        metrics = metrics_of(registry.problem(args.problem))
        metric = metrics.selection_metric
        direction = "maximize" if metrics.higher_is_better else "minimize"
    usr_dir = args.usr_dir and str(Path(args.usr_dir).resolve())
    return SweepSettings(
        problem=args.problem,
        ranges_name=args.ranges,
        ranges=ranges,
        hparams_set=args.hparams_set,
        hparams=args.hparams,
        data_dir=str(Path(args.data_dir).resolve()),
        usr_dir=usr_dir,
        train_steps=steps,
        seed=args.seed,
        options=options,
        metric=metric,
        direction=direction,
        startup_trials=args.startup_trials,
        prunes=not args.no_pruning,
        workers=args.workers,
    )


def _sweep(args: argparse.Namespace) -> dict[str, Any]:
    from .study import SweepStudy
    from .trial import TrialRunner

    directory = Path(args.output_dir)
    study = SweepStudy.open(directory, _settings(args))
    settings = study.settings
    trials = study.trials()
    ended = sum(trial.state != "running" for trial in trials)
    total = max(args.trials, len(trials))
    with progress("sweep", "trials", total, ended) as advance:

        def on_end(trial: "SweepTrial") -> None:
            say(_end_line(trial, settings.metric))
            advance(1)
            _write_page(directory, settings, study.trials(), total)

        runner = TrialRunner(study, args.workers, _say_start, on_end)
        runner.run(args.trials)
    if runner.signal:
        say(f"t2t sweep: {runner.signal.name}; run the same command to continue")
        raise SystemExit(128 + runner.signal)
    return _result(directory, settings, study.trials(), total)


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
        "command": commands[_TRAIN],
        "compare": commands.get(_COMPARE),
        "page": str(_write_page(directory, settings, trials, count)),
    }


def _write_page(
    directory: Path,
    settings: "SweepSettings",
    trials: Sequence["SweepTrial"],
    count: int,
) -> Path:
    commands = _commands(directory, settings, best_complete(settings, trials))
    page = sweep_page(directory.resolve().name, settings, trials, count, commands)
    path = directory / "page.html"
    with open_lines(path) as file:
        file.write(page)
    return path


def _commands(
    directory: Path, settings: "SweepSettings", best: Sequence["SweepTrial"]
) -> dict[str, str]:
    """Returns commands for the trials that were trained to the end, the best first."""
    from .study import run_dir

    commands = {}
    if best:
        flags = settings.train_flags(best[0].hparams, directory / "best")
        commands[_TRAIN] = shlex.join(["t2t", "train", *flags])
    if len(best) > 1:
        runs = [str(run_dir(directory, trial.index)) for trial in best[1::-1]]
        words = ["t2t", "compare", *runs, "--checkpoint", "best"]
        commands[_COMPARE] = shlex.join(words)
    return commands


def _shown_hparams(hparams: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={shown_value(value)}" for name, value in hparams.items())


def _show_sweep(result: dict[str, Any]) -> str:
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


COMMAND = Command(
    "search the best hyper-parameters in some ranges",
    _sweep_flags,
    _sweep,
    _show_sweep,
    check=_check_sweep,
    waiting="opening the study",
    resumes=True,
    group="data and training",
)
