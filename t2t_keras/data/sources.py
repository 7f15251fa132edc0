"""The sources of examples: parallel text files, and tensorflow-datasets.

`data.pair_files` has those for files of pairs, `data.archives` those for the archives
of WMT 2014, and `data.mixture` joins several.

A source is a callable that yields pairs of texts, from the beginning on every call and
always the same ones. Any function will do; the classes here also have a checksum that
takes less time than a pass over the pairs.
"""

import contextlib
import dataclasses
import gzip
import hashlib
import io
import itertools
import lzma
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from t2t_keras.data.files import sha256
from t2t_keras.data.pharaoh import parse_reference
from t2t_keras.option import UserError, first_line, require_extra
from t2t_keras.problem import AlignedPair, Alignment, Pair, Source

try:
    from backports import zstd
except ImportError:  # it is in the extra [data]
    zstd = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

COMPRESSED = (".gz", ".xz", ".zst")  # the suffixes of compressed files
_KINDS = {".gz": "gzip", ".tgz": "gzip", ".xz": "xz", ".zst": "zstd", ".tar": "tar"}
_OPEN: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
# What is raised for a compressed file that is cut off, or is none.
_DAMAGE: tuple[type[Exception], ...] = (
    *(EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, tarfile.ReadError),
)
if zstd is not None:
    _OPEN[".zst"] = zstd.open
    _DAMAGE += (zstd.ZstdError,)

_BATCH = 1024  # examples that are read from tensorflow-datasets at a time


def read_lines(path: str | Path) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file, plain or compressed, without their ends.

    Only "\n" ends a line: if U+0085 or U+2028 within a sentence did, all later lines
    would be paired with the wrong translation. A "\r" before it, as Windows writes, and
    a byte order mark at the beginning of the file are not part of the text.

    Raises:
        UserError: the file cannot be read, or a line is not UTF-8.
    """
    with readable(path), open_binary(path) as file:
        yield from decoded_lines(file, str(path))


def decoded_lines(file: BinaryIO, name: str) -> Iterator[str]:
    """Yields the lines of an open file, see `read_lines`.

    Args:
        file: the file.
        name: what it is called in messages.

    Raises:
        UserError: a line is not UTF-8.
    """
    for number, line in enumerate(file, start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise UserError(
                f"{name}, line {number}: byte {line[error.start]:#04x} is not valid "
                "UTF-8; convert the file (`iconv -t UTF-8`)"
            ) from None
        if number == 1:
            text = text.removeprefix("\ufeff")
        yield text.removesuffix("\n").removesuffix("\r")


@contextlib.contextmanager
def readable(path: str | Path) -> Iterator[None]:
    """Raises `UserError` if a file cannot be read or decompressed in the block."""
    try:
        yield
    except _DAMAGE:
        kind = _KINDS.get(Path(path).suffix.lower(), "compressed")
        raise UserError(
            f"{path} is not a complete {kind} file; copy it again"
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def open_binary(path: str | Path) -> BinaryIO:
    """Opens a file for reading bytes: plain, `.gz`, `.xz` or `.zst`.

    Raises:
        UserError: the package that reads `.zst` is not installed.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".zst":
        require_extra("data", str(path), "backports.zstd")
    if suffix in _OPEN:
        return cast(
            BinaryIO, io.BufferedReader(_OPEN[suffix](path, "rb"), buffer_size=1 << 20)
        )
    return open(path, "rb", buffering=1 << 20)


def checksum(source: Source) -> str:
    """Returns the source's own `checksum()` if it has one, or else that of its texts.

    It changes whenever the source yields other pairs.
    """
    if hasattr(source, "checksum"):
        return source.checksum()
    digest = hashlib.sha256()
    for pair in source():
        digest.update(repr(pair).encode("utf-8", "surrogatepass"))
    return f"texts {digest.hexdigest()}"


@dataclasses.dataclass(frozen=True)
class ParallelFiles:
    """Two text files, which may be compressed: their lines translate each other.

    `read_lines` defines what a line is.

    Attributes:
        source_path: the file in the source language.
        target_path: the file in the target language.
        alignment_path: a file whose line i has the links between the words of pair i,
            in Pharaoh's format; None: there are none. Possible links (`0p0`) are not
            used.
    """

    source_path: str | Path
    target_path: str | Path
    alignment_path: str | Path | None = None

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs of lines, with their links if there are any.

        Raises:
            UserError: a file cannot be read or is not UTF-8, they have different
                numbers of lines, or a line has other links than between its words.
        """
        pairs = side_by_side(
            (self.source_path, self.target_path),
            (read_lines(self.source_path), read_lines(self.target_path)),
            "line by line, one must be the translation of the other",
        )
        if self.alignment_path is None:
            yield from pairs
            return
        aligned = side_by_side(
            (self.source_path, self.alignment_path),
            (pairs, read_lines(self.alignment_path)),
            "line by line, one must have the links between the words of the other",
        )
        for number, (pair, line) in enumerate(aligned, start=1):
            links = _links(line, pair, f"{self.alignment_path}, line {number}")
            yield AlignedPair(pair[0], pair[1], links)

    def checksum(self) -> str:
        """Returns the SHA-256 of the files."""
        paths = (self.source_path, self.target_path, self.alignment_path)
        return "files " + " ".join(sha256(Path(path)) for path in paths if path)


def side_by_side(
    paths: tuple[str | Path, str | Path],
    contents: tuple[Iterator[Any], Iterator[Any]],
    rule: str,
) -> Iterator[tuple[Any, Any]]:
    """Yields the lines of two files in pairs.

    Args:
        paths: the files.
        contents: their lines; those of the first may be pairs of lines.
        rule: why the files have as many lines, for the error message.

    Raises:
        UserError: one file has more lines than the other.
    """
    pairs = itertools.zip_longest(*contents)
    for number, pair in enumerate(pairs):
        if None in pair:
            shorter, longer = paths if pair[0] is None else paths[::-1]
            more = number + 1 + sum(1 for _ in pairs)
            raise UserError(
                f"{shorter} has only {number:,} lines and {longer} has {more:,}: {rule}"
            )
        yield pair


def _links(line: str, pair: tuple[str, str], place: str) -> Alignment:
    """Reads the links between the words of a pair.

    Args:
        line: the links in Pharaoh's format.
        pair: the texts.
        place: the file and the number of the line, for the error message.

    Raises:
        UserError: it has anything else, or a link to a word that is not there.
    """
    links = tuple(sorted(parse_reference(line, place).sure))
    source, target = (len(text.split()) for text in pair)
    for i, j in links:
        if i >= source or j >= target:
            raise UserError(
                f"{place}: '{i}-{j}' links a word that is not there: the source has "
                f"{source} words and the target {target}, and the first is word 0"
            )
    return links


@dataclasses.dataclass(frozen=True)
class TfdsPairs:
    """One split of a translation dataset of tensorflow-datasets.

    It is downloaded and prepared on first use, under `data_dir`.

    Attributes:
        name: the dataset with its configuration, such as "wmt14_translate/de-en".
        split: the split in the notation of tensorflow-datasets, such as "train[:1%]".
        source_feature: the feature with the source text, such as "en".
        target_feature: the feature with the target text, such as "de".
        data_dir: the directory in which tensorflow-datasets keeps its data; None for
            its default (`$TFDS_DATA_DIR` or `~/tensorflow_datasets`).
    """

    name: str
    split: str
    source_feature: str
    target_feature: str
    data_dir: str | Path | None = None

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs in the order in which they are stored.

        Raises:
            UserError: there is no such dataset, split or feature, it cannot be
                downloaded, or tensorflow-datasets is not installed.
        """
        builder = self._builder()
        import tensorflow_datasets as tfds

        try:
            with contextlib.redirect_stdout(sys.stderr):  # the library prints progress
                builder.download_and_prepare()
        except (OSError, tfds.download.DownloadError) as error:
            raise UserError(
                f"cannot download {self.name}: {first_line(error)}; try again with a "
                "network, or give files (--train_source, --train_target ...)"
            ) from error
        for feature in (self.source_feature, self.target_feature):
            if feature not in builder.info.features:
                raise UserError(
                    f"{self.name} has no feature '{feature}', only "
                    f"{', '.join(builder.info.features)}"
                )
        try:
            dataset = builder.as_dataset(
                split=self.split,
                shuffle_files=False,
                read_config=tfds.ReadConfig(interleave_cycle_length=1),
            )
        except ValueError:
            raise UserError(
                f"{self.name} has no split '{self.split}', only "
                f"{', '.join(builder.info.splits)}"
            ) from None
        for batch in dataset.batch(_BATCH).as_numpy_iterator():
            sources, targets = batch[self.source_feature], batch[self.target_feature]
            for source, target in zip(sources, targets, strict=True):
                yield source.decode("utf-8"), target.decode("utf-8")

    def checksum(self) -> str:
        """Returns name and version, which identify a dataset of tensorflow-datasets."""
        features = f"{self.source_feature} {self.target_feature}"
        return f"tfds {self._builder().info.full_name} {self.split} {features}"

    def _builder(self) -> "tfds.core.DatasetBuilder":
        """Returns the dataset's builder."""
        import tensorflow_datasets as tfds

        try:
            return tfds.builder(self.name, data_dir=self.data_dir)
        except (tfds.core.DatasetNotFoundError, ValueError) as error:
            raise UserError(
                f"tensorflow-datasets: {self.name}: {first_line(error)}"
            ) from None
