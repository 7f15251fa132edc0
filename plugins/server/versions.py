"""Where the server finds the versions of a model.

In a folder of numbered versions the newest one is served, as in TensorFlow Serving. A
version counts as soon as it is complete, which its checksums tell.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeAlias

from t2t_keras.console import say
from t2t_keras.errors import first_line
from t2t_keras.exporting.directory import SUMS
from t2t_keras.exporting.formats import find_loader

from .served_model import ServedModel

_NUMBER = re.compile(r"[0-9]{1,18}")
# The names, sizes and times of the files of a version.
_Files: TypeAlias = tuple[tuple[str, int, int], ...]


class FixedModel:
    """A model with one version.

    Args:
        load: loads the model.
        version: its number.
    """

    def __init__(self, load: Callable[[], ServedModel], version: int = 1) -> None:
        self._load = load
        self._version = version
        self._has_failed = False
        # Always empty: if its version cannot be served, the server ends.
        self.refused: dict[int, str] = {}

    def find(self, served: int | None) -> int | None:
        """Returns the version to load; None: there is nothing to do.

        Args:
            served: the version that is served; None: there is none yet.
        """
        is_done = served is not None or self._has_failed
        return None if is_done else self._version

    def load(self, version: int) -> ServedModel:
        """Loads a version that `find` returned."""
        return self._load()

    def fail(self, version: int, error: Exception) -> None:
        """Records that a version cannot be served."""
        self._has_failed = True


class _Failure(NamedTuple):
    """Why a version cannot be served.

    Attributes:
        files: its files at that time.
        message: the reason.
    """

    files: _Files
    message: str


class VersionFolder:
    """A folder whose numbered subfolders are versions of an export.

    The newest complete version is served. If it disappears, the newest remaining one
    is; if there is none, the model stays in memory. A version that cannot be loaded is
    reported once, and tried again when its files change. While they change, it is being
    copied, and nothing is reported.

    Args:
        name: the name of the model.
        folder: the folder.
        load: loads the export in a folder.

    Attributes:
        refused: the reported versions that are newer than the served one and cannot
            be served, with the reasons.
    """

    def __init__(
        self, name: str, folder: Path, load: Callable[[Path], ServedModel]
    ) -> None:
        self._name = name
        self._folder = folder
        self._load = load
        self._failures: dict[int, _Failure] = {}
        self._reported: dict[int, _Failure] = {}
        self._complete: dict[int, tuple[Path, _Files]] = {}
        self.refused: dict[int, str] = {}

    def find(self, served: int | None) -> int | None:
        """Returns the newest complete version, unless that is served already."""
        refused: dict[int, str] = {}
        newest = self._find(served, refused)
        self.refused = refused
        return newest

    def _find(self, served: int | None, refused: dict[int, str]) -> int | None:
        """Returns what `find` returns, and adds the refused versions to `refused`."""
        versions = find_versions(self._folder)
        for version in sorted(versions, reverse=True):
            if version == served:
                return None
            path = versions[version]
            files = _files(path)
            failure = self._failures.get(version)
            if failure is not None and failure.files == files:
                self._report(version, failure)
                refused[version] = failure.message
            elif reason := missing_part(path):
                self._failures[version] = _Failure(files, reason)
                # Later it may still be in the middle of being copied.
                if served is None:
                    self._report(version, self._failures[version])
                    refused[version] = reason
            else:
                self._complete = {version: (path, files)}
                return version
        return None

    def load(self, version: int) -> ServedModel:
        """Loads a version that `find` returned."""
        path, _ = self._complete[version]
        return self._load(path)

    def fail(self, version: int, error: Exception) -> None:
        """Records that a version cannot be served, until its files change."""
        _, files = self._complete[version]
        message = first_line(error) or type(error).__name__
        self._failures[version] = _Failure(files, message)

    def _report(self, version: int, failure: _Failure) -> None:
        if self._reported.get(version) != failure:
            self._reported[version] = failure
            say(
                f"t2t serve: version {version} of {self._name} is not served: "
                f"{failure.message}"
            )


def find_versions(folder: Path) -> dict[int, Path]:
    """Returns the numbered subfolders of a folder."""
    versions = {}
    try:
        for path in sorted(folder.iterdir()):
            if _NUMBER.fullmatch(path.name) and path.is_dir():
                versions[int(path.name)] = path
    except OSError:  # a network's folder, or one that has just disappeared
        return {}
    return versions


def newest_complete(folder: Path) -> Path | None:
    """Returns the newest version in a folder that is complete; None: there is none."""
    versions = sorted(find_versions(folder).items(), reverse=True)
    return next((path for _, path in versions if not missing_part(path)), None)


def missing_part(path: Path) -> str | None:
    """Returns why a folder is not a complete export; None: all of its files exist.

    Loading the export compares them with the checksums.
    """
    try:
        lines = (path / SUMS).read_text("utf-8", "replace").splitlines()
    except OSError:
        return f"{path} has no {SUMS}; copy or export the model again"
    for line in lines:
        name = line.partition("  ")[2]
        if not (path / name).is_file():
            return (
                f"{path} has no {name or 'checksums'}; copy or export the model again"
            )
    if find_loader(path) is None:
        return f"{path} has no export that can be served; export the model again"
    return None


def _files(path: Path) -> _Files:
    """Returns the names, sizes and times of the files in a folder."""
    files = []
    try:
        for file in sorted(path.rglob("*")):
            status = file.stat()
            files.append((str(file), status.st_size, status.st_mtime_ns))
    except OSError:  # the folder is changing
        return ()
    return tuple(files)
