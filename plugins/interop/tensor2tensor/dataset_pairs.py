"""The pairs of texts in the archives that translation problems name."""

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.data.sources import ArchiveFormat, ParallelFiles
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair

from .text_lines import txt_line_iterator

# This is [address, (name of a file, name of another file)], with names in the archive.
Dataset = Sequence[Any]


def dataset_pairs(tmp_dir: str, dataset: Dataset) -> Iterator[Pair]:
    """Yields the pairs of one archive of `source_data_files`.

    Raises:
        UserError: it cannot be downloaded or read, or is not described like this.
    """
    try:
        address, names = dataset
        names = tuple(names)
    except (TypeError, ValueError):
        names = ()
    if names[:1] == ("tsv",) and len(names) == 4:
        yield from _column_pairs(tmp_dir, address, *names[1:])
    elif len(names) != 2 or names[0] == "tmx":
        raise UserError(
            f"source_data_files: {dataset!r:.200} is not [address, (file, file)]; TMX "
            "files are read by `t2t datagen --mixture` (docs/data.md)"
        )
    else:
        yield from _archived_pairs(tmp_dir, address, *names)


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
    path = Path(tmp_dir) / os.path.basename(address)
    if os.path.exists(address):
        path = Path(address)
    reader = _archive_format(path)
    pairs = reader.pairs(path.parent, path.name, source, target)
    if not path.exists():
        if "://" not in address:
            raise UserError(
                f"source_data_files: there is no {source_path}, and no archive {path}"
            )
        reader.download(reader.pairs(path.parent, address, source, target))
    yield from pairs()


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
