"""Where training runs: all GPUs of one or several machines, or the CPU.

With `TF_CONFIG`, several processes train one model together.
"""

import contextlib
import functools
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Self

import tensorflow as tf

from t2t_keras.checking import NonNegative, checked
from t2t_keras.console import say
from t2t_keras.data.pipeline import Batch, untuned
from t2t_keras.devices import gpu_details, keep_compiled_programs
from t2t_keras.errors import UserError, quantity

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
    """

    def __init__(
        self,
        size: int = 1,
        index: int = 0,
        addresses: Sequence[str] = (),
    ) -> None:
        self.size = size
        self.index = index
        self._addresses = addresses
        # Which all-reduces between the processes.
        self._strategy: tf.distribute.Strategy | None = None

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
        group._strategy = strategy
        return group

    def connect(self) -> tf.distribute.MultiWorkerMirroredStrategy:
        """Waits for all processes, and returns the strategy with which they train.

        Raises:
            UserError: a process did not start, or the port of this one is taken.
        """
        if self.is_chief:
            say(
                f"waiting until all {self.size} processes have started, at most "
                f"{_MINUTES_TO_CONNECT} minutes"
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


@checked
def make_strategy(simulate_devices: NonNegative = 0) -> tf.distribute.Strategy:
    """Returns a strategy with a replica on every GPU, or on the CPU without one.

    With several processes in the environment variable TF_CONFIG it waits until all of
    them have come to this point; the replicas are those of all their machines. Nothing
    may have run on TensorFlow before.

    Args:
        simulate_devices: replicas to make on the CPU instead, for tests.

    Raises:
        UserError: the number is impossible; TensorFlow was already running with other
            devices; TF_CONFIG is not what TensorFlow documents, or is set together with
            simulated devices.
    """
    # Another process, such as an evaluation, may use the same GPU.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    keep_compiled_programs()
    group = ProcessGroup.from_environment()
    if group.size > 1:
        if simulate_devices:
            raise UserError(
                f"--simulate_devices {simulate_devices} is for one process, and this "
                f"training has {group.size}; leave it out"
            )
        return group.connect()
    if simulate_devices > 1:
        _split_cpu(simulate_devices)
        devices = [f"CPU:{i}" for i in range(simulate_devices)]
    else:
        gpus = [] if simulate_devices else tf.config.list_logical_devices("GPU")
        devices = [gpu.name for gpu in gpus] or ["CPU:0"]
    # NCCL on GPUs; on the CPU, a reduction that always sums in the same order.
    on_cpu = devices[0].startswith("CPU")
    strategy = tf.distribute.MirroredStrategy(
        devices, tf.distribute.ReductionToOneDevice("CPU:0") if on_cpu else None
    )
    # Every replica has a batch for every step, so they need not ask one another.
    strategy.extended.experimental_enable_get_next_as_optional = False
    return strategy


def on_gpus(strategy: tf.distribute.Strategy) -> bool:
    """Returns whether the replicas are on GPUs."""
    return any("GPU" in name for name in strategy.extended.worker_devices)


def devices_text(strategy: tf.distribute.Strategy) -> str:
    """Returns where the replicas are, such as "2 replicas on NVIDIA A100, TF32 on"."""
    replicas = quantity(strategy.num_replicas_in_sync, "replicas")
    if not on_gpus(strategy):
        return f"{replicas} on the CPU"
    names = {gpu.get("device_name", "an unknown GPU") for gpu in gpu_details()}
    has_tf32 = tf.config.experimental.tensor_float_32_execution_enabled()
    return f"{replicas} on {', '.join(names)}, TF32 {'on' if has_tf32 else 'off'}"


def local_replicas(strategy: tf.distribute.Strategy) -> range:
    """Returns the ids of this process's replicas among those of all processes."""
    count = len(strategy.extended.worker_devices)
    start = ProcessGroup.from_strategy(strategy).index * count
    return range(start, start + count)


def distribute(
    strategy: tf.distribute.Strategy, parts: tf.data.Dataset
) -> tf.distribute.DistributedDataset:
    """Returns distributed batches: each replica of this process takes an element."""
    parts = untuned(parts)
    return strategy.distribute_datasets_from_function(lambda context: parts)


def distribute_batches(
    strategy: tf.distribute.Strategy,
    batches: Callable[[], Iterable[Batch]],
    signature: Mapping[str, tf.TypeSpec],
) -> tf.distribute.DistributedDataset:
    """Returns distributed batches of the same type as those of training.

    Args:
        strategy: see `distribute`.
        batches: returns the batch of each replica of this process in turn.
        signature: the type of a batch.
    """
    parts = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return distribute(strategy, parts)


def _split_cpu(parts: int) -> None:
    """Makes the CPU appear as this many devices, or more."""
    (cpu,) = tf.config.list_physical_devices("CPU")
    if len(tf.config.get_logical_device_configuration(cpu) or [cpu]) >= parts:
        return
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * parts
        )
    except RuntimeError:
        raise UserError(
            f"--simulate_devices {parts}: TensorFlow already runs with fewer devices"
        ) from None
