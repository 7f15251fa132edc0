"""The connection to a Ray cluster, and the number of workers that it can run."""

import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t2t_keras.errors import UserError, first_line, quantity, require_extra
from t2t_keras.tensorflow_import import diverted_stderr

from .flags import WorkerSize

_ADDRESS = re.compile(r"(\[[\w.:-]+\]|[\w.:-]+):(\d{1,5})")
_SECONDS_TO_ANSWER = 5.0
_SECONDS_TO_CONNECT = 25.0
_SECONDS_TO_START = 25.0
_SECONDS_WITHOUT_LIFE = 120.0
_ADVICE = "`ray start --address HOST:PORT` makes this machine a node of it"


@contextlib.contextmanager
def connected(address: str) -> Iterator[None]:
    """Connects to a cluster for the time of the block.

    Args:
        address: `HOST:PORT`, or "auto".

    Raises:
        UserError: Ray is not installed; there is no cluster, it has another version of
            Ray or Python, or this machine is not a node of it.
    """
    require_extra("ray", "--cluster", "ray")
    _require_answer(address)
    import ray

    try:
        # Ray's C++ code prints what it tries.
        with _deadline(address), diverted_stderr():
            ray.init(
                address=address,
                configure_logging=False,
                log_to_driver=False,
            )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise UserError(_refusal(address, error)) from None
    try:
        yield
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Refuses an address that is none, or where nothing answers."""
    if address == "auto":
        return
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise UserError(
            f"--cluster {address} is not an address; give HOST:PORT, as `ray start` "
            "prints it, or auto"
        )
    host_and_port = (match[1].strip("[]"), int(match[2]))
    try:
        socket.create_connection(host_and_port, _SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise UserError(
            f"--cluster {address}: there is no cluster ({reason}); `ray start --head` "
            "starts one and prints its address"
        ) from None


@contextlib.contextmanager
def _deadline(address: str) -> Iterator[None]:
    """Ends the program if the block takes too long.

    Ray's own limit is two minutes, and nothing interrupts it.
    """
    stderr = os.dup(2)
    message = (
        f"t2t: error: --cluster {address}: no answer of a Ray cluster in "
        f"{_SECONDS_TO_CONNECT:.0f} s; give the address that `ray start` prints; "
        f"{_ADVICE}\n"
    )

    def end() -> None:
        os.write(stderr, message.encode())
        os._exit(2)

    timer = threading.Timer(_SECONDS_TO_CONNECT, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        os.close(stderr)


def _refusal(address: str, error: Exception) -> str:
    """Returns the sentence for an error of `ray.init`."""
    text = str(error)
    versions = re.findall(r"(Ray|Python): ([\w.]+)", text)
    if "ersion mismatch" in text and len(versions) == 4:
        programs = list(map(" ".join, versions))
        return (
            f"--cluster {address} has {', '.join(programs[:2])}, and this machine "
            f"{', '.join(programs[2:])}; install the same versions"
        )
    return f"--cluster {address}: {first_line(error)}; {_ADVICE}"


def require_start(references: Sequence[object], name: str) -> None:
    """Waits until one of some calls has answered.

    Args:
        references: Ray's references to their results.
        name: what starts, for the message.

    Raises:
        UserError: none has, because others use the cluster.
    """
    import ray

    started, _ = ray.wait(list(references), timeout=_SECONDS_TO_START)
    if not started:
        raise UserError(
            f"--cluster: no {name} has started in {_SECONDS_TO_START:.0f} s; other "
            "programs use the cluster (see `ray status`): wait for them, or add nodes"
        )


class LifeWatch:
    """Ends a command when nothing on the cluster has worked for too long.

    Args:
        loss: what is lost, for the message.
    """

    def __init__(self, loss: str) -> None:
        self._loss = loss
        self._last_life = time.monotonic()

    def check(self, is_alive: bool) -> None:
        """Notes whether something works.

        Raises:
            UserError: nothing has for two minutes.
        """
        if is_alive:
            self._last_life = time.monotonic()
        elif time.monotonic() - self._last_life > _SECONDS_WITHOUT_LIFE:
            raise UserError(
                f"--cluster: {self._loss} in {_SECONDS_WITHOUT_LIFE:.0f} s; add nodes "
                "and run the same command again: it continues"
            )


def node_resources() -> list[Mapping[str, float]]:
    """Returns what each node that is alive has, as Ray names it."""
    return [node["Resources"] for node in alive_nodes()]


def alive_nodes() -> list[dict[str, Any]]:
    """Returns Ray's descriptions of the nodes that are alive."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def capacity(resources: Sequence[Mapping[str, float]], size: WorkerSize) -> int:
    """Returns how many workers fit on the nodes if nothing else runs there.

    Args:
        resources: what each node has, as Ray names it.
        size: what a worker takes.
    """
    workers = 0
    for node in resources:
        workers_by_resource = []
        for name, needed in (("CPU", size.cores), ("GPU", size.gpus)):
            if needed:
                workers_by_resource.append(int(node.get(name, 0) // needed))
        workers += min(workers_by_resource)
    return workers


def require_capacity(size: WorkerSize, workers: int | None = None) -> int:
    """Refuses a cluster that is too small; returns the number of workers to start.

    Args:
        size: what a worker takes.
        workers: the number that the user asks for; None: as many as fit.

    Raises:
        UserError: the cluster is too small.
    """
    resources = node_resources()
    max_workers = capacity(resources, size)
    if max_workers and max_workers >= (workers or 1):
        return workers or max_workers
    cores = 0.0
    gpus = 0.0
    for node in resources:
        cores += node.get("CPU", 0)
        gpus += node.get("GPU", 0)
    raise UserError(
        f"--cluster: it has room for {quantity(max_workers, 'workers')} of {size} "
        f"({quantity(len(resources), 'nodes')}, {quantity(int(cores), 'cores')}, "
        f"{quantity(int(gpus), 'GPUs')}), not for {workers or 1}; ask for less, or add "
        "nodes"
    )
