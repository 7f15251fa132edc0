"""Sources that are one file of pairs: `.tsv`, and the formats of plugins."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_keras import registry
from t2t_keras.data.files import sha256
from t2t_keras.data.sources import COMPRESSED, read_lines
from t2t_keras.option import UserError
from t2t_keras.problem import Pair


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of files of pairs, registered as an entry point of `t2t_keras.formats`.

    The name of the entry point is the suffix, such as `tmx`.

    Attributes:
        read: yields the pairs of a `PairFile` in the order of the file; counts in its
            `dropped` what is left out; raises `UserError`.
        needs_languages: whether the languages of the two sides must be given.
    """

    read: Callable[["PairFile"], Iterator[Pair]]
    needs_languages: bool = False


@dataclasses.dataclass(frozen=True)
class PairFile:
    """A file of pairs, plain or compressed (`.gz`, `.xz`, `.zst`), read as a stream.

    `.tsv` has two columns, source and target, without quoting. Plugins add other
    formats, see `Format`.

    Attributes:
        path: the file.
        languages: the languages of source and target, for formats that need them.
        dropped: the number of units left out in the last pass, by reason.

    Raises:
        UserError: there is no such format, or it needs languages.
    """

    path: str | Path
    languages: tuple[str, str] | None = None
    dropped: Counter[str] = dataclasses.field(
        default_factory=Counter, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        if self._format().needs_languages and not self.languages:
            raise UserError(
                f"{self.path}: which languages? Give --languages, en-de for example"
            )

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs in the order of the file.

        Raises:
            UserError: the file cannot be read, or is not as described.
        """
        self.dropped.clear()
        yield from self._format().read(self)

    def checksum(self) -> str:
        """Returns the SHA-256 of the file, and the languages."""
        return " ".join(["pairs", sha256(Path(self.path)), *(self.languages or ())])

    def _format(self) -> Format:
        """Returns the format by the suffix before the suffix of a compression."""
        path = Path(self.path)
        if path.suffix.lower() in COMPRESSED:
            path = path.with_suffix("")
        suffix = path.suffix.lower().removeprefix(".")
        formats = {"tsv": Format(_read_tsv)} | registry.plugins("formats")
        if suffix not in formats:
            raise UserError(
                f"{self.path} is not a file of pairs: the suffixes are "
                f"{', '.join(f'.{name}' for name in formats)}"
            )
        return formats[suffix]


def _read_tsv(file: PairFile) -> Iterator[Pair]:
    """Yields the two columns of each line."""
    for number, line in enumerate(read_lines(file.path), start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise UserError(
                f"{file.path}, line {number}: there must be two columns, source "
                f"and target, but there are {len(columns)} (`cut -f` selects some)"
            )
        yield columns[0], columns[1]
