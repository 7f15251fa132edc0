"""Files that are written atomically, and links that strangers have put there."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from helpers.errors import refused
from helpers.small_corpus import PROBLEM, faults, interrupt

from t2t_keras.data.atomic_files import atomic
from t2t_keras.data.datagen import generate
from t2t_keras.data.locks import lock
from t2t_keras.data.log_files import open_log
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.export.directory import replaced
from t2t_keras.run.directory import training_lock
from t2t_keras.text.vocabulary_file import write_vocabulary


@pytest.fixture
def victim(tmp_path):
    """A file of somebody else, to which a stranger's directory may have links."""
    path = tmp_path / "victim"
    path.write_text("precious\n")
    yield path
    assert path.read_text() == "precious\n"


# Temporary files


def test_a_temporary_file_is_new_and_its_name_cannot_be_guessed(tmp_path):
    names = set()
    for _ in range(2):
        with atomic(tmp_path / "file") as path:
            assert path.parent == tmp_path and path.read_bytes() == b""
            path.write_text("content")
            names.add(path.name)
    assert len(names) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_nothing_is_left_after_an_error(tmp_path):
    with pytest.raises(KeyError), atomic(tmp_path / "file") as path:
        path.write_text("half")
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_a_long_name_is_possible(tmp_path):
    name = "ü" * 127
    with atomic(tmp_path / name) as path:
        path.write_text("content")
    assert (tmp_path / name).read_text() == "content"


def test_a_link_in_place_of_the_file_is_replaced(tmp_path, victim):
    (tmp_path / "file").symlink_to(victim)
    (tmp_path / "file.incomplete").symlink_to(victim)
    with atomic(tmp_path / "file") as path:
        path.write_text("content")
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_text() == "content"


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path):
    program = "import os, signal; from pathlib import Path\n"
    program += "from t2t_keras.data.atomic_files import atomic\n"
    program += "with atomic(Path('file')): os.kill(os.getpid(), signal.SIGKILL)\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    (leftover,) = tmp_path.iterdir()
    unrelated = (
        "file.incomplete",
        "other.01234567.incomplete",
        "file.0123456.incomplete",
    )
    for name in unrelated:
        (tmp_path / name).write_text("of the user")
    with atomic(tmp_path / "file") as temporary:
        assert not leftover.exists()
        with atomic(tmp_path / "file"):  # another process writes the same file
            assert temporary.exists()
    assert {path.name for path in tmp_path.iterdir()} == {"file", *unrelated}


def test_a_vocabulary_is_not_written_through_a_link(tmp_path, victim):
    for name in ("vocab", f"vocab.{os.getpid()}.tmp"):
        (tmp_path / name).symlink_to(victim)
    write_vocabulary(tmp_path / "vocab", b"new")
    assert (tmp_path / "vocab").read_bytes() == b"new"


# A stranger's directories


def test_an_index_is_not_written_through_a_link(complete, tmp_path, victim):
    directory = shutil.copytree(complete, tmp_path / "data")
    index = directory / "small-train.index.npz"
    content = index.read_bytes()
    index.unlink()
    (directory / "small-train.index.npz.incomplete").symlink_to(victim)
    RecordIndex.open(directory, "small", "train")
    assert index.read_bytes() == content and not index.is_symlink()


@pytest.mark.parametrize("name", ["train.lock", "history.jsonl"])
def test_a_link_is_not_followed(name, tmp_path, victim):
    (tmp_path / name).symlink_to(victim)
    message = f"{name} is a symbolic link, .*; remove it"
    if name == "train.lock":
        refused(message, training_lock(tmp_path).__enter__)
    else:
        refused(message, open_log, tmp_path / name)


def test_a_source_that_is_not_a_file_is_refused(tmp_path):
    (tmp_path / "directory").mkdir()
    os.mkfifo(tmp_path / "pipe")  # to open it would wait for another process
    for name in ("directory", "pipe"):
        refused("is not a regular file", open_log, tmp_path / name)
        refused("is not a regular file", lock(tmp_path / name, None).__enter__)


def test_data_are_not_made_in_a_linked_directory(tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter").write_text("dear")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "small.incomplete").symlink_to(home)
    refused("is a symbolic link", generate, PROBLEM, tmp_path / "data", workers=1)
    assert [path.name for path in home.iterdir()] == ["letter"]


def test_data_are_not_published_from_a_linked_directory(tmp_path, small_scale):
    data = tmp_path / "data"
    home = tmp_path / "home"
    with faults(12, interrupt), pytest.raises(KeyboardInterrupt):
        generate(PROBLEM, data, workers=1)
    (data / "small.incomplete" / "done").rename(home)
    (data / "small.incomplete" / "done").symlink_to(home)
    (home / "letter").write_text("dear")
    refused("done is a symbolic link", generate, PROBLEM, data, workers=1)
    assert (home / "letter").exists()


def test_an_export_is_not_made_in_a_linked_directory(tmp_path):
    home = tmp_path / "home"
    (home / "new").mkdir(parents=True)
    (tmp_path / ".1.incomplete").symlink_to(home)
    refused("is a symbolic link", replaced(tmp_path / "1").__enter__)
    assert [path.name for path in home.iterdir()] == ["new"]
