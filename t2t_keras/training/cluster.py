"""The processes that train one model together, as TF_CONFIG names them."""

import contextlib
import functools
import json
import os
import signal
import socket
import sys
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


class Cluster:
    """All processes of a training, and which of them this one is.

    Each runs the same loop on its own rows of the same batches, so that what one
    decides by itself (to stop, say) has to be agreed upon.

    Args:
        size: the number of processes.
        index: of this one; 0 is the chief, which alone writes.
        addresses: of all of them, "host:port".
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
        """Whether it is this process that writes and evaluates."""
        return self.index == 0

    @classmethod
    def from_environment(cls) -> Self:
        """Reads TF_CONFIG: the addresses of all workers, and the number of this one.

        Without it, this process is alone.

        Raises:
            UserError: it is not what TensorFlow documents, or names other jobs than
                workers (and a chief).
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
    def of(cls, strategy: tf.distribute.Strategy) -> Self:
        """Returns the cluster that a strategy of `make_strategy` runs on."""
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
                f"waiting until all {self.size} processes of TF_CONFIG have started, "
                f"at most {_MINUTES_TO_CONNECT} minutes",
                file=sys.stderr,
            )
        self._meet()
        communication = tf.distribute.experimental.CommunicationImplementation
        on_gpus = tf.config.list_physical_devices("GPU")
        # For one that dies now. TensorFlow waits in C++ and holds Python's lock: no
        # exception would come out.
        signal.alarm(60 * _MINUTES_TO_CONNECT)
        with self.watched():
            strategy = tf.distribute.MultiWorkerMirroredStrategy(
                communication_options=tf.distribute.experimental.CommunicationOptions(
                    implementation=communication.NCCL if on_gpus else communication.RING
                )
            )
        signal.alarm(0)
        # Every process has a batch for every step: they need not ask one another.
        strategy.extended.experimental_enable_get_next_as_optional = False
        return strategy

    def _meet(self) -> None:
        """Waits until every process has opened its port, and holds its own open."""
        deadline = time.monotonic() + 60 * _MINUTES_TO_CONNECT
        own = self._addresses[self.index]
        try:
            meeting = socket.create_server(
                ("", _host_and_port(own)[1]),
                family=socket.AF_INET6 if _IPV6 else socket.AF_INET,
                dualstack_ipv6=_IPV6,
            )
        except OSError as error:
            raise UserError(
                f"process {self.index} of {self.size} cannot open its port in "
                f"TF_CONFIG, {own}: {error.strerror}"
            ) from None
        with meeting:
            for index, address in enumerate(self._addresses):
                while index != self.index and not _is_open(address):
                    if time.monotonic() > deadline:
                        raise UserError(
                            f"process {index} of {self.size} in TF_CONFIG, {address}, "
                            f"could not be reached in {_MINUTES_TO_CONNECT} minutes; "
                            "start it, or see whether a firewall is in between"
                        )
                    time.sleep(0.2)
        # From here on it is TensorFlow's: whoever looks in between tries again.

    def agree(self, answer: str | None, answers: Sequence[str]) -> str | None:
        """Returns what any of the processes answers, the first of `answers` in doubt.

        All of them must call it at the same point; it is also a barrier.

        Args:
            answer: of this process.
            answers: the ones there are.
        """
        if self.size == 1:
            return answer
        votes = self._sum([float(answer == other) for other in answers])
        given = (other for other, count in zip(answers, votes, strict=True) if count)
        return next(given, None)

    def wait(self) -> None:
        """Returns when all processes have come to this point."""
        self.agree(None, ())

    def from_chief(self, number: float) -> float:
        """Returns the number that the chief has."""
        if self.size == 1:
            return number
        return self._sum([number if self.is_chief else 0.0])[0]

    def _sum(self, numbers: Sequence[float]) -> list[float]:
        """Adds up numbers of all processes."""
        values = tf.constant([*numbers, 1.0], tf.float64)
        *sums, processes = self._sum_over_replicas(values).numpy().tolist()
        # A process counts as often as it has replicas.
        return [total * self.size / processes for total in sums]

    @functools.cached_property
    def _sum_over_replicas(self) -> Callable[[tf.Tensor], tf.Tensor]:
        strategy = self._strategy

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
        """Around what processes do together: says so when one of them is gone.

        Raises:
            UserError: one is.
        """
        try:
            yield
        except _GONE as error:
            if self.size == 1:
                raise
            raise UserError(
                f"process {self.index} of {self.size} has lost another one, which has "
                "ended or cannot be reached; start all of them again with the same "
                "command, and they go on from the last checkpoint"
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
