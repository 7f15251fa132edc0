"""Files of texts and archives, from which tensor2tensor's problems make samples.

tensor2tensor has these functions in `generator_utils` and `text_problems`.
"""

import codecs
import contextlib
import glob
import gzip
import http.client
import itertools
import os
import shutil
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras.console import say
from t2t_keras.data.sources import ArchiveFormat, ParallelFiles, side_by_side
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import atomic
from t2t_keras.files.download import write_body
from t2t_keras.files.text_files import decoded_lines, open_binary, read_lines, readable
from t2t_keras.problem import Pair

if TYPE_CHECKING:
    import io

Sample = Mapping[str, str]

# This is [address, (name of a file, name of another file)], with names in the archive.
Dataset = Sequence[Any]

_SAME_LINES = "line n of the second must be the target of line n of the first"

# Vocabularies are trained on about this many bytes of each file.
FILE_BYTE_BUDGET = 1e6


def maybe_download(directory: str, filename: str, uri: str) -> str:
    """Downloads or copies a file unless it exists, and returns its path.

    Raises:
        UserError: the file cannot be downloaded.
    """
    path = Path(directory) / filename
    if path.exists():
        return str(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    say(f"downloading {uri} to {path}")
    try:
        with atomic(path) as incomplete:
            if os.path.exists(uri):
                shutil.copyfile(uri, incomplete)
            else:
                with urllib.request.urlopen(uri, timeout=60) as response:
                    write_body(response, incomplete, filename)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise UserError(
            f"cannot download {uri}: {reason}; download it by other means to {path}"
        ) from None
    return str(path)


def maybe_download_from_drive(directory: str, filename: str, url: str) -> str:
    """Returns the path of a file of Google Drive, which must exist already."""
    path = Path(directory) / filename
    if not path.exists():
        raise UserError(f"there is no {path}; download it from {url}")
    return str(path)


def gunzip_file(gz_path: str, new_path: str) -> None:
    """Decompresses a file unless the result exists."""
    if not os.path.exists(new_path):
        with (
            atomic(Path(new_path)) as incomplete,
            gzip.open(gz_path) as compressed,
            incomplete.open("wb") as file,
        ):
            shutil.copyfileobj(compressed, file)


def generate_lines_for_vocab(
    tmp_dir: str,
    sources: Iterable[Dataset],
    file_byte_budget: float = FILE_BYTE_BUDGET,
) -> Iterator[str]:
    """Yields the lines of each file that tensor2tensor takes, as it counts them.

    Raises:
        UserError: a file cannot be downloaded or read.
    """
    for dataset in sources:
        for size, lines in dataset_files(tmp_dir, dataset):
            interval = int(size / file_byte_budget / 2) + 1
            budget = file_byte_budget
            for line in itertools.islice(lines, interval - 1, None, interval):
                if budget <= 0:
                    break
                text = line.strip()
                budget -= len(text)
                yield text


def txt_line_iterator(txt_path: str) -> Iterator[str]:
    """Yields the lines of a file, without surrounding white space."""
    with readable(txt_path), open_binary(txt_path) as file:
        for line in decoded_lines(file, txt_path):
            yield line.strip()


def txt_line_sharded_iterator(txt_pattern: str) -> Iterator[str]:
    """Yields the lines of all files that match a pattern, such as `train.en-*`."""
    for path in sorted(glob.glob(txt_pattern)):
        yield from txt_line_iterator(path)


def text2text_txt_iterator(
    source_txt_path: str, target_txt_path: str
) -> Iterator[Sample]:
    """Yields samples from the lines of two files.

    Raises:
        UserError: the files do not have the same number of lines.
    """
    paths = (source_txt_path, target_txt_path)
    lines = (read_lines(source_txt_path), read_lines(target_txt_path))
    for inputs, targets in side_by_side(paths, lines, _SAME_LINES):
        yield {"inputs": inputs.strip(), "targets": targets.strip()}


def text2text_txt_sharded_iterator(
    source_txt_pattern: str, target_txt_pattern: str
) -> Iterator[Sample]:
    """Yields samples from the lines of all files that match two patterns.

    Raises:
        UserError: the files do not have the same number of lines.
    """
    paths = (source_txt_pattern, target_txt_pattern)
    lines = (
        txt_line_sharded_iterator(source_txt_pattern),
        txt_line_sharded_iterator(target_txt_pattern),
    )
    for inputs, targets in side_by_side(paths, lines, _SAME_LINES):
        yield {"inputs": inputs, "targets": targets}


def text2text_txt_tab_iterator(txt_path: str) -> Iterator[Sample]:
    """Yields samples from the lines of a file that have a tab."""
    for line in txt_line_iterator(txt_path):
        inputs, tab, targets = line.partition("\t")
        if tab:
            yield {"inputs": inputs.strip(), "targets": targets.strip()}


def text2self_txt_iterator(txt_path: str) -> Iterator[Sample]:
    """Yields samples with targets only."""
    for line in txt_line_iterator(txt_path):
        yield {"targets": line}


_BLOCK = 1 << 20


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
