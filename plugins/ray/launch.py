"""`t2t launch --cluster`: trains in processes on several nodes of a Ray cluster."""

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from t2t_keras.cli.command import CommandResult
from t2t_keras.cli.training import Train
from t2t_keras.console import say
from t2t_keras.display import end_spinner
from t2t_keras.errors import UserError, first_line, quantity, require_extra
from t2t_keras.files.atomic import OccupiedDirectory, lock
from t2t_keras.options import option
from t2t_keras.processes import T2T, end_with_parent
from t2t_keras.run.config import TRAINING_LOCK

from ..launch import (
    Launch,
    LostProcesses,
    Processes,
    last_lines,
    reserved_port,
    training_variables,
)
from .cluster import (
    CLUSTER,
    WorkerFlags,
    WorkerSize,
    connected,
    require_capacity,
    require_same_nodes,
)

_PREFIXES = ("TF_", "XLA_", "KERAS_", "NCCL_", "OMP_", "T2T_", "WANDB_")
_TF_CONFIG = "TF_CONFIG"  # names the processes of one training
_SECONDS_TO_START = 25.0
# After a node was lost, another one may be on its way.
_SECONDS_TO_RESTART = 300.0
_SECONDS_TO_ANSWER = 60.0
_SECONDS_BETWEEN_TRIES = 0.5


def shared_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of this machine that processes on other nodes get.

    Those that name GPUs are not among them: Ray assigns GPUs.

    Args:
        environ: the environment of this machine.
    """
    variables = {}
    for name, value in environ.items():
        if name.startswith(_PREFIXES) and name != _TF_CONFIG:
            variables[name] = value
    return variables


def process_environment(additions: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a process that an actor of Ray starts.

    Args:
        additions: what is added to the environment of the actor.
    """
    environment = dict(os.environ)
    environment.pop("OMP_NUM_THREADS", None)  # Ray's: the cores of the actor
    environment.pop(_TF_CONFIG, None)  # that of `ray start`
    environment.update(additions)
    return environment


@dataclasses.dataclass(kw_only=True)
class LaunchOnCluster(WorkerFlags, Launch):
    """Trains in processes on several nodes of a cluster."""

    waiting = "connecting to the cluster"

    workers: int | None = option(
        None, "number of processes on the cluster", ge=1, group=CLUSTER
    )
    max_restarts: int = option(
        3,
        "how many times all processes are started again, from the last checkpoint, "
        "after one was lost",
        ge=0,
        group=CLUSTER,
    )

    def check(self) -> None:
        """Refuses other commands, and flags of a training on one machine."""
        require_extra("ray", "--cluster", "ray")
        if self.train_command[:1] != ("train",):
            raise UserError(
                "only `train` runs in several processes; write `t2t launch --cluster "
                "ADDRESS --workers N train ...`"
            )
        if self.workers is None:
            raise UserError("--cluster needs --workers N, the number of processes")
        if self.processes is not None:
            raise UserError(
                "--processes is for this machine, and --cluster for several; leave out "
                "one"
            )
        if os.environ.get("TF_CONFIG"):
            raise UserError(
                "the environment variable TF_CONFIG names the processes of a training, "
                "and --cluster places them; unset it, or leave out --cluster"
            )

    def run(self) -> CommandResult:
        """Runs the processes, and ends the program with the status of the chief."""
        from t2t_keras.cli.program import parse

        assert self.workers is not None
        train = parse(self.train_command)  # refuses an unknown flag
        assert isinstance(train, Train)
        size = self.worker_size()
        settings = train.settings()
        read = sorted(Path(settings.data_dir).absolute().glob("*.manifest.json"))
        folder = Path(train.output_dir or "").absolute()
        command = [*T2T, *self.train_command, *(["--json"] if self.json else [])]
        with connected(self.cluster):
            require_capacity(size, self.workers)
            require_same_nodes(read, [_existing(folder)])
            end_spinner()
            restarts = 0
            while True:
                seconds = _SECONDS_TO_START
                if restarts:
                    seconds = _SECONDS_TO_RESTART
                    _await_earlier_training(folder)
                try:
                    with _placed(size, self.workers, seconds) as actors:
                        raise SystemExit(_train(actors, command, self.environ))
                except LostProcesses as error:
                    if restarts == self.max_restarts:
                        raise
                    restarts += 1
                    say(
                        f"t2t launch: {error.event}; restart {restarts} of "
                        f"{self.max_restarts}, from the last checkpoint"
                    )


def _existing(path: Path) -> Path:
    """Returns the nearest folder above a path, or itself, that exists."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def _await_earlier_training(folder: Path) -> None:
    """Waits for processes on a node that a failure of the network has cut off.

    They end by themselves, and until then the restarted chief would be refused.

    Args:
        folder: the run directory.

    Raises:
        UserError: they have not ended in five minutes.
    """

    def refusal(holder: str) -> UserError:
        return OccupiedDirectory(
            f"--output_dir: an earlier process of this training still writes to "
            f"{folder}{holder and f', {holder}'}; end it, and run the same command to "
            "continue"
        )

    deadline = time.monotonic() + _SECONDS_TO_RESTART
    while True:
        try:
            with lock(folder / TRAINING_LOCK, refusal):
                return
        except OccupiedDirectory:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_SECONDS_BETWEEN_TRIES)


@contextlib.contextmanager
def _placed(size: WorkerSize, workers: int, seconds: float) -> Iterator[list[Any]]:
    """Yields actors, each with the cores and GPUs of a process.

    Args:
        size: what a process takes.
        workers: the number of processes.
        seconds: how long to wait for cores and GPUs.

    Raises:
        UserError: the cluster has too few that are free.
    """
    import ray
    from ray.util import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    bundle = {"CPU": size.cores} | ({"GPU": size.gpus} if size.gpus else {})
    group = placement_group([bundle] * workers, strategy="PACK")
    try:
        if not group.wait(seconds):
            raise UserError(
                f"--cluster: there is no room for {quantity(workers, 'workers')} of "
                f"{size} in {seconds:.0f} s; other programs use the cluster "
                "(see `ray status`), or nodes are lost: wait for them, or add nodes"
            )
        actors = []
        for index in range(workers):
            strategy = PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=index
            )
            actor_class = ray.remote(TrainingWorker).options(
                num_cpus=size.cores, num_gpus=size.gpus, scheduling_strategy=strategy
            )
            actors.append(actor_class.remote())
        yield actors
    finally:
        remove_placement_group(group)


def _train(
    actors: Sequence[Any], command: Sequence[str], environ: Mapping[str, str]
) -> int:
    """Runs the processes; returns the exit status of the chief.

    Raises:
        LostProcesses: the training can be resumed.
        UserError: it has failed.
    """
    import ray

    try:
        ports = ray.get(
            [actor.address.remote() for actor in actors], timeout=_SECONDS_TO_ANSWER
        )
    except ray.exceptions.RayError:
        raise LostProcesses("a node was lost while the processes started") from None
    variables = shared_variables(environ)
    environments = [variables | additions for additions in training_variables(ports)]

    def start(
        index: int, command: Sequence[str], environment: Mapping[str, str]
    ) -> _RemoteProcess:
        return _RemoteProcess(actors[index], index == 0, command, environment)

    return Processes(command, environments, start).run()


class _RemoteProcess:
    """A process of a node; see `plugins.launch.Process`.

    Args:
        actor: runs the process.
        is_chief: whether its output is shown.
        command: the command, without Python.
        additions: what is added to the environment of the actor.
    """

    def __init__(
        self,
        actor: Any,
        is_chief: bool,
        command: Sequence[str],
        additions: Mapping[str, str],
    ) -> None:
        self._actor = actor
        self._is_chief = is_chief
        self._status: int | None = None
        self._errors = b""
        self._signal: int | None = None
        self._call("start", list(command), dict(additions), os.getcwd())

    def _call(self, method: str, *arguments: object) -> Any:
        """Calls a method of the actor; None: the actor is lost, or does not answer."""
        import ray

        try:
            call = getattr(self._actor, method).remote(*arguments)
            return ray.get(call, timeout=_SECONDS_TO_ANSWER)
        except ray.exceptions.RayTaskError as error:
            raise UserError(
                f"--cluster: a node cannot run the training: {first_line(error.cause)}"
            ) from None
        except ray.exceptions.RayError:  # also if it does not answer in time
            self._status = -signal.SIGKILL
            return None

    def poll(self) -> int | None:
        """Returns the exit status, and shows the chief's output."""
        if self._status is not None:
            return self._status
        if self._signal is not None:
            self._call("send_signal", self._signal)
            self._signal = None
        state = self._call("poll")
        if state is None:
            return self._status
        if self._is_chief:
            _write(1, state.output)
            _write(2, state.errors)
        else:
            self._errors = last_lines(self._errors + state.errors)
        self._status = state.status
        return self._status

    def send_signal(self, signum: int) -> None:
        """Sends a signal with the next `poll`: handlers of signals call this."""
        self._signal = signum

    def kill(self) -> None:
        """Ends the process at once."""
        if self._status is None:
            self._call("kill")

    def errors(self) -> str:
        """Returns its last lines on standard error."""
        return self._errors.decode("utf-8", "replace")


def _write(descriptor: int, content: bytes) -> None:
    """Writes to standard output or standard error."""
    while content:
        content = content[os.write(descriptor, content) :]


class State(NamedTuple):
    """What a process has done.

    Attributes:
        status: its exit status, as in `subprocess`; None: it runs.
        output: what it has printed on standard output since the last call.
        errors: the same of standard error.
    """

    status: int | None
    output: bytes
    errors: bytes


class TrainingWorker:
    """A place for a process, with a port for it."""

    def __init__(self) -> None:
        self._port = reserved_port()
        self._process: subprocess.Popen[bytes] | None = None
        # What the process prints on standard output and standard error.
        self._printed = (_Printed(), _Printed())

    def address(self) -> tuple[str, int]:
        """Returns the host and the port of the process."""
        import ray

        return ray.util.get_node_ip_address(), self._port.getsockname()[1]

    def start(
        self, command: Sequence[str], additions: Mapping[str, str], folder: str
    ) -> None:
        """Starts the process.

        Args:
            command: the command, without Python.
            additions: what is added to the environment of this actor, which Ray gave
                its GPUs.
            folder: the working directory.
        """
        parent = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, *command],
            env=process_environment(additions),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=self._printed[0].file,
            stderr=self._printed[1].file,
            start_new_session=True,
            preexec_fn=lambda: end_with_parent(parent),
        )

    def poll(self) -> State:
        """Returns what the process has done since the last call."""
        assert self._process is not None
        status = self._process.poll()  # before its last output is read
        output, errors = self._printed
        return State(status, output.unread(), errors.unread())

    def send_signal(self, signum: int) -> None:
        """Sends a signal to the process."""
        if self._process is not None:
            self._process.send_signal(signum)

    def kill(self) -> None:
        """Ends the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class _Printed:
    """A file to which a process prints.

    Attributes:
        file: the file.
    """

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115  (ends with the actor)
        self._offset = 0

    def unread(self) -> bytes:
        """Returns what was printed since the last call."""
        descriptor = self.file.fileno()
        size = os.fstat(descriptor).st_size - self._offset
        content = os.pread(descriptor, size, self._offset)
        self._offset += len(content)
        return content


EXTENSION = LaunchOnCluster
