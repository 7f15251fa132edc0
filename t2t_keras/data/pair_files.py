"""Files of pairs, which have both sides of every pair: `.tsv`, and plugins' formats."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_keras.data.atomic_files import refuse_pipes
from t2t_keras.data.checksums import sha256
from t2t_keras.data.lines import pair_format
from t2t_keras.data.text_files import HEAD, decoded_lines, open_binary, readable
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of files of pairs, registered as an entry point of `t2t_keras.formats`.

    The name of the entry point is the suffix of the files' names, such as `tmx`.

    Attributes:
        read: yields the pairs of a `PairFile` in the order of the file; counts in its
            `dropped` what is left out; raises `UserError`.
        title: what files of this format are called in messages, such as "a translation
            memory (TMX)".
        needs_languages: whether the languages of the two sides must be given.
        magic: the bytes with which all files of this format begin, and no text does;
            empty: only the name tells the format.
        languages: returns the languages of source and target if a file tells both,
            as one with only two languages does.
    """

    read: Callable[["PairFile"], Iterator[Pair]]
    title: str = "a file of pairs"
    needs_languages: bool = True
    magic: bytes = b""
    languages: Callable[[str | Path], tuple[str, str] | None] = lambda path: None


@dataclasses.dataclass(frozen=True)
class PairFile:
    """A file of pairs, plain or compressed, which is read as a stream.

    `.tsv` has two columns, source and target, without quoting. Plugins add other
    formats, see `Format`. The suffix tells the format, unless the first bytes do.

    Attributes:
        path: the file.
        languages: the languages of source and target, for formats that need them.
        dropped: the number of units left out in the last pass, by reason.

    Raises:
        UserError: there is no such format, or it needs languages, or the file is a
            pipe, since each pass reads it.
    """

    path: str | Path
    languages: tuple[str, str] | None = None
    dropped: Counter[str] = dataclasses.field(
        default_factory=Counter, init=False, compare=False, repr=False
    )

    def __post_init__(self) -> None:
        refuse_pipes(self.path)
        if self._format.needs_languages and not self.languages:
            raise UserError(
                f"{self.path}: which languages are its source and target? Give "
                'languages, such as --languages en-de, or `languages = "en-de"` in '
                "the table of a mixture"
            )

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs in the order of the file.

        Raises:
            UserError: the file cannot be read, or is not as described.
        """
        self.dropped.clear()
        yield from self._format.read(self)

    def checksum(self) -> str:
        """Returns the SHA-256 of the file, and the languages."""
        return " ".join(["pairs", sha256(Path(self.path)), *(self.languages or ())])

    @functools.cached_property
    def _format(self) -> Format:
        """The format that the first bytes or the suffix of the name tell."""
        format = format_of(self.path)
        if format is None:
            raise UserError(
                f"{self.path} is not a file of pairs: the suffixes are "
                f"{', '.join(f'.{name}' for name in load_plugins('formats'))}"
            )
        return format


def format_of(path: str | Path) -> Format | None:
    """Returns the format of a file of pairs; None: it is text.

    Args:
        path: the file. Of what cannot be read twice, such as a pipe, only the name
            counts.
    """
    head = b""
    if Path(path).is_file():
        with readable(path), open_binary(path) as file:
            head = file.peek(HEAD)
    return pair_format(path, head)


def _read_tsv(file: PairFile) -> Iterator[Pair]:
    """Yields the two columns of each line."""
    with readable(file.path), open_binary(file.path) as content:
        lines = decoded_lines(content, str(file.path))
        for line_number, line in enumerate(lines, start=1):
            columns = line.split("\t")
            if len(columns) != 2:
                raise UserError(
                    f"{file.path}, line {line_number}: there must be two columns, "
                    f"source and target, but there are {len(columns)} (`cut -f` "
                    "selects some)"
                )
            yield columns[0], columns[1]


TSV = Format(_read_tsv, "a table (TSV) with a tab in each line", needs_languages=False)
