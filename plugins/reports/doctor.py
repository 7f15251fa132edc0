"""The verb that examines this installation: `doctor`.

It must work where libraries cannot be imported: this module and those that it imports
need the standard library only, and `probe`, in another process, imports the libraries
and uses the devices.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.cli.verb import Verb
from t2t_keras.data.files import has_locks
from t2t_keras.training.free_memory import free_memory

# Files that exist if there is a driver for NVIDIA GPUs.
NVIDIA = ("/dev/nvidia0", "/proc/driver/nvidia")
UNUSED_GPU = (
    "TensorFlow cannot use the NVIDIA GPU of this machine, and the CPU is used; "
    "install t2t_keras[gpu] or mend the driver (TF_CPP_MIN_LOG_LEVEL=0 shows more), or "
    "set CUDA_VISIBLE_DEVICES=-1"
)

_LIBRARIES = (
    *("tensorflow", "keras", "tensorflow-text", "numpy", "sacrebleu"),
    *("sentencepiece", "tensorflow-datasets"),
)
# By name, because others with such prefixes are of other programs and may be secret.
_VARIABLES = (
    *("TF_CPP_MIN_LOG_LEVEL", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR"),
    *("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "TF_ENABLE_ONEDNN_OPTS"),
    *("TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC", "TF_CUDNN_USE_AUTOTUNE"),
    *("TF_GPU_THREAD_MODE", "TF_USE_LEGACY_KERAS", "TF_XLA_FLAGS", "TF_CONFIG"),
    *("XLA_FLAGS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_HOME"),
    *("NVIDIA_VISIBLE_DEVICES", "NVIDIA_TF32_OVERRIDE", "NCCL_DEBUG"),
    *("OMP_NUM_THREADS", "KERAS_BACKEND", "KERAS_HOME", "TFDS_DATA_DIR"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "NO_COLOR", "FORCE_COLOR"),
)
_ROOT = Path(__file__).parents[2]  # of the package
_SECONDS = 180  # for the other process
_WITHOUT_EXTRAS = {"extra": ""}


def version(distribution: str) -> str | None:
    """Returns the version of an installed distribution; None: it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def version_line() -> str:
    """Returns what `t2t --version` prints."""
    others = (f"{name} {version(name) or 'absent'}" for name in _LIBRARIES[:2])
    return f"t2t_keras {version('t2t_keras') or 'not installed'} ({', '.join(others)})"


def _doctor(args: argparse.Namespace) -> dict[str, Any]:
    return examine(args.environ)


def examine(environ: Mapping[str, str]) -> dict[str, Any]:
    """Examines the installation.

    Args:
        environ: the environment as the user has set it.

    Returns:
        "faults", sentences about what is wrong; "versions", "extras", "machine",
        "devices", "matmul_gflops" by dtype, and "environment".
    """
    found, faults = _probed()
    faults = [*_faults_of_requirements(), *_faults_of_text(), *faults]
    backend = environ.get("KERAS_BACKEND", "tensorflow")
    if backend != "tensorflow":
        faults.append(
            f"KERAS_BACKEND is '{backend}', and t2t_keras needs TensorFlow: unset it "
            "or set it to tensorflow"
        )
    devices = found.get("devices", {})
    if devices and is_gpu_unused(bool(devices["gpus"]), environ):
        faults.append(UNUSED_GPU)
    free_disk = locks = None
    try:
        free_disk = _gb(shutil.disk_usage(".").free)
        locks = has_locks(Path("."))
        if not locks:
            faults.append(
                "the file system of the current directory has no locks; make sure that "
                "no two processes write to one directory"
            )
    except OSError as error:
        faults.append(f"the current directory cannot be written: {error.strerror}")
    return {
        "faults": faults,
        "versions": {
            "t2t_keras": _own_version(),
            "python": platform.python_version(),
            "platform": platform.platform(),
            **{name: version(name) or "not installed" for name in _LIBRARIES},
        },
        "extras": {
            extra: f"lacks {', '.join(lacking)}" if lacking else "installed"
            for extra, lacking in _extras().items()
        },
        "machine": {
            "cpu": _cpu(),
            "cores": len(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else os.cpu_count(),
            "cores_of_container": _core_limit() or "no limit",
            "free_memory_gb": _gb(free_memory()),
            "free_disk_gb": free_disk,
            "file_locks": locks,
        },
        "devices": {**devices, "nvidia_smi": _nvidia_smi()},
        "matmul_gflops": found.get("matmul", {}),
        "environment": {n: environ[n] for n in _VARIABLES if n in environ},
    }


def is_gpu_unused(has_gpu: bool, environ: Mapping[str, str]) -> bool:
    """Returns whether there is an NVIDIA GPU that TensorFlow cannot use.

    Args:
        has_gpu: whether TensorFlow lists a GPU.
        environ: the environment; if it hides the GPUs, the answer is no.
    """
    is_hidden = environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not has_gpu and not is_hidden and any(map(os.path.exists, NVIDIA))


def _gb(count: float) -> float | None:
    return round(count / 1e9, 1) if count < float("inf") else None


def _own_version() -> str:
    """Returns the version, with the commit if it is a checkout."""
    own = version("t2t_keras") or "not installed"
    if not (_ROOT / ".git").exists():
        return own
    describe = ["git", "-C", str(_ROOT), "describe", "--always", "--dirty"]
    describe.append("--exclude=*")  # no tags
    commit = _output(describe)
    return f"{own}, commit {commit}" if commit else own


def _output(command: Sequence[str]) -> str:
    """Returns what a command prints; "" if it fails or is not there."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _nvidia_smi() -> list[str]:
    """Returns name, driver and memory of each GPU, as the driver names them."""
    query = "--query-gpu=name,driver_version,memory.total,memory.free"
    return _output(["nvidia-smi", query, "--format=csv,noheader"]).splitlines()


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    model = re.search(r"model name\s*: (.*)", text)
    return model[1] if model else platform.machine()


def _core_limit() -> float | None:
    """Returns the cores whose time a container may take; None: there is no limit."""
    root = Path("/sys/fs/cgroup")
    try:
        quota, period = (root / "cpu.max").read_text().split()  # version 2
    except (OSError, ValueError):
        try:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quota, period = ((root / "cpu" / name).read_text() for name in names)
        except OSError:
            return None
    return int(quota) / int(period) if quota.strip().isdigit() else None


def _faults_of_requirements() -> Iterator[str]:
    """Yields what is not installed as pyproject.toml requires it."""
    for requirement in _requirements("t2t_keras"):
        if requirement.marker and not requirement.marker.evaluate(_WITHOUT_EXTRAS):
            continue
        name, there = requirement.name, version(requirement.name)
        needed = f"t2t_keras needs {name}{requirement.specifier}"
        if there is None:
            yield f"{name} is not installed, and {needed}: install t2t_keras anew"
        elif not requirement.specifier.contains(there, prereleases=True):
            yield f"{name} {there} is installed, and {needed}: install that version"


def _faults_of_text() -> Iterator[str]:
    """Yields a sentence if the versions of TensorFlow Text and TensorFlow differ."""
    there = [version(name) for name in ("tensorflow", "tensorflow-text")]
    if None not in there and len({str(v).rpartition(".")[0] for v in there}) > 1:
        core, text = there
        yield (
            f"tensorflow-text {text} does not go with tensorflow {core}: install both "
            "of one version"
        )


def _requirements(distribution: str) -> list[Any]:
    """Returns the requirements of a distribution; none if that cannot be known."""
    try:
        from packaging.requirements import Requirement

        lines = importlib.metadata.requires(distribution) or ()
        return [Requirement(line) for line in lines]
    except (ImportError, ValueError):
        return []


def _extras() -> dict[str, list[str]]:
    """Returns, for each extra of t2t_keras, the distributions that it lacks."""
    try:
        about = importlib.metadata.metadata("t2t_keras")
    except importlib.metadata.PackageNotFoundError:
        return {}
    names = (name for name in about.get_all("Provides-Extra") or () if name != "test")
    return {name: sorted(set(_lacking("t2t_keras", name))) for name in names}


def _lacking(distribution: str, extra: str) -> Iterator[str]:
    """Yields what an extra of a distribution needs and is not installed."""
    for requirement in _requirements(distribution):
        marker = requirement.marker
        if not marker or marker.evaluate(_WITHOUT_EXTRAS):
            continue
        if marker.evaluate({"extra": extra}):
            if version(requirement.name) is None:
                yield requirement.name
            for inner in requirement.extras:
                yield from _lacking(requirement.name, inner)


def _probed() -> tuple[dict[str, Any], list[str]]:
    """Runs `probe` in another process.

    Returns:
        What it found, and the faults.
    """
    # -P: not the current directory, in which a file may have the name of a library.
    command = [sys.executable, "-P", "-m", "t2t_keras.plugins.reports.probe"]
    environ = {
        **os.environ,
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "KERAS_BACKEND": "tensorflow",
    }
    # It finds the package as this process does.
    paths = [os.environ.get("PYTHONPATH"), str(_ROOT)]
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    process = subprocess.Popen(
        command,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    end = ""
    try:
        out, err = process.communicate(timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        end = f"does not end within {_SECONDS} seconds"
    found: dict[str, Any] = {}
    faults, stage = [], "Python"
    for line in out.splitlines():
        try:
            said = json.loads(line)
        except ValueError:  # incomplete
            continue
        stage = said.pop("begins", stage)
        if "error" in said:
            faults.append(f"{stage} does not work: {said['error']}")
        else:
            found |= said
    if process.returncode and not end:
        end = f"has ended with exit code {process.returncode}"
        if process.returncode < 0:
            end = f"has ended by {signal.Signals(-process.returncode).name}"
    if end:
        last = err.strip().splitlines()[-1:] or ["it printed nothing"]
        faults.append(f"{stage} does not work: the process {end} ({last[0]})")
    return found, faults


def _show(report: dict[str, Any]) -> str:
    faults = report["faults"]
    parts = ["## t2t doctor", "No faults were found."]
    if faults:
        parts[1] = "\n".join(["Faults:", "", *(f"- {fault}" for fault in faults)])
    devices = dict(report["devices"])
    gpus = [
        f"{gpu['name']}, compute capability {gpu['compute_capability']}"
        for gpu in devices.pop("gpus", ())
    ]
    rows = {
        "Versions": report["versions"]
        | {f"extra {k}": v for k, v in report["extras"].items()},
        "Machine": report["machine"],
        "Devices": {
            "GPUs of TensorFlow": "; ".join(gpus) or "none",
            "GPUs of the driver": "; ".join(devices.pop("nvidia_smi")) or "none",
            **devices,
            **{f"{k} matmul, GFLOP/s": v for k, v in report["matmul_gflops"].items()},
        },
        "Environment": report["environment"],
    }
    for title, values in rows.items():
        known = {k: "unknown" if v is None else v for k, v in values.items()}
        parts += [f"### {title}", _table(known) if known else "Nothing is set."]
    return "\n\n".join(parts)


def _table(rows: Mapping[str, Any]) -> str:
    """Returns a table of names and values in Markdown."""
    lines = []
    for name, value in rows.items():
        cell = str(value).replace("|", "\\|")
        lines.append(f"| {name} | {cell} |")
    return "\n".join(["| | |", "| --- | --- |", *lines])


def main(argv: Sequence[str]) -> int:
    """Runs the verb where the program cannot be imported; returns 0."""
    report = examine(os.environ)
    print(json.dumps(report) if "--json" in argv else _show(report))
    return 0


VERB = Verb(
    "examine this installation: versions, devices, speed, and what is wrong",
    lambda parser: None,
    _doctor,
    _show,
)
