"""Locks: their purpose, and what they leave of a file."""

import shutil

import pytest
from helpers.errors import refused

from t2t_keras.errors import UserError
from t2t_keras.files.atomic import lock, purpose_of_holder


def test_a_lock_tells_its_purpose_while_it_is_held(tmp_path):
    path = tmp_path / "lock"
    with lock(path, None, "process 1 on host"):
        assert purpose_of_holder(path) == "process 1 on host"
        refusal = lock(path, lambda purpose: UserError(f"busy: {purpose}"))
        refused("busy: process 1 on host", refusal.__enter__)
    assert path.read_text() == "" and purpose_of_holder(path) is None
    path.write_text("process 9 on the host of a killed process")
    with lock(path, None, "process 2 on host"):
        assert path.read_text() == "process 2 on host"


def test_a_lock_does_not_truncate_what_others_wrote(tmp_path):
    path = tmp_path / "lock"
    path.write_text("my notes")
    with lock(path, None, "process 1 on host"):
        assert purpose_of_holder(path) == ""
    assert path.read_text() == "my notes"
    assert purpose_of_holder(tmp_path / "absent") is None
    assert not (tmp_path / "absent").exists()


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
    with lock(directory / "lock", None, "process 1 on host") as held:
        held.require_place()
        (directory / "new").touch()
        held.require_place()
        change(directory)
        refused(message, held.require_place)
