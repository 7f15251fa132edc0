"""Files that are written atomically, and links that strangers have put there."""

import os
import signal
import subprocess
import sys

import pytest

from t2t_keras.files.atomic import atomic
from t2t_keras.text.tokenizer import write_vocabulary


@pytest.fixture
def victim(tmp_path):
    """A file of somebody else, to which a stranger's directory may have links."""
    path = tmp_path / "victim"
    path.write_text("precious\n")
    yield path
    assert path.read_text() == "precious\n"


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
    program += "from t2t_keras.files.atomic import atomic\n"
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
