"""`t2t doctor` tells what is there, and works where libraries do not."""

import importlib.metadata
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run, run_json
from markdown_it import MarkdownIt

from t2t_keras.data.files import has_locks
from t2t_keras.plugins.reports import doctor

PROGRAM = "import sys; from t2t_keras.cli import main; sys.exit(main(sys.argv[1:]))"
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


def cells(text):
    """Returns the rows of the tables in a Markdown text, by their first cells."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inline = [
        "".join(child.content for child in token.children)
        for before, token in itertools.pairwise(tokens)
        if before.type == "td_open"
    ]
    return dict(zip(inline[::2], inline[1::2], strict=True))


def test_report_of_this_installation(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("TF_VAR_password", "secret")  # of another program
    monkeypatch.setenv("OMP_NUM_THREADS", "2|3")
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    monkeypatch.chdir(tmp_path)
    report = run_json(capfd, "doctor")
    assert report["faults"] == []
    for name in ("tensorflow", "keras", "tensorflow-text", "sacrebleu"):
        assert report["versions"][name] == importlib.metadata.version(name)
    own = importlib.metadata.version("t2t_keras")
    assert report["versions"]["t2t_keras"].startswith(own)
    assert report["extras"].keys() >= {"gpu", "plot", "ctranslate2", "data", "serve"}
    assert report["extras"]["ctranslate2"] == "installed"
    machine = report["machine"]
    assert 1 <= machine["cores"] <= os.cpu_count()
    free = shutil.disk_usage(tmp_path).free / 1e9
    assert machine["free_disk_gb"] == pytest.approx(free, abs=2)
    assert machine["free_memory_gb"] > 0
    assert machine["file_locks"] is has_locks(tmp_path) is True
    assert report["devices"]["gpus"] == []  # see conftest
    assert report["matmul_gflops"].keys() == {"float32", "bfloat16"}
    assert all(rate > 0.1 for rate in report["matmul_gflops"].values())
    assert report["environment"]["OMP_NUM_THREADS"] == "2|3"
    # What the program itself sets is not there.
    assert "TF_FORCE_GPU_ALLOW_GROWTH" not in report["environment"]
    assert "secret" not in json.dumps(report)
    assert not list(tmp_path.iterdir())

    text = doctor._show(report)
    assert "No faults were found." in text
    rows = cells(text)
    assert rows["OMP_NUM_THREADS"] == "2|3"
    for name, value in (*report["versions"].items(), *machine.items()):
        assert rows[name] == ("unknown" if value is None else str(value))
    assert rows["GPUs of TensorFlow"] == "none"


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (NO_CUDA, "ImportError: libcudart.so.12: cannot open"),
        (CRASH, "the process has ended by SIGABRT"),
    ],
)
def test_tensorflow_does_not_work(library, capfd, code, fault):
    library("tensorflow", code)
    report = run_json(capfd, "doctor")
    (found,) = (f for f in report["faults"] if f.startswith("tensorflow "))
    assert found.startswith(f"tensorflow does not work: {fault}")
    assert report["versions"]["tensorflow"] == importlib.metadata.version("tensorflow")
    assert run("doctor") == 0
    assert f"- {found}\n" in capfd.readouterr().out


def test_another_tensorflow_text_and_another_backend(library, capfd, monkeypatch):
    path = library("tensorflow", NO_CUDA)
    for name, version in (("tensorflow_text", "2.20.1"), ("sacrebleu", "1.5.1")):
        (path / f"{name}-{version}.dist-info").mkdir()
        about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (path / f"{name}-{version}.dist-info" / "METADATA").write_text(about)
    monkeypatch.syspath_prepend(path)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    faults = run_json(capfd, "doctor")["faults"]
    core = importlib.metadata.version("tensorflow")
    assert any(
        f.startswith(f"tensorflow-text 2.20.1 does not go with tensorflow {core}: ")
        for f in faults
    )
    assert any(f.startswith("sacrebleu 1.5.1 is installed, and") for f in faults)
    assert any(f.startswith("KERAS_BACKEND is 'jax'") for f in faults)
    assert all("\n" not in fault for fault in faults)


def test_files_of_the_current_directory_are_no_libraries(
    library, capfd, monkeypatch, tmp_path
):
    library("tensorflow", NO_CUDA)  # which saves time
    current = tmp_path / "current"
    current.mkdir()
    (current / "sacrebleu.py").write_text(CRASH)
    monkeypatch.chdir(current)
    faults = run_json(capfd, "doctor")["faults"]
    assert not any("sacrebleu" in fault for fault in faults)


@pytest.mark.parametrize("error", ["ImportError", "RuntimeError"])
def test_even_the_program_cannot_be_imported(library, error):
    """As with a NumPy of another version, or for another processor."""
    library("numpy", f"raise {error}('numpy was built for another Python')\n")
    library("tensorflow", "import numpy\n")

    def t2t(*argv):
        command = [sys.executable, "-c", PROGRAM, *argv]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    listed = t2t("list")
    assert (listed.returncode, listed.stdout) == (2, "")
    reason = "numpy was built for another Python"
    assert listed.stderr.startswith(
        f"t2t: error: a library cannot be imported: {reason};"
    )


def test_current_directory_cannot_be_written(library, capfd, monkeypatch, tmp_path):
    library("tensorflow", NO_CUDA)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    report = run_json(capfd, "doctor")
    assert any("the current directory cannot be" in f for f in report["faults"])
