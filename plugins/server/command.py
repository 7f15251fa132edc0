"""The command that serves models over HTTP: `serve`."""

import contextlib
import dataclasses
import functools
import ipaddress
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from t2t_keras import load
from t2t_keras.cli.command import (
    EXPORT_HINTS,
    FURTHER,
    REQUIRED,
    CheckpointFlags,
    Command,
    CommandResult,
    EngineName,
    check_decoding,
    check_export,
    check_served,
    decoding_flags,
    engine_flag,
    is_converted,
    option_flags,
)
from t2t_keras.console import say
from t2t_keras.errors import UserError, require_extra
from t2t_keras.exporting.directory import is_saved_model
from t2t_keras.exporting.formats import converted, find_loader
from t2t_keras.options import OptionValues, check_options, option
from t2t_keras.processes import handled_signals, handling, leave_closed_terminal
from t2t_keras.run.config import CheckpointPaths, is_run, other_than_run

from .requests import Limits
from .versions import (
    FixedModel,
    VersionFolder,
    find_versions,
    missing_part,
    newest_complete,
)

if TYPE_CHECKING:
    from .http import Server
    from .served_model import ServedModel

_NAME = re.compile(r"[\w.-]+")


@dataclasses.dataclass(kw_only=True)
class Serve(CheckpointFlags, Command):
    """Serves models over HTTP."""

    summary = "serve models over HTTP, with a web page"
    flag_hints = EXPORT_HINTS
    heading = "using a model"

    model: tuple[str, ...] = option(
        REQUIRED,
        "[NAME=]DIR: a run directory, an export, or a directory with numbered exports, "
        "of which the newest one is served, and its name in URLs (default: the "
        "directory's name)",
        metavar="MODEL",
        positional=True,
    )
    engine: EngineName = engine_flag()
    host: str = option(
        "127.0.0.1",
        "address (default: 127.0.0.1); 0.0.0.0: of every network, without a password",
        metavar="HOST",
    )
    port: int = option(8501, "port to listen at; 0: any that is free", ge=0, lt=2**16)
    poll_seconds: float = option(
        1.0,
        "seconds between two looks for another version in directories with numbered "
        "exports (default: 1); 0: only at the start",
        ge=0,
        group=FURTHER,
    )
    allowed_host: tuple[str, ...] = option(
        (),
        "names by which requests may address the server, besides --host, localhost and "
        "IP addresses (default: at a --host for other machines, any)",
        metavar="NAME ...",
        group=FURTHER,
    )
    limits: OptionValues = option_flags(
        Limits, {FURTHER: ()}, keys="limits", example="timeout_seconds=10"
    )
    decoding: OptionValues = decoding_flags()

    def needs_tensorflow(self) -> bool:
        """Returns whether a model is a SavedModel, or a run not yet converted."""
        for path in map(_first_directory, self.directories().values()):
            if is_saved_model(path):
                return True
            options = (self.checkpoint, self.decoding, self.engine)
            if not (find_loader(path) or is_converted(path, *options)):
                return True
        return False

    def check(self) -> None:
        """Refuses impossible options and limits, and paths that are not models."""
        # TensorFlow logs an error about oneDNN on CPUs where it only runs slower.
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
        require_extra("serve", "t2t serve", "starlette", "prometheus_client", "uvicorn")
        check_decoding(self.decoding)
        check_options(Limits, self.limits, "--limits: ")
        for path in self.directories().values():
            directory = _first_directory(path)
            if _has_versions(path) and (reason := missing_part(directory)):
                raise UserError(f"--model: {reason}")
            if find_loader(directory):
                engine = self.engine if "engine" in self.given_flags else "auto"
                check_export(self.decoding, directory, engine)
                if self.checkpoint:
                    raise UserError(
                        f"--checkpoint needs a run: {directory} is an export"
                    )
            elif not is_run(directory):
                nothing = (
                    f"{directory} is neither a run nor an export, and has no numbered "
                    "exports"
                )
                raise UserError(f"--model: {other_than_run(directory) or nothing}")

    def directories(self) -> dict[str, Path]:
        """Returns the directory of each model by name.

        Raises:
            UserError: a name cannot be in a URL, or two models have the same.
        """
        directories: dict[str, Path] = {}
        for text in self.model:
            name, sign, directory = text.partition("=")
            path = Path(directory if sign else text)
            if not sign:
                absolute = path.absolute()
                is_version = absolute.name.isdecimal() and not is_run(path)
                name = (absolute.parent if is_version else absolute).name
            if not _NAME.fullmatch(name):
                raise UserError(
                    f"--model: the name '{name}' of {path} may have letters, digits "
                    "and ._- only; give NAME=DIR"
                )
            if name in directories:
                other_name = f"{path.absolute().parent.name}-{name}"
                raise UserError(
                    f"--model: {directories[name]} and {path} are both named '{name}'; "
                    f"give one another name, such as {other_name}={path}"
                )
            directories[name] = path
        return directories

    def load_model(self, path: Path) -> "ServedModel":
        """Returns the `ServedModel` of an export, or of a run by `--engine`."""
        from .served_model import FallbackModel, ServedModel

        checkpoint = self.checkpoint
        run = path
        if not find_loader(path):
            checkpoint = CheckpointPaths(run).pinned(checkpoint)
            path, _ = converted(run, checkpoint, self.decoding, self.engine)
        translator = load(path, checkpoint if path == run else None)
        if path == run:
            model = ServedModel(translator, **self.decoding)
        else:
            load_exact = functools.partial(load, run, checkpoint)
            model = FallbackModel(translator, load_exact, **self.decoding)
        if model.split_sentences:
            say(
                f"t2t serve: {run} was trained on single sentences: texts of several "
                "are translated one by one; split_sentences=false turns this off (for "
                "a SavedModel at its export)"
            )
        return model

    def _source(self, name: str, path: Path) -> FixedModel | VersionFolder:
        """Returns where the server finds the versions of a model."""

        def load_version(path: Path) -> "ServedModel":
            check_served(self.decoding, path)
            return self.load_model(path)

        if _has_versions(path):
            return VersionFolder(name, path, load_version)
        folder_name = path.absolute().name
        version = int(folder_name) if folder_name.isdecimal() else 1
        return FixedModel(functools.partial(self.load_model, path), version)

    def run(self) -> CommandResult:
        """Serves until a signal; returns the number of requests."""
        from .app import make_app
        from .http import Server, few_warnings

        models = {}
        for name, path in self.directories().items():
            models[name] = self._source(name, path)
        with bound(self.host, self.port) as address:
            # Inherited by connections. asyncio sets it only for sockets of IPPROTO_TCP;
            # without it, answers wait 40 ms for the acknowledgment of their headers.
            address.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host, port = address.getsockname()[:2]
            is_local = ipaddress.ip_address(host).is_loopback
            hosts = None
            if self.allowed_host or is_local:
                hosts = {name.lower() for name in (self.host, *self.allowed_host)}
            app = make_app(models, Limits(**self.limits), hosts, self.poll_seconds)
            host = f"[{host}]" if ":" in host else host
            url = f"http://{host}:{port}"
            say(f"t2t serve: {url}/")
            if not is_local:
                say(
                    "t2t serve: other machines reach this server without a password or "
                    "a time limit; put a proxy in front of it, such as "
                    "examples/haproxy.cfg"
                )
            endpoint = f"{url}/v1/models/{next(iter(models))}:predict"
            body = json.dumps({"instances": ["TEXT"]})
            request = f"curl {endpoint} -d '{body}'"
            manager = app.state.service.manager
            manager.on_ready = lambda: say(f"t2t serve: ready; ask: {request}")
            with few_warnings(), _handlers(server := Server(app)):
                server.run([address])
        return {"requests": app.state.service.answered}


def _has_versions(path: Path) -> bool:
    """Returns whether a directory has versions, and is neither a run nor an export."""
    return not (find_loader(path) or is_run(path)) and bool(find_versions(path))


def _first_directory(path: Path) -> Path:
    """Returns the directory that is served first: of versions, the newest complete one.

    If no version is complete, it is the newest.
    """
    if not _has_versions(path):
        return path
    versions = find_versions(path)
    return newest_complete(path) or versions[max(versions)]


@contextlib.contextmanager
def _handlers(server: "Server") -> Iterator[None]:
    """Sets handlers of signals, besides those that uvicorn sets while it serves.

    uvicorn raises SIGTERM again when all requests are answered. It does not know
    SIGHUP, which a closed terminal sends.
    """

    def hang_up(signal_number: int, frame: FrameType | None) -> None:
        leave_closed_terminal()
        server.handle_exit(signal.SIGTERM, frame)

    handlers: dict[signal.Signals, Any] = {signal.SIGTERM: lambda *_: None}
    if signal.SIGHUP in handled_signals():
        handlers[signal.SIGHUP] = hang_up
    with handling(handlers):
        yield


def bound(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an address; connections wait until it is served.

    Raises:
        UserError: the address or the port cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:  # UnicodeError: the host's name is bad
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"--port: cannot listen at {host}, port {port}: {reason}; choose another "
            "--port (0: any that is free) or --host"
        ) from None


COMMAND = Serve
