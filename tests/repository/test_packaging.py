"""The wheel and the source distribution are whole; `.ci/package` uses them."""

import email
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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


def test_wheel_has_every_file_and_no_other_top_level_package(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    folders = {"t2t_keras": ""}
    folders |= {name: f"{name}/" for name in ("problems", "hparams", "plugins")}
    for folder, prefix in folders.items():
        for path in filter(Path.is_file, (ROOT / folder).rglob("*.*")):
            if path.suffix == ".pyc":
                continue
            name = f"t2t_keras/{prefix}{path.relative_to(ROOT / folder).as_posix()}"
            assert name.replace("plugins/testing", "testing") in names
    assert "t2t_keras/py.typed" in names
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"t2t_keras", "t2t_keras-0.1.0.dist-info"}


def test_the_package_page_names_only_owned_addresses(wheel):
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith("/METADATA"))
        metadata = email.message_from_bytes(file.read(name))
    assert metadata.get_all("Project-URL") is None
    assert metadata.get_payload().rstrip() == (ROOT / "README.md").read_text().rstrip()


def test_tests_of_the_source_distribution_are_whole(source, tmp_path):
    build = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", tmp_path]
    subprocess.run(build, cwd=source, check=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for folder in ("tests", "examples", "benchmarks", "docs", "problems", "plugins"):
        for path in (source / folder).rglob("*"):
            assert (unpacked / path.relative_to(source)).exists(), path
    quick = [sys.executable, "-m", "pytest", "-q", "tests/repository/test_docs.py"]
    subprocess.run(quick, cwd=unpacked, check=True)
