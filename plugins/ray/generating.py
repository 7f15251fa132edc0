"""`t2t datagen --cluster`: generates data on a Ray cluster."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any, get_args

from t2t_keras.cli.command import Command
from t2t_keras.cli.data import run_datagen
from t2t_keras.data.shard import WHOLE
from t2t_keras.errors import UserError, require_extra
from t2t_keras.problem import Split

from .flags import WorkerSize, add_cluster, cluster_extension
from .input_files import absolute

_SIZE = WorkerSize(cores=1)  # of a task


def _files(args: argparse.Namespace) -> list[Path]:
    """Makes the paths of the flags absolute; returns the files of pairs."""
    args.data_dir = absolute(args.data_dir)
    if args.usr_dir:
        args.usr_dir = absolute(args.usr_dir)
    files = []
    for split in get_args(Split):
        for side in ("source", "target"):
            path = getattr(args, f"{split}_{side}")
            if path:
                files.append(Path(absolute(path)))
                setattr(args, f"{split}_{side}", str(files[-1]))
    if args.mixture:
        args.mixture = absolute(args.mixture)
        files.append(Path(args.mixture))
    return [path for path in files if path.is_file()]


def _run(args: argparse.Namespace) -> dict[str, Any]:
    from .cluster import connected, require_capacity
    from .nodes import require_same_nodes
    from .task_runner import RayTaskRunner

    files = _files(args)
    with connected(args.cluster):
        workers = require_capacity(_SIZE, args.workers)
        Path(args.data_dir).mkdir(parents=True, exist_ok=True)
        require_same_nodes(read=files, written=[args.data_dir])
        runner = RayTaskRunner(workers, _SIZE, args.usr_dir or "")
        return run_datagen(args, runner)


def _on_cluster(command: Command) -> Command:
    def check(args: argparse.Namespace) -> None:
        require_extra("ray", "--cluster", "ray")
        if args.shard != str(WHOLE):
            raise UserError(
                "--shard has no effect with --cluster, which divides the work itself; "
                "leave it out"
            )
        command.check(args)

    return dataclasses.replace(command, run=_run, check=check)


EXTENSION = cluster_extension(add_cluster, _on_cluster)
