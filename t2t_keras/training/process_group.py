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

# What collective operations raise when one of the processes is gone.
_GONE = (
    tf.errors.UnavailableError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
    tf.errors.DeadlineExceededError,
)


class LostProcess(UserError):
    """Another process has ended or cannot be reached."""


class ProcessGroup:
    """All processes that train one model, and which of them this one is.

    Each runs the same loop on its own rows of the same batches. What one process alone
    knows, such as a reason to stop, has to be all-reduced.

    Args:
        size: the number of processes.
        index: the number of this process; 0 is the chief, which alone writes.
        addresses: "host:port" of each.
        strategy: by which they communicate.
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
        """Reads TF_CONFIG: the addresses of all workers, and the number of this one.

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
            names = [*jobs.get("chief", ()), *jobs.get("worker", ())]
            before = len(jobs.get("chief", ())) if task["type"] == "worker" else 0
            index = before + int(task["index"])
            known = {"chief", "worker"}
            if not known >= {*jobs, task["type"]} or (names and index >= len(names)):
                raise ValueError
            for name in names:
                _host_and_port(name)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(
                "TF_CONFIG must name the workers and which of them this is, such as "
                f"{_EXAMPLE}, not {text}"
            ) from None
        return cls(max(len(names), 1), index, names)

    @classmethod
    def from_strategy(cls, strategy: tf.distribute.Strategy) -> Self:
        """Returns the processes that a strategy of `make_strategy` runs on."""
        if not isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            return cls()
        here = cls.from_environment()
        return cls(here.size, here.index, here._addresses, strategy)

    def connect(self) -> tf.distribute.MultiWorkerMirroredStrategy:
        """Waits for all processes, and returns the strategy by which they train.

        Raises:
            UserError: one of them did not come, or the port of this one is taken.
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
        # In case a process dies now: TensorFlow waits in C++ and holds Python's lock,
        # so that no exception would come out.
        signal.alarm(60 * _MINUTES_TO_CONNECT)
        try:
            with self.watched():
                options = tf.distribute.experimental.CommunicationOptions(
                    implementation=communication.NCCL if on_gpus else communication.RING
                )
                strategy = tf.distribute.MultiWorkerMirroredStrategy(
                    communication_options=options
                )
        finally:
            signal.alarm(0)
        if threading.current_thread() is threading.main_thread():
            # TensorFlow has taken SIGTERM, and would ignore it until `Stopping` does.
            signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGTERM))
        # As in `make_strategy`.
        strategy.extended.experimental_enable_get_next_as_optional = False
        return strategy

    def _await_all(self) -> None:
        """Waits until every process has opened its port, and holds its own open."""
        deadline = time.monotonic() + 60 * _MINUTES_TO_CONNECT
        own = self._addresses[self.index]
        try:
            server = socket.create_server(
                ("", _host_and_port(own)[1]),
                family=socket.AF_INET6 if _IPV6 else socket.AF_INET,
                dualstack_ipv6=_IPV6,
            )
        except OSError as error:
            raise UserError(
                f"process {self.index} of {self.size} cannot open its port in "
                f"TF_CONFIG, {own}: {error.strerror}"
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
        # Now TensorFlow opens the port. A process that connects in between retries.

    def all_reduce_first(self, value: str | None, order: Sequence[str]) -> str | None:
        """Returns the first of the values in `order` that any of the processes has.

        All of them must call it at the same point; it is also a barrier.

        Args:
            value: what this process has; None: nothing.
            order: all values that a process may have.
        """
        if self.size == 1:
            return value
        counts = self._all_reduce_sum([float(value == other) for other in order])
        given = (other for other, count in zip(order, counts, strict=True) if count)
        return next(given, None)

    def barrier(self) -> None:
        """Returns when all processes have come to this point."""
        self.all_reduce_first(None, ())

    def last_barrier(self) -> None:
        """Returns when all processes have come to this point, and may end.

        A process may be through a barrier while another one still receives the sums
        from it. So there are two: a process that is through the second one knows that
        all are through the first, and one that loses another in the second needs
        nothing more.
        """
        self.barrier()
        with contextlib.suppress(*_GONE):
            self.barrier()

    def broadcast(self, number: float) -> float:
        """Returns the number that the chief has."""
        if self.size == 1:
            return number
        return self._all_reduce_sum([number if self.is_chief else 0.0])[0]

    def _all_reduce_sum(self, numbers: Sequence[float]) -> list[float]:
        """Sums numbers over all processes."""
        values = tf.constant([*numbers, 1.0], tf.float64)
        *sums, processes = self._sum_over_replicas(values).numpy().tolist()
        # A process counts as often as it has replicas.
        return [total * self.size / processes for total in sums]

    @functools.cached_property
    def _sum_over_replicas(self) -> Callable[[tf.Tensor], tf.Tensor]:
        strategy = self._strategy
        assert strategy is not None  # there are several processes

        def on_replica(values: tf.Tensor) -> tf.Tensor:
            replica = tf.distribute.get_replica_context()
            here = tf.identity(values)  # on this replica's device
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, here)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float64)])
        def sums(values: tf.Tensor) -> tf.Tensor:
            results = strategy.run(on_replica, args=(values,))
            return strategy.experimental_local_results(results)[0]

        return sums

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Explains what TensorFlow raises inside when another process is gone.

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
    """Divides "host:port"; a ValueError if it is something else."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _is_open(address: str) -> bool:
    """Tells whether a process listens there."""
    try:
        socket.create_connection(_host_and_port(address), timeout=5).close()
    except OSError:
        return False
    return True
