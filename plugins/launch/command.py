"""The command that starts a training in several processes: `launch`.

The launcher gives every process a TF_CONFIG, as a user of several machines does by
hand, and waits for them without importing TensorFlow; see
`t2t_keras.processes`.
"""

import argparse
import contextlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any

from t2t_keras.cli.command import Command, positive
from t2t_keras.devices import visible_gpus
from t2t_keras.errors import UserError
from t2t_keras.processes import LAUNCHED, T2T, Processes


def _launch_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--processes",
        type=positive,
        metavar="N",
        help="number of processes on this machine, each with one of the visible GPUs",
    )
    parser.add_argument(
        "train_command",
        nargs=argparse.REMAINDER,
        metavar="train ...",
        help="the command line of `t2t train`",
    )


def _check_launch(args: argparse.Namespace) -> None:
    if args.processes is None:
        raise UserError("give --processes N, the number of processes on this machine")
    if args.train_command[:1] != ["train"]:
        raise UserError(
            "only `train` runs in several processes; write `t2t launch --processes "
            f"{args.processes} train ...`"
        )
    if os.environ.get("TF_CONFIG"):
        raise UserError(
            "`t2t launch` is for one machine, and the environment variable TF_CONFIG "
            "names the processes of several; unset it, or use `t2t train`"
        )
    gpus = visible_gpus()
    if gpus and args.processes > len(gpus):
        raise UserError(
            f"--processes {args.processes}: each process takes a GPU, and {len(gpus)} "
            f"are visible ({', '.join(gpus)}); use at most that many, or name more "
            "GPUs in CUDA_VISIBLE_DEVICES"
        )


def _launch(args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, *T2T, *args.train_command]
    if args.json:
        command.append("--json")
    with contextlib.ExitStack() as stack:
        ports = _reserve_ports(stack, args.processes)
        variables = []
        for additions in environments(ports):
            variables.append(args.environ | additions)
        raise SystemExit(Processes(command, variables).run())


def _reserve_ports(stack: contextlib.ExitStack, count: int) -> list[int]:
    """Returns ports that no other program gets while the stack is open."""
    ports = []
    for _ in range(count):
        server = stack.enter_context(socket.socket())
        # The training process can still bind the port: it sets this option too, and
        # nobody listens here.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("localhost", 0))
        ports.append(server.getsockname()[1])
    return ports


def environments(ports: Sequence[int]) -> list[dict[str, str]]:
    """Returns the variables that each process gets in addition to the user's.

    Args:
        ports: the port of each process.
    """
    gpus = visible_gpus()
    cluster = {"worker": [f"localhost:{port}" for port in ports]}
    variables = []
    for index in range(len(ports)):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": cluster, "task": task})
        # gRPC would connect even to localhost through the proxy of `http_proxy`.
        additions = {"TF_CONFIG": config, "no_grpc_proxy": "localhost", LAUNCHED: "1"}
        if gpus:
            additions["CUDA_VISIBLE_DEVICES"] = gpus[index]
        variables.append(additions)
    return variables


COMMAND = Command(
    "train in several processes on this machine",
    _launch_flags,
    _launch,
    lambda result: "",
    check=_check_launch,
    group="data and training",
)
