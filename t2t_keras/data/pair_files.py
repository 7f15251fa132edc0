"""Files of pairs, which have both sides of every pair: `.tsv`, and plugins' formats."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_keras.data.checksums import sha256
from t2t_keras.data.regular_files import refuse_pipes
from t2t_keras.data.text_files import (
    COMPRESSED,
    HEAD,
    decoded_lines,
    open_binary,
    readable,
)
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.problem import Pair

_LINES = 100  # by which a format is recognised
# So many lines with the same number of columns are a table, whatever the name is.
MIN_TABLE_LINES = 10


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of files of pairs, registered as an entry point of `t2t_keras.formats`.

    The name of the entry point is the suffix, such as `tmx`.

    Attributes:
        read: yields the pairs of a `PairFile` in the order of the file; counts in its
            `dropped` what is left out; raises `UserError`.
        needs_languages: whether the languages of the two sides must be given.
        title: what files of this format are called in messages, such as "a translation
            memory (TMX)".
        matches: returns whether a file is of this format, given its decompressed
            beginning and the suffix of its name. It must be sure: what looks like
            another format may be a text.
        languages: returns the languages of source and target if a file tells both,
            as one with only two languages does.
    """

    read: Callable[["PairFile"], Iterator[Pair]]
    needs_languages: bool = False
    title: str = "a file of pairs"
    matches: Callable[[bytes, str], bool] = lambda head, suffix: False
    languages: Callable[[str | Path], tuple[str, str] | None] = lambda path: None


@dataclasses.dataclass(frozen=True)
class PairFile:
    """A file of pairs, plain or compressed, which is read as a stream.

    `.tsv` has two columns, source and target, without quoting. Plugins add other
    formats, see `Format`. The content decides the format, or else the suffix.

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
        """The format that the content tells, or the suffix of the name."""
        format = format_of(self.path)
        suffix = uncompressed_suffix(self.path).lower()
        if format is None and suffix in formats():
            format = formats()[suffix]
        if format is None:
            raise UserError(
                f"{self.path} is not a file of pairs: the suffixes are "
                f"{', '.join(f'.{name}' for name in formats())}"
            )
        return format


def formats() -> dict[str, Format]:
    """Returns the formats of files of pairs by their suffixes."""
    return {"tsv": _TSV} | load_plugins("formats")


def matching_format(head: bytes, suffix: str) -> Format | None:
    """Returns the format of a file of pairs; None: it may be a text.

    Args:
        head: the beginning of the decompressed content.
        suffix: the suffix of the name without a dot, in lower case.
    """
    by_suffix = formats()
    # The format that the name tells comes first.
    for name in sorted(by_suffix, key=lambda name: name != suffix):
        if by_suffix[name].matches(head, suffix):
            return by_suffix[name]
    return None


def format_of(path: str | Path) -> Format | None:
    """Returns the format of a file that is said to have both sides of pairs.

    Two columns in each line are enough here, whatever the name is.

    Args:
        path: the file. What cannot be read twice, such as a pipe, has no known format.
    """
    if not Path(path).is_file():
        return None
    with readable(path), open_binary(path) as file:
        head = file.peek(HEAD)
    if format := matching_format(head, uncompressed_suffix(path).lower()):
        return format
    return _TSV if has_columns(head, 2) else None


def uncompressed_suffix(path: str | Path) -> str:
    """Returns the suffix of a name before that of a compression, without its dot."""
    path = Path(path)
    if path.suffix.lower() in COMPRESSED:
        path = path.with_suffix("")
    return path.suffix.removeprefix(".")


def head_lines(head: bytes) -> list[str]:
    """Returns the first whole lines of a text, at most 100, without blank ones.

    Args:
        head: the beginning of the file, or all of it.
    """
    lines = head.decode("utf-8-sig", "replace").split("\n")
    if len(head) >= HEAD:
        lines.pop()  # it may be cut off
    return [line.removesuffix("\r") for line in lines if line.strip()][:_LINES]


def has_columns(head: bytes, count: int | None = None) -> bool:
    """Returns whether every line at the beginning of a file has tabs.

    Args:
        head: the beginning.
        count: the number of columns that every line must have; None: two or more.
    """
    widths = _widths(head)
    return widths == {count} if count else min(widths, default=1) > 1


def _widths(head: bytes) -> set[int]:
    """Returns the numbers of columns of the lines at the beginning of a file."""
    return {line.count("\t") + 1 for line in head_lines(head)}


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


def _matches_tsv(head: bytes, suffix: str) -> bool:
    if suffix in ("tsv", "tab"):
        return has_columns(head)
    has_enough_lines = len(head_lines(head)) >= MIN_TABLE_LINES
    return has_enough_lines and has_columns(head) and len(_widths(head)) == 1


_TSV = Format(
    _read_tsv, title="a table (TSV) with a tab in each line", matches=_matches_tsv
)
