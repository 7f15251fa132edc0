"""The command that examines this installation: `doctor`.

It must work where libraries cannot be imported: this module and its imports need only
the standard library, and another process imports the libraries.
"""

import argparse
import fcntl
import functools
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from t2t_keras.cli.command import Command
from t2t_keras.data.files import NO_LOCKS

# Files that exist if there is a driver for NVIDIA GPUs.
NVIDIA = ("/dev/nvidia0", "/proc/driver/nvidia")
_LIBRARIES = ("sacrebleu", "sentencepiece", "tensorflow", "keras", "tensorflow-text")
_SECONDS = 180  # for the other process
# Prints "import NAME" before every import, so that a crash shows the last one, and then
# the GPUs.
_PROBE = """
import importlib, json, sys
for name in sys.argv[1:]:
    print("import", name, flush=True)
    importlib.import_module(name)
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
details = map(tf.config.experimental.get_device_details, gpus)
print("gpus", json.dumps([it.get("device_name", "unknown") for it in details]))
"""


def _examine(args: argparse.Namespace) -> dict[str, Any]:
    """Returns "faults", sentences about what is wrong, "versions" and "devices"."""
    environ = args.environ  # as the user has set it
    gpus, faults = _probed()
    faults = [*_faults_of_versions(), *faults, *_faults_of_directory(Path("."))]
    backend = environ.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        faults.append(
            f"KERAS_BACKEND is '{backend}', but t2t_keras needs TensorFlow: unset it "
            "or set it to tensorflow"
        )
    if gpus is not None and is_gpu_unused(bool(gpus), environ):
        faults.append(
            "TensorFlow cannot use the NVIDIA GPU of this machine: install "
            "t2t_keras[gpu] or repair the driver (TF_CPP_MIN_LOG_LEVEL=0 shows more), "
            "or set CUDA_VISIBLE_DEVICES=-1"
        )
    versions = {name: _version(name) for name in ("t2t_keras", *_LIBRARIES)}
    driver = _run("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv")
    return {
        "faults": faults,
        "versions": {
            "python": platform.python_version(),
            "platform": platform.platform(),
            **{name: found or "not installed" for name, found in versions.items()},
        },
        "devices": {
            "cpu_cores": os.cpu_count(),
            "gpus": gpus,
            "nvidia_smi": driver.stdout.splitlines()[1:] if driver else [],
        },
    }


def is_gpu_unused(has_gpu: bool, environ: Mapping[str, str]) -> bool:
    """Returns whether there is an NVIDIA GPU that TensorFlow cannot use.

    Args:
        has_gpu: whether TensorFlow lists a GPU.
        environ: the environment; if it hides the GPUs, the answer is no.
    """
    is_hidden = environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not has_gpu and not is_hidden and any(map(os.path.exists, NVIDIA))


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _run(*command: str, **variables: str) -> subprocess.CompletedProcess[str] | None:
    """Runs a command; None: it does not exist, or does not end in time."""
    run = functools.partial(subprocess.run, capture_output=True, text=True, check=False)
    try:
        return run(command, env={**os.environ, **variables}, timeout=_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None


def _faults_of_versions() -> Iterator[str]:
    """Yields what is not installed as pyproject.toml requires it."""
    from packaging.requirements import Requirement

    for line in importlib.metadata.requires("t2t_keras") or ():
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        name, there = requirement.name, _version(requirement.name)
        needed = f"t2t_keras needs {name}{requirement.specifier}"
        if there is None:
            yield f"{name} is not installed, but {needed}: install t2t_keras again"
        elif not requirement.specifier.contains(there, prereleases=True):
            yield f"{name} {there} is installed, but {needed}: install that version"
    core, text = _version("tensorflow"), _version("tensorflow-text")
    if core and text and core.split(".")[:2] != text.split(".")[:2]:
        yield (
            f"tensorflow-text {text} does not work with tensorflow {core}: install "
            "both in one version"
        )


def _has_locks(directory: Path) -> bool:
    """Returns whether the file system of a directory has locks.

    Raises:
        OSError: the directory cannot be written.
    """
    with tempfile.NamedTemporaryFile(dir=directory) as file:
        with open(file.name, "r+b") as other:  # NFS locks only what can be written
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
        return False


def _faults_of_directory(path: Path) -> Iterator[str]:
    try:
        if not _has_locks(path):
            yield (
                "the file system of the current directory has no locks; make sure that "
                "no two processes write to one directory"
            )
    except OSError as error:
        yield f"the current directory cannot be written: {error.strerror}"


def _probed() -> tuple[list[str] | None, list[str]]:
    """Imports the libraries in another process.

    Returns:
        The GPUs of TensorFlow, None if they are not known, and the faults.
    """
    names = [name.replace("-", "_") for name in _LIBRARIES]
    # -P: a file in the current directory may have the name of a library.
    command = (sys.executable, "-P", "-c", _PROBE, *names)
    done = _run(*command, TF_CPP_MIN_LOG_LEVEL="2", KERAS_BACKEND="tensorflow")
    if done is None:
        return None, [f"the libraries are not imported within {_SECONDS} seconds"]
    lines = [line.partition(" ") for line in done.stdout.splitlines()]
    for kind, _, text in lines:
        if kind == "gpus":
            return json.loads(text), []
    library = [text for kind, _, text in lines if kind == "import"][-1]
    errors = re.findall(r"^\w*(?:Error|Exception)\b.*", done.stderr, re.MULTILINE)
    reason = errors[-1] if errors else f"exit code {done.returncode}"
    if done.returncode < 0:
        reason = f"the process ended by {signal.Signals(-done.returncode).name}"
    return None, [f"{library} does not work: {reason}"]


def _show(report: dict[str, Any]) -> str:
    """Returns the report in Markdown."""
    faults = [f"- {fault}" for fault in report["faults"]] or ["No faults were found."]
    rows = []
    for name, value in {**report["versions"], **report["devices"]}.items():
        text = ", ".join(value) or "none" if isinstance(value, list) else value
        rows.append(f"| {name} | {'unknown' if value is None else text} |")
    return "\n".join(["## t2t doctor", "", *faults, "", "| | |", "|---|---|", *rows])


COMMAND = Command(
    "examine this installation: versions, devices, and what is wrong",
    lambda parser: None,
    _examine,
    _show,
)
