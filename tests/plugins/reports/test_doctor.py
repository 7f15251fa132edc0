"""`t2t doctor` reports the installation, and works where libraries do not."""

import contextlib
import importlib.metadata
import io
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.command_line import run, run_json

from t2t_keras.plugins.reports import doctor

CRASH = "import os\nos.abort()\n"
NO_CUDA = "raise ImportError('libcudart.so.12: cannot open\\nshared object file')\n"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Replaces a library for other processes."""

    def replace(name: str, code: str) -> Path:
        (tmp_path / f"{name}.py").write_text(code)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        return tmp_path

    return replace


def test_report_of_this_installation(capfd, monkeypatch, tmp_path):
    """Without the second process, which imports TensorFlow again."""

    def run_here(*command, **variables):
        if "-c" not in command:
            return None  # there is no nvidia-smi
        monkeypatch.setattr(sys, "argv", ["-c", *command[4:]])
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(command[3], {})
        return subprocess.CompletedProcess(command, 0, output.getvalue(), "")

    monkeypatch.setattr(doctor, "_run", run_here)
    monkeypatch.chdir(tmp_path)
    report = run_json(capfd, "doctor")
    assert report["faults"] == []
    for name in ("t2t_keras", "tensorflow", "keras", "tensorflow-text", "sacrebleu"):
        assert report["versions"][name] == importlib.metadata.version(name)
    assert report["devices"]["gpus"] == []  # see conftest
    assert not list(tmp_path.iterdir())
    assert report["hub"].keys() == {"hub_endpoint", "hub_cache", "hub_offline"}
    text = doctor.Doctor().show(report)
    assert "No problems found." in text and "| gpus | none |" in text
    assert f"| keras | {importlib.metadata.version('keras')} |" in text


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (NO_CUDA, "ImportError: libcudart.so.12: cannot open"),
        (CRASH, "the process was killed by SIGABRT"),
    ],
)
def test_tensorflow_does_not_work(library, capfd, code, fault):
    library("tensorflow", code)
    report = run_json(capfd, "doctor")
    (tensorflow_fault,) = (f for f in report["faults"] if f.startswith("tensorflow "))
    assert tensorflow_fault.startswith(f"tensorflow does not work: {fault}")
    assert report["versions"]["tensorflow"] == importlib.metadata.version("tensorflow")
    assert run("doctor") == 0
    assert f"- {tensorflow_fault}\n" in capfd.readouterr().out


def test_the_hub_of_hugging_face(monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "https://mirror.example")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", "/cache/hub")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    hub = doctor._hub()
    assert hub == {
        "hub_endpoint": "https://mirror.example",
        "hub_cache": "/cache/hub",
        "hub_offline": True,
    }
    report = {"faults": [], "versions": {}, "hub": hub, "devices": {}}
    assert "| hub_offline | True |" in doctor.Doctor().show(report)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert doctor._hub() == {}
    del report["hub"]
    assert "hub" not in doctor.Doctor().show(report)


def test_another_tensorflow_text_and_another_backend(library, capfd, monkeypatch):
    path = library("tensorflow", NO_CUDA)
    for name, version in (("tensorflow_text", "2.20.1"), ("sacrebleu", "1.5.1")):
        (path / f"{name}-{version}.dist-info").mkdir()
        content = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (path / f"{name}-{version}.dist-info" / "METADATA").write_text(content)
    monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    faults = run_json(capfd, "doctor")["faults"]
    core = importlib.metadata.version("tensorflow")
    assert any(
        f.startswith(f"tensorflow-text 2.20.1 does not work with tensorflow {core}: ")
        for f in faults
    )
    assert any(f.startswith("sacrebleu 1.5.1 is installed, but") for f in faults)
    assert any(f.startswith("KERAS_BACKEND is 'jax'") for f in faults)
    assert all("\n" not in fault for fault in faults)


@pytest.mark.parametrize(
    ("gpus", "visible", "is_fault"),
    [([], "0", True), (["A"], "0", False), ([], "-1", False)],
)
def test_a_gpu_that_tensorflow_cannot_use_is_a_fault(
    gpus, visible, is_fault, monkeypatch, tmp_path, capfd
):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr("t2t_keras.devices._NVIDIA", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.setattr(doctor, "_import_libraries", lambda: (gpus, []))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    faults = run_json(capfd, "doctor")["faults"]
    assert any("cannot use the NVIDIA GPU" in fault for fault in faults) == is_fault
