"""Directories are removed at any depth, and nothing outside of them."""

import os
import resource
import sys

import pytest

from t2t_keras.data.remove_directory import remove_directory

NAME = "a" * 200


def make_deep(directory, depth):
    """Makes nested directories with files, whose paths become too long to name."""
    directory.mkdir()
    folder = os.open(directory, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(NAME, dir_fd=folder)
        inner = os.open(NAME, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
        os.close(os.open("0", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)


@pytest.mark.parametrize("ignore_errors", [False, True])
def test_depth_is_not_limited(ignore_errors, tmp_path):
    directory = tmp_path / "deep"
    make_deep(directory, sys.getrecursionlimit() + 100)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors + 20, limits[1]))
    try:
        remove_directory(directory, ignore_errors)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not directory.exists()


def test_links_are_removed_and_not_followed(tmp_path):
    linked = tmp_path / "outside"
    linked.mkdir()
    (linked / "letter").write_text("dear")
    directory = tmp_path / "directory"
    for folder in (directory, directory / "1", directory / "1" / "0"):
        folder.mkdir()
        (folder / "link").symlink_to(linked)
        (folder / "2").write_text("x")
    remove_directory(directory)
    assert not directory.exists()
    link = tmp_path / "link"
    link.symlink_to(linked)
    with pytest.raises(OSError):
        remove_directory(link)
    remove_directory(link, ignore_errors=True)
    assert link.is_symlink() and (linked / "letter").read_text() == "dear"


def test_an_absent_directory_is_an_error_unless_they_are_ignored(tmp_path):
    with pytest.raises(FileNotFoundError):
        remove_directory(tmp_path / "absent")
    remove_directory(tmp_path / "absent", ignore_errors=True)


def test_what_cannot_be_removed_does_not_keep_the_rest(tmp_path, monkeypatch):
    directory = tmp_path / "directory"
    (directory / "b" / "c").mkdir(parents=True)
    for path in ("kept", "a", "b/d", "b/c/e"):
        (directory / path).write_text("x")
    unlink = os.unlink

    def unlink_others(name, dir_fd):
        if name == "kept":
            raise PermissionError(name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink_others)
    remove_directory(directory, ignore_errors=True)
    assert os.listdir(directory) == ["kept"]
    with pytest.raises(PermissionError):
        remove_directory(directory)
