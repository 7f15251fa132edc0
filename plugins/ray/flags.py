"""The flags of commands that run on a Ray cluster."""

import argparse
import dataclasses
from collections.abc import Callable

from t2t_keras.cli.command import (
    Command,
    Extension,
    add_further,
    not_negative,
    positive,
    utf8,
)
from t2t_keras.errors import quantity


@dataclasses.dataclass(frozen=True)
class WorkerSize:
    """What one worker takes of a node.

    Attributes:
        cores: the number of cores.
        gpus: the number of GPUs.
    """

    cores: int = 1
    gpus: int = 0

    def __str__(self) -> str:
        """Returns the size for messages."""
        texts = [quantity(self.gpus, "GPUs")] if self.gpus else []
        if self.cores:
            texts.append(quantity(self.cores, "cores"))
        return " and ".join(texts)


def add_cluster(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Adds `--cluster`; returns the group of the flags that go with it."""
    group = add_further(parser, "on a Ray cluster")
    group.add_argument(
        "--cluster",
        type=utf8,  # so that it is not taken for the address of a remote file
        metavar="ADDRESS",
        help="run on the Ray cluster of which this machine is a node: HOST:PORT, as "
        "`ray start` prints it, or auto",
    )
    return group


def add_cluster_flags(
    parser: argparse.ArgumentParser, workers: str = "all that the cluster has room for"
) -> argparse._ActionsContainer:
    """Adds `--cluster`, the number of workers, and the size of each.

    Returns the group of these flags.

    Args:
        parser: the command's parser.
        workers: the default number of workers, for the help.
    """
    group = add_cluster(parser)
    group.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help=f"number of processes on the cluster (default: {workers})",
    )
    group.add_argument(
        "--cores_per_worker",
        type=positive,
        default=1,
        metavar="N",
        help="cores of each process (default: 1)",
    )
    group.add_argument(
        "--gpus_per_worker",
        type=not_negative,
        default=0,
        metavar="N",
        help="GPUs of each process (default: 0)",
    )
    return group


def worker_size(args: argparse.Namespace) -> WorkerSize:
    """Returns the size of a worker that the flags ask for."""
    return WorkerSize(args.cores_per_worker, args.gpus_per_worker)


def cluster_extension(
    add_flags: Callable[[argparse.ArgumentParser], object],
    on_cluster: Callable[[Command], Command],
) -> Extension:
    """Returns the extension that runs another command if `--cluster` is given.

    Args:
        add_flags: adds `--cluster` and what goes with it.
        on_cluster: returns the command for the cluster, given the extended one.
    """

    def select(command: Command, args: argparse.Namespace) -> Command:
        return on_cluster(command) if args.cluster else command

    return Extension(add_flags, select)
