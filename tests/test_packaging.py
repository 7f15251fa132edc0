"""A wheel, installed outside the repository, and a source distribution are whole."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from t2t_keras import registry

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy to build from: a build leaves folders behind."""
    copy = tmp_path_factory.mktemp("source") / "source"
    tracked = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, tracked.stdout.split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory) -> Path:
    """The wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    options = ["--no-build-isolation", "--wheel-dir", folder, source]
    subprocess.run([*pip, *options], check=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """An environment with the wheel in it, and this one's packages behind it."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", wheel], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def run(command: list[str | Path], folder: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_wheel_has_every_module_and_no_other_top_level_package(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = {"t2t_keras": "", "problems": "problems/", "hparams": "hparams/"}
    for folder, prefix in folders.items():
        for path in (ROOT / folder).rglob("*.py"):
            inside = f"t2t_keras/{prefix}{path.relative_to(ROOT / folder).as_posix()}"
            assert inside in names
    assert "t2t_keras/py.typed" in names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"t2t_keras", "t2t_keras-0.1.0.dist-info"}


def test_installed_program_finds_every_definition(python, tmp_path):
    (tmp_path / "problems").mkdir()  # a user's own folders shadow nothing
    (tmp_path / "problems" / "__init__.py").write_text("raise ImportError")
    place = run([python, "-c", "import t2t_keras; print(t2t_keras.__file__)"], tmp_path)
    assert str(python.parents[1]) in place
    listed = json.loads(run([python.parent / "t2t", "list", "--json"], tmp_path))
    assert listed["problems"] == registry.list_problems()
    assert listed["hparams_sets"] == registry.list_hparams()


def test_installed_program_generates_data(python, tmp_path):
    program = python.parent / "t2t"
    argv = ["datagen", "--problem", "translate_ende_toy", "--data_dir", "data"]
    result = json.loads(run([program, *argv, "--json"], tmp_path).splitlines()[-1])
    assert result["examples"]["test"] == 400
    assert (tmp_path / "data" / "translate_ende_toy.manifest.json").exists()


def test_tests_of_the_source_distribution_are_whole(source, tmp_path):
    build = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", tmp_path]
    subprocess.run(build, cwd=source, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for folder in ("tests", "examples", "benchmarks", "docs", "problems", "hparams"):
        for path in (source / folder).rglob("*"):
            assert (unpacked / path.relative_to(source)).exists(), path
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-m", ""]
    ours, theirs = (
        subprocess.run(collect, cwd=folder, capture_output=True, text=True, check=True)
        for folder in (source, unpacked)
    )
    assert "tests/test_packaging.py::" in theirs.stdout
    names = [
        [line for line in done.stdout.splitlines() if "::" in line]
        for done in (ours, theirs)
    ]
    assert names[0] == names[1]
    quick = [sys.executable, "-m", "pytest", "-q", "tests/test_docs.py"]
    subprocess.run(quick, cwd=unpacked, check=True)
