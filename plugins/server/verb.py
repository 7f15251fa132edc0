"""The verb that serves models over HTTP: `serve`."""

import argparse
import dataclasses
import ipaddress
import re
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from t2t_keras.cli.decoding import (
    add_decoding_flags,
    check_decoding,
    check_served,
    given_decoding,
)
from t2t_keras.cli.verb import (
    Verb,
    add_model,
    given_options,
    not_negative,
    not_negative_number,
    positive,
    positive_number,
)
from t2t_keras.data.sources import parse_languages
from t2t_keras.export.formats import is_saved_model, require_export
from t2t_keras.option import UserError, require_extra
from t2t_keras.training.runs import is_run, require_run

from .batcher import Limits

_NAME = re.compile(r"[\w.-]+")


def _serve_flags(parser: argparse.ArgumentParser) -> None:
    add_model(parser).add_argument(
        "--model",
        action="append",
        metavar="[NAME=]DIR",
        help="a run directory or an export, and its name in URLs (default: the "
        "directory's name); may be given several times",
    )
    parser.add_argument(
        "--languages",
        action="append",
        metavar="[NAME=]SOURCE-TARGET",
        help="the codes of a model's languages, such as en-de (default: those of the "
        "problem, or in the settings of the export); may be given several times",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen at; others than this machine can reach the server at "
        "0.0.0.0, and it asks no one for a password (default: 127.0.0.1)",
    )
    parser.add_argument(
        "--port",
        type=not_negative,
        default=8501,
        metavar="N",
        help="port to listen at; 0: any that is free (default: 8501)",
    )
    parser.add_argument(
        "--allowed_host",
        action="append",
        metavar="NAME",
        help="a name by which requests may address the server, beside --host, "
        "localhost and IP addresses, for example that of a proxy before it; may be "
        "given several times (default: at a --host for other machines, any)",
    )
    limits = parser.add_argument_group("limits")
    for field in dataclasses.fields(Limits):
        meaning = f"{field.metadata['meaning']} (default: {field.default:,})"
        converter: Any = positive
        if field.type is float:
            takes_zero = field.metadata["least"] == 0
            converter = not_negative_number if takes_zero else positive_number
        metavar = "N" if field.type is int else "X"
        limits.add_argument(
            f"--{field.name}", type=converter, metavar=metavar, help=meaning
        )
    add_decoding_flags(parser)


def _check_serve(args: argparse.Namespace) -> None:
    require_extra("serve", "t2t serve", "fastapi", "prometheus_client", "uvicorn")
    options = check_decoding(args)
    if args.port >= 2**16:
        raise UserError(f"--port: {args.port} is above 65535; choose a smaller one")
    directories = _directories(args)
    _languages(args, directories)
    for directory in directories.values():
        if args.output_dir:
            require_run(directory)
        elif args.export_dir:
            require_export(directory)
        elif not is_run(directory) and not is_saved_model(directory):
            raise UserError(
                f"--model: {directory} is neither a run directory nor an export"
            )
    exports = [path for path in directories.values() if not is_run(path)]
    if exports:
        check_served(options, exports[0])
    if args.checkpoint and len(exports) == len(directories):
        raise UserError("--checkpoint needs a run; an export has it built in")


def _directories(args: argparse.Namespace) -> dict[str, Path]:
    """Returns the directory of each model by name.

    Raises:
        UserError: a name cannot be in a URL, or two models have the same.
    """
    found: dict[str, Path] = {}
    for text in args.model or [args.output_dir or args.export_dir]:
        name, sign, directory = text.partition("=") if args.model else ("", "", text)
        path = Path(directory if sign else text)
        if not sign:
            absolute = path.absolute()
            name = (absolute.parent if absolute.name.isdecimal() else absolute).name
        if not _NAME.fullmatch(name):
            raise UserError(
                f"--model: the name '{name}' of {path} may have letters, digits and "
                "._- only; give NAME=DIR"
            )
        if name in found:
            raise UserError(f"--model: two models are named '{name}'; give NAME=DIR")
        found[name] = path
    return found


def _languages(
    args: argparse.Namespace, directories: dict[str, Path]
) -> dict[str, tuple[str, str]]:
    """Returns the languages of models by name.

    Raises:
        UserError: there is no such model, or the languages are not a pair.
    """
    found = {}
    for text in args.languages or ():
        name, sign, pair = text.rpartition("=")
        if not sign:
            if len(directories) > 1:
                raise UserError(
                    f"--languages: there are several models; give NAME={text}"
                )
            (name,) = directories
        if name not in directories:
            raise UserError(f"--languages: there is no model '{name}'")
        found[name] = parse_languages(pair)
    return found


def _serve(args: argparse.Namespace) -> dict[str, Any]:
    from .app import make_app, serve
    from .served_model import ServedModel

    directories = _directories(args)
    languages = _languages(args, directories)
    with _bound(args.host, args.port) as address:
        models = [
            ServedModel.load(
                name,
                path,
                args.checkpoint if is_run(path) else None,
                languages.get(name),
                **given_decoding(args),
            )
            for name, path in directories.items()
        ]
        host, port = address.getsockname()[:2]
        hosts = None
        if args.allowed_host or ipaddress.ip_address(host).is_loopback:
            hosts = {name.lower() for name in (args.host, *(args.allowed_host or ()))}
        app = make_app(models, Limits(**given_options(args, Limits)), hosts)
        host = f"[{host}]" if ":" in host else host
        print(f"t2t serve: http://{host}:{port}/", file=sys.stderr, flush=True)
        # uvicorn raises SIGTERM again when all requests are answered.
        previous = signal.signal(signal.SIGTERM, lambda *_: None)
        try:
            serve(app, address)
        finally:
            signal.signal(signal.SIGTERM, previous)
    return {"requests": app.state.service.answered}


def _bound(host: str, port: int) -> socket.socket:
    """Returns a socket that listens at an address; requests wait until it is served.

    Raises:
        UserError: the address or the port cannot be used.
    """
    try:
        (family, _, _, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()  # otherwise another process could listen there meanwhile
        return found
    except (OSError, UnicodeError) as error:  # the latter: of a host's name
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"--port: cannot listen at {host}, port {port}: {reason}; choose another "
            "--port (0: any that is free) or --host"
        ) from None


VERB = Verb(
    "serve models over HTTP, with a web page",
    _serve_flags,
    _serve,
    lambda result: "",
    uses_tensorflow=True,
    check=_check_serve,
)
