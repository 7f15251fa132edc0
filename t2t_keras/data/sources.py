"""The sources of examples: parallel text files, and tensorflow-datasets.

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
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from t2t_keras.data.files import sha256
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair, Source

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_BATCH = 1024  # examples that are read from tensorflow-datasets at a time


def read_lines(path: str | Path) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file, plain or `.gz`, without their ends.

    Only "\n" ends a line: if U+0085 or U+2028 within a sentence did, all later lines
    would be paired with the wrong translation. A "\r" before it, as Windows writes, and
    a byte order mark at the beginning of the file are not part of the text.

    Raises:
        UserError: the file cannot be read, or a line is not UTF-8.
    """
    try:
        with open_binary(path) as file:
            for number, line in enumerate(file, start=1):
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as error:
                    byte = line[error.start]
                    raise UserError(
                        f"{path}, line {number}: byte {byte:#04x} is not valid UTF-8; "
                        "convert the file (`iconv -t UTF-8`)"
                    ) from None
                if number == 1:
                    text = text.removeprefix("\ufeff")
                yield text.removesuffix("\n").removesuffix("\r")
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise UserError(f"{path} is not a complete gzip file; copy it again") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None


def open_binary(path: str | Path) -> BinaryIO:
    """Opens a file, plain or gzipped, for reading bytes."""
    if Path(path).suffix.lower() == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"), buffer_size=1 << 20)
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
    """Two text files, plain or `.gz`: line i of one translates line i of the other.

    `read_lines` defines what a line is.

    Attributes:
        source_path: the file in the source language.
        target_path: the file in the target language.
    """

    source_path: str | Path
    target_path: str | Path

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs of lines.

        Raises:
            UserError: a file cannot be read or is not UTF-8, or the two have
                different numbers of lines.
        """
        sources, targets = read_lines(self.source_path), read_lines(self.target_path)
        pairs = itertools.zip_longest(sources, targets)
        for number, (source, target) in enumerate(pairs):
            if source is None or target is None:
                shorter, longer = self.source_path, self.target_path
                if target is None:
                    shorter, longer = longer, shorter
                more = number + 1 + sum(1 for _ in pairs)
                raise UserError(
                    f"{shorter} has only {number:,} lines and {longer} has {more:,}: "
                    "line by line, one must be the translation of the other"
                )
            yield source, target

    def checksum(self) -> str:
        """Returns the SHA-256 of the two files."""
        paths = Path(self.source_path), Path(self.target_path)
        return "files " + " ".join(map(sha256, paths))


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
            UserError: there is no such dataset, split or feature, or it cannot be
                downloaded.
        """
        import tensorflow_datasets as tfds

        builder = self._builder()
        try:
            with contextlib.redirect_stdout(sys.stderr):  # the library prints progress
                builder.download_and_prepare()
        except (OSError, tfds.download.DownloadError) as error:
            reason = str(error).partition("\n")[0]
            raise UserError(
                f"cannot download {self.name}: {reason}; try again with a network, or "
                "give files (--train_source, --train_target ...)"
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
            reason = str(error).partition("\n")[0]
            raise UserError(f"tensorflow-datasets: {self.name}: {reason}") from None
