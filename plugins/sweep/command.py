"""`t2t sweep`: trains with hyper-parameters of some ranges, and finds the best ones."""

import argparse
import contextlib
import dataclasses
import os
from pathlib import Path
from typing import Any

from t2t_keras import registry
from t2t_keras.cli.command import (
    Command,
    add_further,
    add_hparams,
    add_keys,
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
from t2t_keras.files.atomic import lock
from t2t_keras.options import OptionValues, split_pairs
from t2t_keras.training.settings import TrainOptions

from .settings import Direction, SweepSettings
from .trial import shown_hparams, shown_value

# A trial is compared by its best evaluation, and is not used for anything else.
_DEFAULTS: OptionValues = {"best_by": "metric", "average_last": 0, "keep": 1}
_EVALUATIONS = 10  # of a trial, unless --eval_every says otherwise


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
        "directory for each trial, and page.html",
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
        help="number of trials at a time, each with one of the visible GPUs or its "
        "share of the cores (default: 1)",
    )
    _add_search_flags(parser)
    _add_evaluation_flags(parser)
    # An extension of the command may give a `training.trials.TrialRunner`.
    parser.set_defaults(trial_runner=None)


def _add_evaluation_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("evaluating")
    group.add_argument(
        "--eval_every",
        type=positive,
        metavar="N",
        help="steps between evaluations (default: a tenth of the steps)",
    )
    add_option_flags(group, TrainOptions, ["eval_sentences"])
    names = {field.name for field in dataclasses.fields(TrainOptions)}
    add_keys(
        parser,
        group,
        "--train_options",
        TrainOptions,
        "best_by=loss",
        rule="Here best_by is metric, average_last 0 and keep 1, unless given.\n",
        listed=names - {"eval_every", "eval_sentences", "max_minutes"},
    )


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


def _settings(args: argparse.Namespace) -> SweepSettings:
    """Returns the settings that the flags give; raises UserError for mistakes."""
    hparams = registry.hparams(args.hparams_set).parse(args.hparams)
    try:
        ranges = registry.ranged_hparams(args.ranges).resolve(hparams)
    except UserError as error:
        raise UserError(f"--ranges '{args.ranges}': {error}") from None
    given_values = given_options(args, TrainOptions, "train_options")
    if "max_minutes" in given_values:
        raise UserError(
            "--train_options: max_minutes makes the trials depend on the speed of the "
            "machine; leave it out"
        )
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
        train_steps=args.train_steps,
        seed=args.seed,
        options=options,
        metric=metric,
        direction=direction,
        startup_trials=args.startup_trials,
        prunes=not args.no_pruning,
        workers=args.workers,
    )


def _sweep(args: argparse.Namespace) -> dict[str, Any]:
    from .external_trials import ExternalTrials
    from .report import Report
    from .scheduler import Scheduler
    from .study import SweepStudy, storage_errors

    directory = Path(args.output_dir)
    with _exclusive(directory), storage_errors(directory):
        study = SweepStudy.create(directory, _settings(args))
        workers = min(args.workers, study.settings.workers)
        if args.workers > workers:
            say(
                f"the sweep was begun with --workers {workers}, on which its trials "
                f"depend; {workers} run at a time"
            )
        ended = sum(trial.state != "running" for trial in study.trials())
        total = max(args.trials, ended)
        with progress("sweep", "trials", total, ended) as advance:
            report = Report(directory, study, total, advance)
            if args.trial_runner:
                stopped_by = args.trial_runner(
                    ExternalTrials(directory, study, workers, args.trials, report)
                )
            else:
                scheduler = Scheduler(
                    directory, study, workers, report.on_start, report.on_end
                )
                scheduler.run(args.trials)
                stopped_by = scheduler.signal
        if stopped_by:
            say(f"t2t sweep: {stopped_by.name}; run the same command to continue")
            raise SystemExit(128 + stopped_by)
        return report.result()


def _exclusive(directory: Path) -> contextlib.AbstractContextManager[None]:
    """Keeps other sweeps out of the directory."""

    def refusal(holder: str) -> UserError:
        return UserError(
            f"--output_dir: another sweep writes to {directory}; wait until it has "
            "ended, or give another directory"
        )

    return lock(directory / "sweep.lock", refusal)


def _show_sweep(result: dict[str, Any]) -> str:
    """Formats the trials, the best first, the test, and the command for the best."""
    metric = result["metric"]
    rows = []
    for trial in result["trials"]:
        rows.append(
            {
                "trial": trial["trial"],
                "state": trial["state"],
                metric: shown_value(trial["score"]),
                "step": "" if trial["step"] is None else str(trial["step"]),
                "hparams": trial["error"] or shown_hparams(trial["hparams"]),
            }
        )
    parts = [
        columns(rows),
        result["verdict"],
        f"page: {Path(result['page']).resolve().as_uri()}",
    ]
    parts.append(f"train with the best: {result['command']}")
    return "\n\n".join(filter(None, parts))


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
