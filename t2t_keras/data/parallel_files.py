"""Sources that read two text files line by line."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from t2t_keras.data.atomic_files import refuse_pipes
from t2t_keras.data.checksums import sha256
from t2t_keras.data.line_positions import (
    ByteRange,
    Position,
    byte_ranges,
    read_lines_from,
)
from t2t_keras.data.lines import read_lines
from t2t_keras.data.pharaoh import parse_reference
from t2t_keras.errors import UserError
from t2t_keras.problem import AlignedPair, Alignment, Pair
from t2t_keras.quantity import quantity

S = TypeVar("S")
T = TypeVar("T")


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

    Raises:
        UserError: a file is a pipe, since each pass reads it.
    """

    source_path: str | Path
    target_path: str | Path
    alignment_path: str | Path | None = None

    def __post_init__(self) -> None:
        paths = (self.source_path, self.target_path, self.alignment_path)
        refuse_pipes(*(path for path in paths if path))

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
        for line_number, (pair, line) in enumerate(aligned, start=1):
            links = _links(line, pair, f"{self.alignment_path}, line {line_number}")
            yield AlignedPair(pair[0], pair[1], links)

    def byte_ranges(self) -> list[list[ByteRange]] | None:
        """Divides the files for several processes; see `source_survey`.

        Returns:
            The ranges of the sources and those of the targets; None if the pairs can
            only be read from the first one on.

        Raises:
            UserError: a file cannot be read.
        """
        if self.alignment_path is not None:
            return None
        by_file = []
        for path in (self.source_path, self.target_path):
            ranges = byte_ranges(path)
            if ranges is None:
                return None
            by_file.append(ranges)
        return by_file

    def read_from(
        self, index: int, positions: Sequence[Sequence[Position]]
    ) -> Iterator[Pair]:
        """Yields the pairs from one on.

        Args:
            index: the index of the first pair.
            positions: the `line_positions` of the sources and of the targets.
        """
        source, target = positions
        return zip(
            read_lines_from(self.source_path, index, source),
            read_lines_from(self.target_path, index, target),
            strict=False,  # the lines were counted
        )

    def checksum(self) -> str:
        """Returns the SHA-256 of the files."""
        paths = (self.source_path, self.target_path, self.alignment_path)
        return "files " + " ".join(sha256(Path(path)) for path in paths if path)


def side_by_side(
    paths: tuple[str | Path, str | Path],
    contents: tuple[Iterator[S], Iterator[T]],
    rule: str,
) -> Iterator[tuple[S, T]]:
    """Yields the lines of two files in pairs.

    Args:
        paths: the files.
        contents: their lines, in the first file perhaps pairs of lines.
        rule: why the files have as many lines, for the error message.

    Raises:
        UserError: one file has more lines than the other.
    """
    pairs = itertools.zip_longest(*contents)
    for index, pair in enumerate(pairs):
        if None in pair:
            shorter, longer = paths if pair[0] is None else paths[::-1]
            total = index + 1 + sum(1 for _ in pairs)
            raise UserError(
                f"{shorter} has only {quantity(index, 'lines')} and {longer} has "
                f"{total:,}: {rule}"
            )
        yield pair


def _links(line: str, pair: tuple[str, str], location: str) -> Alignment:
    """Reads the links between the words of a pair.

    Args:
        line: the links in Pharaoh's format.
        pair: the texts.
        location: the file and the number of the line, for the error message.

    Raises:
        UserError: it has anything else, or a link to a word that is not there.
    """
    links = tuple(sorted(parse_reference(line, location).sure))
    source, target = (len(text.split()) for text in pair)
    for i, j in links:
        if i >= source or j >= target:
            raise UserError(
                f"{location}: '{i}-{j}' links a word that is not there: the source has "
                f"{source} words and the target {target}, and the first is word 0"
            )
    return links
