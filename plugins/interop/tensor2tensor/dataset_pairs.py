"""The pairs and lines of the archives that translation problems name."""

import codecs
import contextlib
import glob
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras.data.sources import ArchiveFormat, ParallelFiles
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.files.text_files import decoded_lines, open_binary, readable
from t2t_keras.problem import Pair

from .text_lines import txt_line_iterator

if TYPE_CHECKING:
    import io

_BLOCK = 1 << 20

# This is [address, (name of a file, name of another file)], with names in the archive.
Dataset = Sequence[Any]


def dataset_pairs(tmp_dir: str, dataset: Dataset) -> Iterator[Pair]:
    """Yields the pairs of one archive of `source_data_files`.

    Raises:
        UserError: it cannot be downloaded or read, or is not described like this.
    """
    address, names = _parts(dataset)
    if _has_columns(names):
        yield from _column_pairs(tmp_dir, address, *names[1:])
    elif len(names) != 2 or names[0] == "tmx":
        raise UserError(
            f"source_data_files: {dataset!r:.200} is not [address, (file, file)]; TMX "
            "files are read by `t2t datagen --mixture` (docs/data.md)"
        )
    else:
        yield from _archived_pairs(tmp_dir, address, *names)


def dataset_files(
    tmp_dir: str, dataset: Dataset
) -> Iterator[tuple[int, Iterator[str]]]:
    """Yields each file, or column, of a dataset: its size in bytes, and its lines.

    Unlike a dataset of pairs, it may have one file, for a vocabulary of one language.

    Raises:
        UserError: the dataset cannot be downloaded or read.
    """
    address, names = _parts(dataset)
    if _has_columns(names):
        for column in (0, 1):
            pairs = dataset_pairs(tmp_dir, dataset)
            size = sum(len(pair[column].encode()) + 1 for pair in pairs)
            yield size, (pair[column] for pair in dataset_pairs(tmp_dir, dataset))
        return
    for name in names:
        with _opened(tmp_dir, address, name) as file:
            size = sum(map(len, iter(lambda: file.read(_BLOCK), b"")))
        with _opened(tmp_dir, address, name) as file:
            lines = decoded_lines(file, f"{address}, {name}")
            if file.peek(_BLOCK).startswith(codecs.BOM_UTF8):
                # tensor2tensor takes the byte order mark for text.
                lines = itertools.chain([f"\ufeff{next(lines)}"], lines)
            yield size, lines


def _parts(dataset: Dataset) -> tuple[str, tuple[Any, ...]]:
    """Returns the address and the names of a dataset."""
    try:
        address, names = dataset
        return address, tuple(names)
    except (TypeError, ValueError):
        raise UserError(
            f"source_data_files: {dataset!r:.200} is not [address, (file, file)]"
        ) from None


def _has_columns(names: tuple[Any, ...]) -> bool:
    return names[:1] == ("tsv",) and len(names) == 4


def _archived_pairs(
    tmp_dir: str, address: str, source: str, target: str
) -> Iterator[Pair]:
    """Yields the pairs of two files in a directory, or of an archive.

    Args:
        tmp_dir: the directory with the files, or with the archive; a missing archive is
            downloaded.
        address: the address or path of the archive.
        source: the name of the file with the inputs.
        target: the name of the file with the targets.

    Raises:
        UserError: the archive cannot be downloaded or read.
    """
    source_path = Path(tmp_dir) / source
    target_path = Path(tmp_dir) / target
    is_unpacked = source_path.exists() and target_path.exists()
    if is_unpacked and source_path.suffix != ".sgm":
        yield from ParallelFiles(source_path, target_path)()
        return
    path, archive_format = _archive(tmp_dir, address, source, target)
    yield from archive_format.pairs(path.parent, path.name, source, target)()


@contextlib.contextmanager
def _opened(
    tmp_dir: str, address: str, name: str
) -> "Iterator[io.BufferedReader[Any]]":
    """Opens a file in a directory, or in an archive; see `_archived_pairs`."""
    path = Path(tmp_dir) / name
    if path.exists():
        with readable(path), open_binary(path) as file:
            yield file
        return
    archive, archive_format = _archive(tmp_dir, address, name, name)
    with archive_format.open_member(archive, name) as file:
        yield file


def _archive(
    tmp_dir: str, address: str, source: str, target: str
) -> tuple[Path, ArchiveFormat]:
    """Returns an archive, which is downloaded if it is missing, and its format."""
    path = Path(tmp_dir) / os.path.basename(address)
    if os.path.exists(address):
        path = Path(address)
    archive_format = _archive_format(path)
    if not path.exists():
        if "://" not in address:
            raise UserError(
                f"source_data_files: there is no {Path(tmp_dir) / source}, and no "
                f"archive {path}"
            )
        pairs = archive_format.pairs(path.parent, address, source, target)
        archive_format.download(pairs)
    return path, archive_format


def _archive_format(path: Path) -> ArchiveFormat:
    """Returns the format of an archive by its name.

    Raises:
        UserError: no format has the suffix.
    """
    formats: dict[str, ArchiveFormat] = load_plugins("archives")
    suffixes: list[str] = []
    for archive_format in formats.values():
        if path.name.lower().endswith(archive_format.suffixes):
            return archive_format
        suffixes += archive_format.suffixes
    raise UserError(
        f"source_data_files: {path.name} is not an archive ({', '.join(suffixes)}); "
        f"unpack it into {path.parent}"
    )


def _column_pairs(
    tmp_dir: str, address: str, source: int, target: int, pattern: str
) -> Iterator[Pair]:
    """Yields two columns of the unpacked files that match a pattern."""
    paths = sorted(glob.glob(os.path.join(tmp_dir, pattern)))
    if not paths:
        raise UserError(
            f"source_data_files: there is no {os.path.join(tmp_dir, pattern)}; unpack "
            f"{address} into {tmp_dir}"
        )
    for path in paths:
        for line in txt_line_iterator(path):
            columns = line.split("\t")
            if len(columns) > max(source, target):
                yield columns[source], columns[target]
