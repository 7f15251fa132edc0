"""Downloads of published files, which resume where they stopped."""

import http.client
import os
import urllib.error
import urllib.request
from pathlib import Path

from t2t_keras.console import progress, say
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import lock
from t2t_keras.files.json_files import sha256 as sha256_of

_BLOCK = 1 << 20  # bytes that are read at a time
_HTML = (b"<!doctype html", b"<html")


def download(url: str, path: Path, sha256: str = "") -> None:
    """Downloads a file, or the rest of an interrupted download, unless it is there.

    Until it is complete it has the suffix `.part`. Of several processes that want the
    same file, one downloads it.

    Args:
        url: the address of the file.
        path: where to store it; missing directories are made.
        sha256: the SHA-256 that it must have; "": any.

    Raises:
        UserError: the server cannot be reached or fails, or it sent a page of HTML, or
            a file with another SHA-256.
    """
    part = path.with_name(f"{path.name}.part")
    with lock(path.with_name(f"{path.name}.lock"), refusal=None):
        if path.exists():  # another process may have downloaded it
            return
        try:
            _fetch(url, part)
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise UserError(
                f"cannot download {url}: {reason}; run the same command again, which "
                f"resumes the download, or download it by other means to {path}"
            ) from None
        with open(part, "rb") as file:
            head = file.read(512)
        # A proxy may answer with its own page.
        if head.lstrip().lower().startswith(_HTML):
            part.unlink()
            raise UserError(
                f"{url} is answered with a page of HTML, perhaps by a proxy; download "
                f"it by other means to {path}"
            )
        if sha256 and sha256_of(part) != sha256:
            part.unlink()
            raise UserError(
                f"what {url} sent is not the file that was published there: its "
                f"SHA-256 is not {sha256}"
            )
        os.replace(part, path)
        say(f"downloaded {path}")


def _fetch(url: str, path: Path) -> None:
    """Appends what a server sends to a file.

    Raises:
        OSError: the connection failed or ended too early.
    """
    size = path.stat().st_size if path.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={size}-"})
    try:
        response = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not size:
            raise
        # Nothing follows: the file is complete, or differs from the server's.
        if error.headers.get("Content-Range") in (None, f"bytes */{size}"):
            return
        path.unlink()
        return _fetch(url, path)
    with response:
        start = size if response.status == 206 else 0  # a server may ignore the range
        write_body(response, path, path.name.removesuffix(".part"), start)


def write_body(
    response: http.client.HTTPResponse, path: Path, title: str, start: int = 0
) -> None:
    """Writes what a server sends to a file, and shows the progress.

    Args:
        response: the server's answer.
        path: the file.
        title: what the progress says.
        start: number of bytes of the file that are kept, before the server's.

    Raises:
        ConnectionError: the connection was closed too early.
    """
    remaining = response.headers.get("Content-Length")
    total = start + int(remaining) if remaining else None
    with (
        open(path, "ab" if start else "wb") as file,
        progress(title, "bytes", total, start) as advance,
    ):
        while block := response.read(_BLOCK):
            file.write(block)
            advance(len(block))
    if total is not None and path.stat().st_size != total:
        raise ConnectionError("the connection was closed too early")
