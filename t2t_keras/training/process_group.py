"""The processes, on one machine or several, that train one model together."""

import contextlib
import functools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import tensorflow as tf

from t2t_keras.errors import UserError

_EXAMPLE = (
    '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
    '"task": {"type": "worker", "index": 0}}'
)
_MINUTES_TO_CONNECT = 10
_IPV6 = socket.has_dualstack_ipv6()

# Collective operations raise these errors when a process is gone.
_GONE = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


class LostProcess(UserError):
    """Another process has ended or cannot be reached."""


@contextlib.contextmanager
def _ending_by_signals() -> Iterator[None]:
    """Lets signals end this process while TensorFlow connects.

    If another process ends then, TensorFlow waits in C++ and holds Python's lock: no
    exception can end the wait, and no handler in Python is called.
    """
    signal.alarm(60 * _MINUTES_TO_CONNECT)
    is_main_thread = threading.current_thread() is threading.main_thread()
    is_interruptible = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_main_thread and is_interruptible:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.alarm(0)
        if is_main_thread and is_interruptible:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if is_main_thread:
            # TensorFlow has taken SIGTERM, and would ignore it until `Stopping` does.
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))


class ProcessGroup:
    """All processes that train one model, and which of them this one is.

    Each process runs the same loop on its rows of the same batches. What only one
    process knows, such as a reason to stop, must be all-reduced.

    Args:
        size: the number of processes.
        index: the index of this process; 0 is the chief, which alone writes.
        addresses: "host:port" of each process.
        strategy: all-reduces between the processes.
    """

    def __init__(
        self,
        size: int = 1,
        index: int = 0,
        addresses: Sequence[str] = (),
        strategy: tf.distribute.Strategy | None = None,
    ) -> None:
        self.size = size
        self.index = index
        self._addresses = addresses
        self._strategy = strategy

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one that writes and evaluates."""
        return self.index == 0

    @classmethod
    def from_environment(cls) -> Self:
        """Reads TF_CONFIG: the addresses of all workers, and the index of this one.

        Without TF_CONFIG this process is alone.

        Raises:
            UserError: TF_CONFIG is not what TensorFlow documents, or names other jobs
                than workers (and a chief).
        """
        text = os.environ.get("TF_CONFIG")
        if not text:
            return cls()
        try:
            config = json.loads(text)
            jobs = config.get("cluster", {})
            task = config.get("task", {"type": "worker", "index": 0})
            chiefs = jobs.get("chief", ())
            addresses = [*chiefs, *jobs.get("worker", ())]
            index = int(task["index"])
            if task["type"] == "worker":
                index += len(chiefs)
            if not {*jobs, task["type"]} <= {"chief", "worker"}:
                raise ValueError
            if addresses and index >= len(addresses):
                raise ValueError
            for address in addresses:
                _host_and_port(address)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                "TF_CONFIG must name the workers and which of them this is, such as "
                f"{_EXAMPLE}, not {text}"
            ) from None
        return cls(max(len(addresses), 1), index, addresses)

    @classmethod
    def from_strategy(cls, strategy: tf.distribute.Strategy) -> Self:
        """Returns the processes that a strategy of `make_strategy` runs on."""
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return cls()
        group = cls.from_environment()
        return cls(group.size, group.index, group._addresses, strategy)

    def connect(self) -> tf.distribute.MultiWorkerMirroredStrategy:
        """Waits for all processes, and returns the strategy with which they train.

        Raises:
            UserError: a process did not start, or the port of this one is taken.
        """
        if self.is_chief:
            print(
                f"waiting until all {self.size} processes have started, at most "
                f"{_MINUTES_TO_CONNECT} minutes",
                file=sys.stderr,
            )
        self._await_all()
        communication = tf.distribute.experimental.CommunicationImplementation
        on_gpus = tf.config.list_physical_devices("GPU")
        with self.watched(), _ending_by_signals():
            options = tf.distribute.experimental.CommunicationOptions(
                implementation=communication.NCCL if on_gpus else communication.RING
            )
            strategy = tf.distribute.MultiWorkerMirroredStrategy(
                communication_options=options
            )
        # Every replica has a batch for every step, so they need not ask one another.
        strategy.extended.experimental_enable_get_next_as_optional = False
        return strategy

    def _await_all(self) -> None:
        """Opens this process's port, and waits until every process has opened one."""
        deadline = time.monotonic() + 60 * _MINUTES_TO_CONNECT
        local_address = self._addresses[self.index]
        try:
            server = socket.create_server(
                ("", _host_and_port(local_address)[1]),
                family=socket.AF_INET6 if _IPV6 else socket.AF_INET,
                dualstack_ipv6=_IPV6,
            )
        except OSError as error:
            raise UserError(
                f"process {self.index} of {self.size} cannot open its port in "
                f"TF_CONFIG, {local_address}: {error.strerror}"
            ) from None
        with server:
            for index, address in enumerate(self._addresses):
                while index != self.index and not _is_open(address):
                    if time.monotonic() > deadline:
                        raise UserError(
                            f"process {index} of {self.size} in TF_CONFIG, {address}, "
                            f"could not be reached in {_MINUTES_TO_CONNECT} minutes; "
                            "start it, or see whether a firewall is in between"
                        )
                    time.sleep(0.2)
        # TensorFlow opens the port next. A process that connects in between retries.

    def all_reduce_first(self, value: str | None, order: Sequence[str]) -> str | None:
        """Returns the first value in `order` that any process has; None: none has one.

        All processes must call it at the same point; it is also a barrier.

        Args:
            value: the value of this process, if it has one.
            order: all values that a process may have.
        """
        if self.size == 1:
            return value
        counts = self._all_reduce_sum([float(value == item) for item in order])
        for item, count in zip(order, counts, strict=True):
            if count:
                return item
        return None

    def barrier(self) -> None:
        """Returns when all processes have reached this point."""
        self.all_reduce_first(None, ())

    def last_barrier(self) -> None:
        """Returns when all processes have reached this point, and may end.

        A process may have passed a barrier while another one still receives the sums
        from it. So there are two barriers: a process that has passed the second knows
        that all have passed the first, and one that loses another in the second needs
        nothing more from it.
        """
        self.barrier()
        with contextlib.suppress(*_GONE):
            self.barrier()

    def broadcast(self, value: float) -> float:
        """Returns the value that the chief has."""
        if self.size == 1:
            return value
        return self._all_reduce_sum([value if self.is_chief else 0.0])[0]

    def _all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """Sums values over all processes."""
        tensor = tf.constant([*values, 1.0], tf.float64)
        *sums, replicas = self._sum_over_replicas(tensor).numpy().tolist()
        # Each process is counted once for each of its replicas.
        return [total * self.size / replicas for total in sums]

    @functools.cached_property
    def _sum_over_replicas(self) -> Callable[[tf.Tensor], tf.Tensor]:
        strategy = self._strategy
        assert strategy is not None  # there are several processes

        def on_replica(values: tf.Tensor) -> tf.Tensor:
            replica = tf.distribute.get_replica_context()
            local_values = tf.identity(values)  # on this replica's device
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, local_values)

        @tf.function(
            input_signature=[tf.TensorSpec([None], tf.float64)], autograph=False
        )
        def sums(values: tf.Tensor) -> tf.Tensor:
            results = strategy.run(on_replica, args=(values,))
            return strategy.experimental_local_results(results)[0]

        return sums

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Explains what TensorFlow raises in the block if another process is gone.

        Raises:
            LostProcess: another process has ended or cannot be reached.
        """
        try:
            yield
        except _GONE as error:
            if self.size == 1:
                raise
            raise LostProcess(
                f"process {self.index} of {self.size} has lost another one, which has "
                "ended or cannot be reached; start all of them again with the same "
                "command, and they resume from the last checkpoint"
            ) from error


def _host_and_port(address: str) -> tuple[str, int]:
    """Splits "host:port"; raises ValueError for anything else."""
    host, _, port = address.rpartition(":")
    if host.startswith("[") != host.endswith("]"):  # an IPv6 address
        raise ValueError(address)
    return host.strip("[]"), int(port)


def _is_open(address: str) -> bool:
    """Returns whether a process listens at an address."""
    try:
        socket.create_connection(_host_and_port(address), timeout=5).close()
    except OSError:
        return False
    return True
