"""Files that appear as a whole or not at all, and locks."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys

import pytest
from helpers.errors import refused

from t2t_keras.errors import UserError
from t2t_keras.files.atomic import atomic, has_locks, lock


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


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o444])
def test_a_new_file_has_the_mode_of_the_old_one(mode, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "file").chmod(mode)
    with atomic(tmp_path / "file") as path:
        path.write_text("content")
    assert (tmp_path / "file").stat().st_mode & 0o777 == mode
    assert (tmp_path / "file").read_text() == "content"


def test_nothing_is_left_after_an_error(tmp_path):
    with pytest.raises(KeyError), atomic(tmp_path / "file") as path:
        path.write_text("half")
        raise KeyError
    assert not list(tmp_path.iterdir())


def test_an_absent_directory_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, atomic(tmp_path / "no" / "file"):
        pass
    assert caught.value.filename == str(tmp_path / "no" / "file")
    assert not list(tmp_path.iterdir())


def test_a_long_name_is_possible(tmp_path):
    name = "ü" * 127
    with atomic(tmp_path / name) as path:
        path.write_text("content")
    assert (tmp_path / name).read_text() == "content"


def test_a_link_in_place_of_the_file_is_replaced(tmp_path):
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "file").symlink_to(target)
    with atomic(tmp_path / "file") as path:
        path.write_text("content")
    assert not (tmp_path / "file").is_symlink()
    assert (tmp_path / "file").read_text() == "content"
    assert target.read_text() == "precious"


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


def test_a_lock_names_its_holder(tmp_path):
    path = tmp_path / "lock"
    path.write_text("process 9 on the host of a killed process")
    with lock(path, None):
        refusal = lock(path, lambda holder: UserError(f"busy: {holder}"))
        refused(f"busy: process {os.getpid()} on .", refusal.__enter__)
    with lock(path, UserError):  # free again
        pass


def test_sigkill_frees_a_lock(tmp_path):
    program = "from pathlib import Path\n"
    program += "from t2t_keras.files.atomic import lock\n"
    program += "with lock(Path('lock'), None): print('held', flush=True); input()\n"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout.readline() == b"held\n"
        held = lock(tmp_path / "lock", UserError)
        refused(f"process {process.pid} on .", held.__enter__)
        process.kill()
        process.wait()
        with lock(tmp_path / "lock", UserError):
            pass


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS])
def test_a_file_system_without_locks_is_said(code, tmp_path, monkeypatch, capsys):
    def flock(file, operation):
        raise OSError(code, os.strerror(code))

    assert has_locks(tmp_path)
    monkeypatch.setattr(fcntl, "flock", flock)
    assert not has_locks(tmp_path)
    with lock(tmp_path / "run" / "lock", UserError) as held:
        held.require_place()
    says = f"run: this file system has no locks ({os.strerror(code)}); make sure that"
    assert says in capsys.readouterr().err
    (tmp_path / "file.01234567.incomplete").touch()  # perhaps of another process
    with atomic(tmp_path / "file") as path:
        path.write_text("content")
    assert sorted(os.listdir(tmp_path)) == ["file", "file.01234567.incomplete", "run"]


def anew(directory):
    shutil.rmtree(directory)
    directory.mkdir()
    (directory / "lock").touch()


CHANGES = {
    "removed": shutil.rmtree,
    "renamed": lambda directory: directory.rename(directory.with_name("other")),
    "anew": anew,
    "a file": lambda directory: shutil.rmtree(directory) or directory.touch(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_lock_knows_whether_its_directory_is_still_there(change, tmp_path):
    directory = tmp_path / "run"
    message = f"{directory} was removed, renamed or replaced .*lock is not the file"
    with lock(directory / "lock", None) as held:
        held.require_place()
        (directory / "new").touch()
        held.require_place()
        change(directory)
        refused(message, held.require_place)
