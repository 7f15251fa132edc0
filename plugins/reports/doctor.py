"""`t2t doctor`: what is wrong with this installation.

It must work even if a library cannot be imported, so this module and its imports need
only the standard library, and a separate process imports the libraries.
"""

import dataclasses
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from t2t_keras.cli.command import Command, CommandResult
from t2t_keras.devices import num_cores, visible_gpus
from t2t_keras.files.atomic import has_locks

_LIBRARIES = ("sacrebleu", "sentencepiece", "tensorflow", "keras", "tensorflow-text")
_TIMEOUT_SECONDS = 180

# The script prints the name of a library before it imports it, so that a crash shows
# which library crashed.
_PROBE = """
import importlib, json, sys
for name in sys.argv[1:]:
    print("import", name, flush=True)
    importlib.import_module(name)
import tensorflow as tf
gpus = tf.config.list_physical_devices("GPU")
details = map(tf.config.experimental.get_device_details, gpus)
print("gpus", json.dumps([gpu.get("device_name", "unknown") for gpu in details]))
"""


@dataclasses.dataclass(kw_only=True)
class Doctor(Command):
    """Finds what is wrong with this installation."""

    summary = "check this installation: versions, devices, and what is wrong"
    heading = "judging a model"
    waiting = "examining the installation"

    def run(self) -> CommandResult:
        """Returns "faults", a list of sentences, "versions", "hub" and "devices".

        Without huggingface_hub there is no "hub".
        """
        gpus, import_faults = _import_libraries()
        faults = [*_version_faults(), *import_faults, *_directory_faults(Path("."))]
        backend = self.environ.get("KERAS_BACKEND", "tensorflow")
        if backend != "tensorflow":
            faults.append(
                f"KERAS_BACKEND is '{backend}', but t2t_keras needs TensorFlow: unset "
                "it or set it to tensorflow"
            )
        if gpus == [] and visible_gpus():
            faults.append(
                "TensorFlow cannot use the NVIDIA GPU of this machine: install "
                "t2t_keras[gpu] or repair the driver (TF_CPP_MIN_LOG_LEVEL=0 shows "
                "more), or set CUDA_VISIBLE_DEVICES=-1"
            )
        versions = {
            "python": platform.python_version(),
            "platform": platform.platform(),
        }
        for name in ("t2t_keras", *_LIBRARIES):
            versions[name] = _version(name) or "not installed"
        report: dict[str, Any] = {"faults": faults, "versions": versions}
        if hub := _hub():
            report["hub"] = hub
        driver = _run("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv")
        report["devices"] = {
            "cpu_cores": num_cores(),
            "gpus": gpus,
            "nvidia_smi": driver.stdout.splitlines()[1:] if driver else [],
        }
        return report

    def show(self, result: CommandResult) -> str:
        """Returns the report in Markdown."""
        faults = [f"- {fault}" for fault in result["faults"]] or ["No problems found."]
        rows = []
        facts = result["versions"] | result.get("hub", {}) | result["devices"]
        for name, value in facts.items():
            text = ", ".join(value) or "none" if isinstance(value, list) else value
            rows.append(f"| {name} | {'unknown' if value is None else text} |")
        return "\n".join(
            ["## t2t doctor", "", *faults, "", "| | |", "|---|---|", *rows]
        )

    def next_command(self) -> str:
        """Returns the command that writes data."""
        return "t2t datagen --problem translate_ende_toy --data_dir data"


def _hub() -> dict[str, str | bool]:
    """Returns where `t2t import` fetches models; {}: huggingface_hub does not work."""
    try:
        from huggingface_hub import constants
    except Exception:  # whatever a broken installation raises
        return {}
    return {
        "hub_endpoint": constants.ENDPOINT,
        "hub_cache": constants.HF_HUB_CACHE,
        "hub_offline": constants.HF_HUB_OFFLINE,
    }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _run(*command: str, **variables: str) -> subprocess.CompletedProcess[str] | None:
    """Runs a command; returns None if it does not exist or takes too long."""
    try:
        return subprocess.run(
            command,
            env={**os.environ, **variables},
            timeout=_TIMEOUT_SECONDS,
            capture_output=True,
            text=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _version_faults() -> Iterator[str]:
    """Yields a sentence for each requirement of the package that is not met."""
    from packaging.requirements import Requirement

    for line in importlib.metadata.requires("t2t_keras") or ():
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        name = requirement.name
        version = _version(name)
        needed = f"t2t_keras needs {name}{requirement.specifier}"
        if version is None:
            yield f"{name} is not installed, but {needed}: install t2t_keras again"
        elif not requirement.specifier.contains(version, prereleases=True):
            yield f"{name} {version} is installed, but {needed}: install that version"
    core = _version("tensorflow")
    text = _version("tensorflow-text")
    if core and text and core.split(".")[:2] != text.split(".")[:2]:
        yield (
            f"tensorflow-text {text} does not work with tensorflow {core}: install the "
            "same version of both"
        )


def _directory_faults(path: Path) -> Iterator[str]:
    try:
        if not has_locks(path):
            yield (
                "the file system of the current directory does not support locks; make "
                "sure that no two processes write to the same directory"
            )
    except OSError as error:
        yield f"the current directory cannot be written: {error.strerror}"


def _import_libraries() -> tuple[list[str] | None, list[str]]:
    """Imports the libraries in a separate process.

    Returns:
        The names of TensorFlow's GPUs, or None if they are unknown, and the faults.
    """
    names = [name.replace("-", "_") for name in _LIBRARIES]
    # -P keeps Python from importing a file of the current directory as a library.
    command = (sys.executable, "-P", "-c", _PROBE, *names)
    process = _run(*command, TF_CPP_MIN_LOG_LEVEL="2", KERAS_BACKEND="tensorflow")
    if process is None:
        return None, [
            f"importing the libraries takes more than {_TIMEOUT_SECONDS} seconds"
        ]
    library = names[0]
    for line in process.stdout.splitlines():
        label, _, text = line.partition(" ")
        if label == "gpus":
            return json.loads(text), []
        if label == "import":
            library = text
    errors = re.findall(r"^\w*(?:Error|Exception)\b.*", process.stderr, re.MULTILINE)
    reason = errors[-1] if errors else f"exit code {process.returncode}"
    if process.returncode < 0:
        signal_name = signal.Signals(-process.returncode).name
        reason = f"the process was killed by {signal_name}"
    return None, [f"{library} does not work: {reason}"]


COMMAND = Doctor
