"""Downloads, from a server that breaks connections off."""

import hashlib

import pytest
from helpers.errors import refused
from helpers.file_server import FileServer

from t2t_keras.files import download as module
from t2t_keras.files.download import download

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def server():
    with FileServer({"/x.tgz": CONTENT}) as server:
        yield server


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_a_download_resumes_where_it_stopped(
    server, tmp_path, monkeypatch, ignores_ranges
):
    monkeypatch.setattr(module, "_BLOCK", 1 << 16)
    sha256 = hashlib.sha256(CONTENT).hexdigest()
    path = tmp_path / "raw" / "x.tgz"
    server.breaks = [300_000]
    server.ignores_ranges = ignores_ranges
    url = f"{server.address}/x.tgz"
    message = r"x\.tgz: the connection was closed too early"
    refused(message, download, url, path, sha256)
    assert not path.exists()
    download(url, path, sha256)
    assert server.ranges == ["bytes=0-", "bytes=300000-"]
    assert path.read_bytes() == CONTENT
    names = sorted(path.name for path in path.parent.iterdir())
    assert names == ["x.tgz", "x.tgz.lock"]
    download(url, path, sha256)  # another process has downloaded it meanwhile
    assert len(server.ranges) == 2


def test_what_is_complete_is_not_sent_again(server, tmp_path):
    """The process was killed before it renamed the file."""
    path = tmp_path / "x.tgz"
    path.with_name("x.tgz.part").write_bytes(CONTENT)
    download(f"{server.address}/x.tgz", path)
    assert server.ranges == [f"bytes={len(CONTENT)}-"]
    assert path.read_bytes() == CONTENT


def test_downloads_that_fail(server, tmp_path):
    server.files = {**server.files, "/page.gz": b"\n<!DOCTYPE html><p>Sign in"}
    for url, message in (
        (f"{server.address}/x.tgz", "its SHA-256 is not 0000"),
        (f"{server.address}/y.tgz", r"cannot download .*y\.tgz: Not Found; run"),
        ("http://127.0.0.1:9/x.tgz", "Connection refused"),
        (
            f"{server.address}/page.gz",
            "a page of HTML, perhaps by a proxy; download it",
        ),
    ):
        refused(message, download, url, tmp_path / "x.tgz", "0" * 64)
    assert all(path.suffix == ".lock" for path in tmp_path.iterdir())
