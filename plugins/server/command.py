"""The command that serves models over HTTP: `serve`."""

import argparse
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
    Command,
    add_checkpoint,
    add_decoding_flags,
    add_engine,
    add_further,
    check_decoding,
    check_export,
    check_served,
    chosen_engine,
    described,
    given_decoding,
    is_converted,
    not_negative,
    not_negative_number,
)
from t2t_keras.console import say, two_columns
from t2t_keras.errors import UserError, require_extra
from t2t_keras.export.directory import is_saved_model
from t2t_keras.export.formats import converted, find_loader
from t2t_keras.options import parse_value, split_pairs
from t2t_keras.processes import handled_signals, handling, leave_closed_terminal
from t2t_keras.run.config import is_run

from .http import few_warnings
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


def _serve_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", action="append", metavar="MODEL", help=argparse.SUPPRESS
    )
    parser.add_argument(
        "model",
        nargs="*",
        action="extend",
        metavar="MODEL",
        default=argparse.SUPPRESS,
        help="[NAME=]DIR: a run directory, an export, or a directory with numbered "
        "exports, of which the newest one is served, and its name in URLs (default: "
        "the directory's name); also --model MODEL",
    )
    add_checkpoint(parser)
    add_engine(parser)
    host = "address (default: 127.0.0.1); 0.0.0.0: of every network, without a password"
    parser.add_argument("--host", default="127.0.0.1", help=host)
    port = "port to listen at; 0: any that is free (default: 8501)"
    parser.add_argument("--port", type=not_negative, default=8501, help=port)
    further = add_further(parser, "further options")
    further.add_argument(
        "--poll_seconds",
        type=not_negative_number,
        default=1.0,
        metavar="N",
        help="seconds between two looks for another version in directories with "
        "numbered exports (default: 1); 0: only at the start",
    )
    further.add_argument(
        "--allowed_host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which requests may address the server, besides --host, "
        "localhost and IP addresses; may be given several times (default: at a --host "
        "for other machines, any)",
    )
    limits = 'limits of requests, such as "timeout_seconds=10": see --help-all'
    further.add_argument(
        "--limits", type=parse_limits, default=Limits(), metavar="K=V,K=V", help=limits
    )
    rows = {field.name: described(field) for field in dataclasses.fields(Limits)}
    add_further(parser, "keys of --limits", two_columns(rows), len(rows))
    add_decoding_flags(parser)


def _check_serve(args: argparse.Namespace) -> None:
    # TensorFlow logs an error about oneDNN on CPUs where it only runs slower.
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    require_extra("serve", "t2t serve", "starlette", "prometheus_client", "uvicorn")
    options = check_decoding(args)
    if not args.model:
        raise UserError("give a run or an export to serve")
    if args.port >= 2**16:
        raise UserError(f"--port: {args.port} is above 65535; choose a smaller one")
    for path in _directories(args).values():
        directory = _first_directory(path)
        if _has_versions(path) and (reason := missing_part(directory)):
            raise UserError(f"--model: {reason}")
        if find_loader(directory):
            check_export(options, directory, args.engine)
            if args.checkpoint:
                raise UserError(f"--checkpoint needs a run: {directory} is an export")
        elif not is_run(directory):
            raise UserError(
                f"--model: {directory} is neither a run nor an export, and has no "
                "numbered exports"
            )


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


def _directories(args: argparse.Namespace) -> dict[str, Path]:
    """Returns the directory of each model by name.

    Raises:
        UserError: a name cannot be in a URL, or two models have the same.
    """
    directories: dict[str, Path] = {}
    for text in args.model or ():
        name, sign, directory = text.partition("=")
        path = Path(directory if sign else text)
        if not sign:
            absolute = path.absolute()
            is_version = absolute.name.isdecimal() and not is_run(path)
            name = (absolute.parent if is_version else absolute).name
        if not _NAME.fullmatch(name):
            raise UserError(
                f"--model: the name '{name}' of {path} may have letters, digits and "
                "._- only; give NAME=DIR"
            )
        if name in directories:
            other_name = f"{path.absolute().parent.name}-{name}"
            raise UserError(
                f"--model: {directories[name]} and {path} are both named '{name}'; "
                f"give one another name, such as {other_name}={path}"
            )
        directories[name] = path
    return directories


def load_model(args: argparse.Namespace, path: Path) -> "ServedModel":
    """Returns the `ServedModel` of an export, or of a run by `--engine`."""
    from .served_model import FallbackModel, ServedModel

    options = given_decoding(args)
    checkpoint = args.checkpoint
    run = path
    if not find_loader(path):
        path, checkpoint = converted(path, checkpoint, options, chosen_engine(args))
    translator = load(path, checkpoint)
    if path == run:
        model = ServedModel(translator, **options)
    else:
        load_exact = functools.partial(load, run, _checkpoint_path(run, args))
        model = FallbackModel(translator, load_exact, **options)
    if model.split_sentences:
        say(
            f"t2t serve: {run} was trained on single sentences: texts of several are "
            "translated one by one; split_sentences=false turns this off (for a "
            "SavedModel at its export)"
        )
    return model


def _checkpoint_path(run: Path, args: argparse.Namespace) -> Path:
    """Returns the checkpoint that is served, so that a later one is not loaded."""
    from t2t_keras.run.checkpoint import CheckpointDirectory

    return CheckpointDirectory(run).find(args.checkpoint)


def _source(
    args: argparse.Namespace, name: str, path: Path
) -> FixedModel | VersionFolder:
    """Returns where the server finds the versions of a model."""

    def load_version(path: Path) -> "ServedModel":
        check_served(given_decoding(args), path)
        return load_model(args, path)

    if _has_versions(path):
        return VersionFolder(name, path, load_version)
    folder_name = path.absolute().name
    version = int(folder_name) if folder_name.isdecimal() else 1
    return FixedModel(functools.partial(load_model, args, path), version)


def _serve(args: argparse.Namespace) -> dict[str, Any]:
    from .app import make_app
    from .http import Server

    models = {}
    for name, path in _directories(args).items():
        models[name] = _source(args, name, path)
    with bound(args.host, args.port) as address:
        # Inherited by connections. asyncio sets it only for sockets of IPPROTO_TCP;
        # without it, answers wait 40 ms for the acknowledgment of their headers.
        address.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        host, port = address.getsockname()[:2]
        is_local = ipaddress.ip_address(host).is_loopback
        hosts = None
        if args.allowed_host or is_local:
            hosts = {name.lower() for name in (args.host, *args.allowed_host)}
        app = make_app(models, args.limits, hosts, args.poll_seconds)
        host = f"[{host}]" if ":" in host else host
        url = f"http://{host}:{port}"
        say(f"t2t serve: {url}/")
        if not is_local:
            say(
                "t2t serve: other machines reach this server without a password or a "
                "time limit; put a proxy in front of it, such as examples/haproxy.cfg"
            )
        request = _request(url, next(iter(models)))
        manager = app.state.service.manager
        manager.on_ready = lambda: say(f"t2t serve: ready; ask: {request}")
        with few_warnings(), _handlers(server := Server(app)):
            server.run([address])
    return {"requests": app.state.service.answered}


def _request(url: str, name: str) -> str:
    """Returns the command that asks a model for a translation."""
    body = json.dumps({"instances": ["TEXT"]})
    return f"curl {url}/v1/models/{name}:predict -d '{body}'"


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


def parse_limits(text: str) -> Limits:
    """Returns the value of `--limits`.

    Raises:
        UserError: there is no such limit, or its value is impossible.
    """
    pairs = split_pairs(text, "--limits: ")
    return Limits(
        **{k: parse_value(Limits, k, v, "--limits: ") for k, v in pairs.items()}
    )


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


def _uses_tensorflow(args: argparse.Namespace) -> bool:
    """Returns whether a model is a SavedModel, or a run that is not yet converted."""
    for path in map(_first_directory, _directories(args).values()):
        if is_saved_model(path):
            return True
        if not (find_loader(path) or is_converted(args, path)):
            return True
    return False


COMMAND = Command(
    "serve models over HTTP, with a web page",
    _serve_flags,
    _serve,
    lambda result: "",
    uses_tensorflow=_uses_tensorflow,
    check=_check_serve,
    group="using a model",
)
