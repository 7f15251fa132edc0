"""Runs the tasks of data generation on a cluster; Ray repeats those of a lost process.

A task that has lost its process several times ends the command: it may need more memory
than a machine has.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import ray
from ray import cloudpickle
from ray.exceptions import RayError, RayTaskError

from t2t_keras.errors import UserError, first_line
from t2t_keras.usr_dir import load_usr_dir

from .cluster import WorkerSize, capacity, node_resources, require_start

A = TypeVar("A")
R = TypeVar("R")

_MAX_RETRIES = 5
_SECONDS_TO_WAIT = 1.0
_SECONDS_WITHOUT_NODES = 120.0


class RayTaskRunner:
    """A `TaskMap` whose tasks run on the cluster that is connected.

    Args:
        workers: the number of tasks that run at the same time.
        size: what a task takes of a node.
        usr_dir: the folder of the user's definitions, which every task imports; "":
            there is none.

    Raises:
        UserError: no task starts, because others use the cluster.
    """

    def __init__(self, workers: int, size: WorkerSize, usr_dir: str = "") -> None:
        # Of the tasks whose results are not read after the error of another one.
        os.environ["RAY_IGNORE_UNHANDLED_ERRORS"] = "1"
        self._workers = workers
        self._size = size
        self._settings = (usr_dir, os.getcwd())
        self._call = ray.remote(_call).options(
            num_cpus=size.cores,
            max_retries=_MAX_RETRIES,
            scheduling_strategy="SPREAD",
        )
        probe = self._send(abs, 0)
        require_start([probe], f"task of {self._size}")
        _result(probe)

    def __call__(
        self, task: Callable[[A], R], arguments: Sequence[A], /
    ) -> Iterator[R]:
        """Yields the results of the calls, in the order of the arguments.

        Raises:
            UserError: a task has raised it or has lost several processes, or all nodes
                are lost.
        """
        waiting: dict[Any, int] = {}  # the index of each call that runs
        results: dict[int, R] = {}
        count = 0  # calls that were sent
        last_life = time.monotonic()
        for index in range(len(arguments)):
            while index not in results:
                while count < len(arguments) and len(waiting) < self._workers:
                    waiting[self._send(task, arguments[count])] = count
                    count += 1
                done, _ = ray.wait(list(waiting), timeout=_SECONDS_TO_WAIT)
                for reference in done:
                    results[waiting.pop(reference)] = _result(reference)
                if done or self._has_nodes():
                    last_life = time.monotonic()
                elif time.monotonic() - last_life > _SECONDS_WITHOUT_NODES:
                    raise UserError(
                        "--cluster: all nodes are lost, and none has come back in "
                        f"{_SECONDS_WITHOUT_NODES:.0f} s; add nodes and run the same "
                        "command again: it continues"
                    )
            yield results.pop(index)

    def _send(self, task: Callable[[A], R], argument: A) -> Any:
        """Starts a call; returns Ray's reference to its result."""
        # The user's definitions, which may be in it, are imported before it is read.
        content = cloudpickle.dumps((task, argument))
        return self._call.remote(content, *self._settings)

    def _has_nodes(self) -> bool:
        return capacity(node_resources(), self._size) > 0


def _call(content: bytes, usr_dir: str, directory: str) -> object:
    """Calls a task in a process of the cluster.

    Args:
        content: the task and its argument, pickled.
        usr_dir: see `RayTaskRunner`.
        directory: the directory of the command, to which relative paths belong.
    """
    with contextlib.suppress(OSError):  # a node may lack it, if all paths are absolute
        os.chdir(directory)
    if usr_dir:
        load_usr_dir(usr_dir)
    task, argument = cloudpickle.loads(content)
    return task(argument)


def _result(reference: Any) -> Any:
    """Returns the result of a call that is done.

    Raises:
        UserError: see `RayTaskRunner.__call__`.
        OSError: the task has raised it: a disk may be full.
    """
    try:
        return ray.get(reference)
    except RayTaskError as error:
        if isinstance(error.cause, UserError):
            raise UserError(str(error.cause)) from None
        if isinstance(error.cause, OSError):
            raise error.cause from None
        raise
    except RayError as error:
        raise UserError(
            f"--cluster: a task lost its process {_MAX_RETRIES + 1} times, perhaps "
            f"out of memory ({first_line(error)}); run the same command with fewer "
            "--workers, and it continues where it stopped"
        ) from None
