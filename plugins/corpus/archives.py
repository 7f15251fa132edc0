"""Sources in the archives of WMT, which are read as streams."""

import contextlib
import dataclasses
import html
import io
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any, cast

from t2t_keras.data.sources import ArchiveFormat, side_by_side
from t2t_keras.errors import UserError
from t2t_keras.files.download import download
from t2t_keras.files.json_files import sha256
from t2t_keras.files.text_files import (
    LONGEST_LINE,
    decoded_lines,
    decompressed,
    open_binary,
    readable,
)
from t2t_keras.problem import Pair

_SEGMENT = re.compile(r"<seg\b[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class ArchivedPairs:
    """Two members of a tar or zip archive: their lines translate each other.

    Nothing is unpacked to the disk. A `.gz` member is decompressed. An `.sgm` member is
    one of WMT's test sets in SGML: its segments are the lines, and their entities
    (`&amp;`) become characters.

    Attributes:
        directory: where the archive is.
        url: where it is published; its last part is the file name.
        source_member: the name of the member in the source language.
        target_member: the name of the member in the target language.
        sha256: SHA-256 of the archive, which is checked after a download; empty if
            there are several editions.
    """

    directory: Path
    url: str
    source_member: str
    target_member: str
    sha256: str = ""

    @property
    def path(self) -> Path:
        """The archive."""
        return self.directory / self.url.rpartition("/")[2]

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs of lines.

        Raises:
            UserError: the archive cannot be read, lacks a member, or its members
                differ in length or are not UTF-8.
        """
        with (
            self._lines(self.source_member) as source,
            self._lines(self.target_member) as target,
        ):
            yield from side_by_side(
                (
                    f"{self.path}:{self.source_member}",
                    f"{self.path}:{self.target_member}",
                ),
                (source, target),
                "line by line, one must be the translation of the other",
            )

    def checksum(self) -> str:
        """Returns the SHA-256 of the archive, and the members' names."""
        return f"archive {sha256(self.path)} {self.source_member} {self.target_member}"

    @contextlib.contextmanager
    def _lines(self, member: str) -> Iterator[Iterator[str]]:
        """Yields the lines of a member."""
        with open_member(self.path, member) as file:
            lines = decoded_lines(file, f"{self.path}:{member}")
            yield _segments(lines) if member.endswith(".sgm") else lines


@contextlib.contextmanager
def open_member(path: Path, member: str) -> "Iterator[io.BufferedReader[Any]]":
    """Opens a member of an archive; a `.gz` member is decompressed.

    Two members may be read at once, so each opens the archive for itself. In a plain
    archive members are skipped; a compressed one is decompressed up to the member.

    Raises:
        UserError: the archive cannot be read, or lacks the member.
    """
    with readable(path), contextlib.ExitStack() as stack:
        file = _member(path, member, stack)
        if file is None:
            raise UserError(f"{path} has no member {member}")
        stream = cast("io.BufferedReader[Any]", file)
        yield decompressed(stream, f"{path}:{member}")


def _member(path: Path, member: str, stack: contextlib.ExitStack) -> IO[bytes] | None:
    """Opens a member until the stack is closed; returns None if there is none."""
    if path.suffix.lower() == ".zip":
        zipped = stack.enter_context(zipfile.ZipFile(path))
        for name in zipped.namelist():
            if _is_member(name, member):
                return stack.enter_context(zipped.open(name))
        return None
    archive = stack.enter_context(_tar(path))
    for info in archive:
        if _is_member(info.name, member):
            return archive.extractfile(info)
    return None


@contextlib.contextmanager
def _tar(path: Path) -> Iterator[tarfile.TarFile]:
    """Opens a tar archive, from its beginning."""
    if path.suffix == ".tar":
        with tarfile.open(path, "r:") as archive:
            yield archive
        return
    with (
        open_binary(path) as stream,
        tarfile.open(fileobj=stream, mode="r|") as archive,
    ):
        yield archive


def _is_member(name: str, member: str) -> bool:
    """Whether a name in an archive is a member's name: some begin with `./`."""
    return name.removeprefix("./") == member


def _segments(lines: Iterable[str]) -> Iterator[str]:
    """Yields the segments of a test set in SGML, one a line, without entities."""
    text = "\n".join(_bounded(lines))
    for segment in _SEGMENT.findall(text):
        yield html.unescape(" ".join(segment.split("\n"))).strip()


def _bounded(lines: Iterable[str]) -> Iterator[str]:
    """Yields the lines of a test set, which is held in memory.

    Raises:
        UserError: they are far more than a test set has.
    """
    size = 0
    for line in lines:
        size += len(line)
        if size > LONGEST_LINE:
            raise UserError(
                f"a test set in SGML has more than {LONGEST_LINE:,} characters; copy "
                "the archive again"
            )
        yield line


def require_archives(archives: Iterable[ArchivedPairs], downloads: bool) -> None:
    """Makes sure that all archives are there.

    Args:
        archives: the sources, several of which may share an archive.
        downloads: whether missing archives are downloaded.

    Raises:
        UserError: some are missing; the message has their addresses.
    """
    paths = set()
    missing = {}
    for pairs in archives:
        paths.add(pairs.path)
        if not pairs.path.exists():
            missing[pairs.path] = pairs
    for pairs in missing.values():
        if not downloads:
            urls = " ".join(absent.url for absent in missing.values())
            raise UserError(
                f"{pairs.directory} lacks {len(missing)} of {len(paths)} archives; "
                f"download them, or add --download: {urls}"
            )
        download_archive(pairs)


def download_archive(archive: ArchivedPairs) -> None:
    """Downloads an archive, or the rest of an interrupted download.

    Raises:
        UserError: see `download`.
    """
    download(archive.url, archive.path, archive.sha256)


# The entry point of `t2t_keras.archives`.
ARCHIVES = ArchiveFormat(
    (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".zip"),
    ArchivedPairs,
    download_archive,
    open_member,
)
