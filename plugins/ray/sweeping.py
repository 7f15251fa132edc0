"""`t2t sweep --cluster`: runs the trials on a Ray cluster, by Ray Tune."""

import argparse
import contextlib
import dataclasses
import logging
import os
import shutil
import signal
from pathlib import Path
from typing import Any

from t2t_keras.cli.command import Command, not_negative, positive
from t2t_keras.errors import require_extra
from t2t_keras.training.trial_processes import stopping
from t2t_keras.training.trials import Trials

from .flags import WorkerSize, add_cluster, cluster_extension
from .process_environment import shared_variables

_TUNE = "tune"  # Tune's folder in the directory of the sweep
# The report of the sweep replaces Tune's logs, and its tables on the terminal.
_TUNE_ENVIRONMENT = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
}
_MAX_RESTARTS = 3  # of a trial whose process or node is lost


def _flags(parser: argparse.ArgumentParser) -> None:
    group = add_cluster(parser)
    group.add_argument(
        "--cores_per_trial",
        type=positive,
        default=1,
        metavar="N",
        help="cores of each trial (default: 1)",
    )
    group.add_argument(
        "--gpus_per_trial",
        type=not_negative,
        default=0,
        metavar="N",
        help="GPUs of each trial (default: 0)",
    )


def _run(command: Command, args: argparse.Namespace) -> Any:
    from .cluster import connected, require_capacity
    from .nodes import require_same_nodes
    from .source_files import module_files

    size = WorkerSize(args.cores_per_trial, args.gpus_per_trial)
    read = sorted(Path(args.data_dir).absolute().glob("*.manifest.json"))
    if args.usr_dir:
        read += module_files(args.usr_dir)
    directory = Path(args.output_dir).absolute()
    with connected(args.cluster):
        require_capacity(size, args.workers)
        directory.mkdir(parents=True, exist_ok=True)
        require_same_nodes(read, [directory])
        args.trial_runner = lambda trials: _run_trials(trials, size)
        return command.run(args)


def _run_trials(trials: Trials, size: WorkerSize) -> signal.Signals | None:
    """Runs the trials; see `trials.TrialRunner`."""
    os.environ |= _TUNE_ENVIRONMENT
    from ray import tune

    from .trial_search import StoppedError, TrialEvents, TrialSearcher, pruning
    from .trial_worker import TrialWorker

    # Not in the configuration of a trial, which Ray shows: they may have passwords.
    variables = shared_variables(os.environ)
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    events = TrialEvents(trials)
    # The study has what continues a sweep; Tune's own state is not read again.
    shutil.rmtree(trials.directory / _TUNE, ignore_errors=True)
    try:
        with stopping(events.stop), contextlib.suppress(StoppedError):
            tune.run(
                tune.with_parameters(TrialWorker, variables=variables),
                name=_TUNE,
                storage_path=str(trials.directory),
                resources_per_trial={"cpu": size.cores, "gpu": size.gpus},
                num_samples=-1,  # until the searcher has no more
                search_alg=TrialSearcher(trials, size.cores),
                scheduler=pruning(trials),
                callbacks=[events],
                trial_dirname_creator=lambda trial: trial.trial_id,
                max_failures=_MAX_RESTARTS,
                raise_on_failed_trial=False,
                verbose=0,
            )
    finally:
        shutil.rmtree(trials.directory / _TUNE, ignore_errors=True)
    return events.signal


def _on_cluster(command: Command) -> Command:
    def check(args: argparse.Namespace) -> None:
        require_extra("ray", "t2t sweep --cluster", "ray", "pandas", "pyarrow")
        command.check(args)

    return dataclasses.replace(
        command, run=lambda args: _run(command, args), check=check
    )


EXTENSION = cluster_extension(_flags, _on_cluster)
