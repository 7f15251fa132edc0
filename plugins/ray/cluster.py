"""A Ray cluster: its flags, the connection, and whether its nodes can do the work."""

import contextlib
import dataclasses
import importlib.metadata
import os
import platform
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras.cli.command import FlagGroup
from t2t_keras.errors import UserError, first_line, quantity, require_extra
from t2t_keras.options import option
from t2t_keras.tensorflow_import import diverted_stderr

_ADDRESS = re.compile(r"(\[[\w.:-]+\]|[\w.:-]+):\d{1,5}")
_SECONDS_TO_ANSWER = 5.0  # at a port
_SECONDS_TO_REPORT = 25.0  # of a node
_SECONDS_TO_CONNECT = 25.0
_SECONDS_TO_START = 25.0
_ADVICE = "`ray start --address HOST:PORT` makes this machine a node of it"


def absolute(path: str | Path) -> str:
    """Returns a path that means the same on nodes with other working directories."""
    return str(Path(path).absolute())


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


CLUSTER = FlagGroup("on a Ray cluster", is_further=True)


def _address(text: str) -> str:
    """Returns the value of `--cluster`.

    Raises:
        UserError: it is not an address.
    """
    if text != "auto" and not _ADDRESS.fullmatch(text):
        raise UserError(
            f"'{text}' is not an address; give HOST:PORT, as `ray start` prints it, or "
            "auto"
        )
    return text


@dataclasses.dataclass(kw_only=True)
class ClusterFlags:
    """The flag of commands that run on a cluster."""

    cluster: str = option(
        "",
        "run on the Ray cluster of which this machine is a node: HOST:PORT, as `ray "
        "start` prints it, or auto",
        metavar="ADDRESS",
        parse=_address,
        group=CLUSTER,
    )


@dataclasses.dataclass(kw_only=True)
class WorkerFlags(ClusterFlags):
    """The flags of commands that also take the number and the size of workers."""

    workers: int | None = option(
        None,
        "number of processes on the cluster (default: as many as fit)",
        ge=1,
        group=CLUSTER,
    )
    cores_per_worker: int = option(1, "cores of each process", ge=1, group=CLUSTER)
    gpus_per_worker: int = option(
        0, "GPUs of each process (default: 0)", ge=0, group=CLUSTER
    )

    def worker_size(self) -> WorkerSize:
        """Returns the size of a worker that the flags ask for."""
        return WorkerSize(self.cores_per_worker, self.gpus_per_worker)


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
    """Refuses an address where nothing answers."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    host_and_port = (host.strip("[]"), int(port))
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


class Report(NamedTuple):
    """What a node has.

    Attributes:
        versions: the version of each program; None: it is not installed.
        sizes: the bytes of the files that it has, by path.
    """

    versions: dict[str, str | None]
    sizes: dict[str, int]


def require_same_nodes(
    read: Sequence[str | Path] = (), written: Sequence[str | Path] = ()
) -> None:
    """Refuses nodes that cannot do a part of the work.

    Only nodes with cores are asked, because the others get no workers.

    Args:
        read: files that every node must have, of the same size.
        written: folders that every node must share with this machine.

    Raises:
        UserError: a node has another version of t2t_keras or Python, does not have a
            path, or does not answer.
    """
    with _tokens(written) as tokens:
        paths = [*map(str, read), *tokens]
        expected = Report(*_probe()(paths))
        for node, report in _ask(paths):
            if mistake := difference(node, expected, report, tokens):
                raise UserError(f"--cluster: {mistake}")


def difference(
    node: str, expected: Report, report: Report, tokens: Sequence[str] = ()
) -> str | None:
    """Returns what is wrong with a node; None: nothing.

    Args:
        node: its name.
        expected: what it should have.
        report: what it has.
        tokens: the files that show that a folder is shared.
    """
    for program, local_version in expected.versions.items():
        version = report.versions[program]
        if version is None:
            return (
                f"node {node} has no {program}; install version {local_version} there, "
                "as on this machine"
            )
        if version != local_version:
            return (
                f"node {node} has {program} {version}, and this machine "
                f"{local_version}; install the same version on all nodes"
            )
    for path, size in expected.sizes.items():
        if report.sizes.get(path) != size:
            if path in tokens:
                return (
                    f"node {node} does not share the folder {os.path.dirname(path)}; "
                    "name one on a disk that all nodes share"
                )
            return (
                f"node {node} does not have {path} as this machine has it; put it on a "
                "disk that all nodes share, or copy it to all"
            )
    return None


@contextlib.contextmanager
def _tokens(folders: Sequence[str | Path]) -> Iterator[list[str]]:
    """Writes a file into each folder, under a name that no other file has."""
    paths = []
    try:
        for folder in folders:
            path = Path(folder, f".shared-{secrets.token_hex(8)}")
            path.touch()
            paths.append(path)
        yield list(map(str, paths))
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def _probe() -> Callable[[list[str]], tuple[dict[str, str | None], dict[str, int]]]:
    """Returns the function that a node runs, which returns the fields of `Report`.

    Ray sends a function that is made in another one as code, so that it runs where
    t2t_keras is absent or different.
    """

    def report(paths: list[str]) -> tuple[dict[str, str | None], dict[str, int]]:
        import os

        installed = importlib.metadata.distributions(name="t2t_keras")
        versions = {
            "Python": ".".join(platform.python_version_tuple()[:2]),
            "t2t_keras": next((x.version for x in installed), None),
        }
        sizes = {path: os.path.getsize(path) for path in paths if os.path.isfile(path)}
        return versions, sizes

    return report


def _ask(paths: list[str]) -> list[tuple[str, Report]]:
    """Returns the name of each node and what it reports."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    probe = ray.remote(_probe())
    waiting = {}
    for node in alive_nodes():
        if node["Resources"].get("CPU"):
            name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
            strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            probe_here = probe.options(
                num_cpus=0, scheduling_strategy=strategy, max_retries=0
            )
            waiting[probe_here.remote(paths)] = name
    done, late = ray.wait(
        list(waiting), num_returns=len(waiting), timeout=_SECONDS_TO_REPORT
    )
    if late:
        raise UserError(
            f"--cluster: node {waiting[late[0]]} did not answer in "
            f"{_SECONDS_TO_REPORT:.0f} s; remove it from the cluster, or start it again"
        )
    reports = []
    for reference in done:
        try:
            reports.append((waiting[reference], Report(*ray.get(reference))))
        except ray.exceptions.RayError as error:
            raise UserError(
                f"--cluster: node {waiting[reference]} cannot run a task: "
                f"{first_line(error)}; remove it from the cluster, or start it again"
            ) from None
    return reports
