"""`t2t datagen --cluster`: generates data on a Ray cluster."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any, get_args

from t2t_keras.cli.command import Command
from t2t_keras.cli.data import run_datagen
from t2t_keras.errors import require_extra
from t2t_keras.problem import Split

from .cluster import WorkerSize, absolute, add_cluster, cluster_extension

_SIZE = WorkerSize(cores=1)  # of a task


def _make_absolute(args: argparse.Namespace) -> None:
    """Makes the paths of the flags absolute."""
    args.data_dir = absolute(args.data_dir)
    if args.usr_dir:
        args.usr_dir = absolute(args.usr_dir)
    if args.mixture:
        args.mixture = absolute(args.mixture)
    for split in get_args(Split):
        for side in ("source", "target"):
            path = getattr(args, f"{split}_{side}")
            if path:
                setattr(args, f"{split}_{side}", absolute(path))


def _run(args: argparse.Namespace) -> dict[str, Any]:
    from .cluster import connected, require_capacity, require_same_nodes
    from .datagen import ClusterStages
    from .task_runner import RayTaskRunner

    def make_stages() -> ClusterStages:
        files = [Path(args.mixture)] if args.mixture else []
        for split in get_args(Split):
            for side in ("source", "target"):
                path = getattr(args, f"{split}_{side}")
                files += [Path(path)] if path else []
        if args.usr_dir:
            files += Path(args.usr_dir).rglob("*.py")
        Path(args.data_dir).mkdir(parents=True, exist_ok=True)
        require_same_nodes(read=files, written=[args.data_dir])
        runner = RayTaskRunner(workers, _SIZE, args.usr_dir or "")
        return ClusterStages(runner, workers)

    _make_absolute(args)
    with connected(args.cluster):
        workers = require_capacity(_SIZE, args.workers)
        return run_datagen(args, make_stages)


def _on_cluster(command: Command) -> Command:
    def check(args: argparse.Namespace) -> None:
        require_extra("ray", "--cluster", "ray")
        command.check(args)

    return dataclasses.replace(command, run=_run, check=check)


EXTENSION = cluster_extension(add_cluster, _on_cluster)
