"""Counts the pairs of corpora in tasks, and finds where reading them can begin.

Two plain text files are counted by byte ranges, which several processes can read. A
range has the lines that begin in it, so each line belongs to one range; once all are
counted, reading can begin near any line. Any other source is one task.
"""

import bisect
import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from t2t_keras.data.mixture import Corpus
from t2t_keras.data.sources import ParallelFiles
from t2t_keras.data.write_shards import TaskMap
from t2t_keras.errors import UserError
from t2t_keras.files.text_files import (
    LONGEST_LINE,
    decoded_lines,
    is_compressed,
    raw_lines,
    readable,
    require_text_file,
)
from t2t_keras.problem import Pair, Source

# The index of a line, from 0, and the offset of its first byte.
Position = tuple[int, int]

_RANGE = 1 << 25  # bytes of a range


@dataclasses.dataclass(frozen=True)
class CorpusSurvey:
    """What a pass over a corpus finds.

    Attributes:
        pairs: the number of pairs.
        positions: for each file of the corpus, where its lines can be read from; None:
            the corpus is read from its beginning.
        dropped: the number of pairs that its source left out, by reason.
        characters: the different characters in the texts.
    """

    pairs: int
    positions: list[list[Position]] | None = None
    dropped: Mapping[str, int] = dataclasses.field(default_factory=dict)
    characters: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class ByteRange:
    """The lines of a file that begin in some of its bytes.

    Attributes:
        path: the file.
        start: the first byte.
        stop: the end of the range.
    """

    path: Path
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class LineCount:
    """What a byte range has.

    Attributes:
        lines: the number of lines.
        offset: that of the first line.
        characters: the different characters, without white space at the ends of lines.
        is_faulty: whether there is a line that is not a text.
    """

    lines: int = 0
    offset: int = 0
    characters: frozenset[str] = frozenset()
    is_faulty: bool = False


def survey(corpora: Sequence[Corpus], map_tasks: TaskMap) -> list[CorpusSurvey]:
    """Passes over corpora.

    Args:
        corpora: the corpora.
        map_tasks: runs the tasks.

    Raises:
        UserError: a source has a mistake.
    """
    divided = []  # for each corpus, the byte ranges of its files
    tasks: list[ByteRange | Corpus] = []
    for corpus in corpora:
        by_file = _ranges_of(corpus.source)
        divided.append(by_file)
        if by_file is None:
            tasks.append(corpus)
            continue
        for ranges in by_file:
            tasks += ranges
    results: Iterator[Any] = iter(map_tasks(_pass_over, tasks))
    surveys = []
    for corpus, by_file in zip(corpora, divided, strict=True):
        if by_file is None:
            surveys.append(next(results))
            continue
        counts = []
        for ranges in by_file:
            counts.append(list(itertools.islice(results, len(ranges))))
        surveys.append(_joined(corpus, counts))
    return surveys


def _ranges_of(source: Source) -> list[list[ByteRange]] | None:
    """Returns the ranges of the sources and those of the targets.

    Returns:
        None if the pairs can only be read from the first one on.

    Raises:
        UserError: a file cannot be read.
    """
    if not isinstance(source, ParallelFiles) or source.alignment_path is not None:
        return None
    by_file = []
    for path in (source.source_path, source.target_path):
        ranges = byte_ranges(path)
        if ranges is None:
            return None
        by_file.append(ranges)
    return by_file


def _pass_over(part: ByteRange | Corpus) -> LineCount | CorpusSurvey:
    return count_lines(part) if isinstance(part, ByteRange) else _survey_whole(part)


def _survey_whole(corpus: Corpus) -> CorpusSurvey:
    pairs = 0
    characters = set[str]()
    for source, target in corpus():
        pairs += 1
        characters.update(source.strip(), target.strip())
    dropped = dict(getattr(corpus.source, "dropped", {}))
    return CorpusSurvey(pairs, None, dropped, frozenset(characters))


def _joined(corpus: Corpus, counts: list[list[LineCount]]) -> CorpusSurvey:
    """Joins what the ranges of each file of a corpus have."""
    totals = set()
    for ranges in counts:
        totals.add(sum(count.lines for count in ranges))
    all_counts = list(itertools.chain(*counts))
    if len(totals) > 1 or any(count.is_faulty for count in all_counts):
        return _survey_whole(corpus)  # its error names the line
    characters = set[str]()
    if corpus.tag:
        characters.update(f"{corpus.tag} ")
    for count in all_counts:
        characters |= count.characters
    positions = [line_positions(ranges) for ranges in counts]
    return CorpusSurvey(totals.pop(), positions, {}, frozenset(characters))


def byte_ranges(path: str | Path) -> list[ByteRange] | None:
    """Divides a text file into ranges.

    Returns:
        None if the file can only be read from its beginning: it is compressed or a
        pipe.

    Raises:
        UserError: the file cannot be read, or is of another format.
    """
    if not Path(path).is_file() or is_compressed(path):
        return None
    require_text_file(path)
    size = Path(path).stat().st_size
    ranges = []
    for start in range(0, size, _RANGE):
        ranges.append(ByteRange(Path(path), start, min(start + _RANGE, size)))
    return ranges


def count_lines(part: ByteRange) -> LineCount:
    """Counts the lines of a range, and decodes each of them.

    Raises:
        UserError: the file cannot be read.
    """
    with readable(part.path), part.path.open("rb", 1 << 20) as file:
        if part.start:  # the line that begins before it, or only its end
            file.seek(part.start - 1)
            file.readline(LONGEST_LINE + 1)
        offset = file.tell()
        position = offset
        count = 0
        characters = set[str]()
        try:
            for line in raw_lines(file, str(part.path)):
                if position >= part.stop:
                    break
                text = line.decode("utf-8")
                characters.update(text.removeprefix("\ufeff" * (not position)).strip())
                position += len(line)
                count += 1
        except (UserError, UnicodeDecodeError):
            return LineCount(is_faulty=True)
    return LineCount(count, offset, frozenset(characters))


def line_positions(counts: Iterable[LineCount]) -> list[Position]:
    """Returns where the lines of a file can be read from.

    Args:
        counts: what its ranges have, in order.
    """
    lines = 0
    positions = []
    for count in counts:
        if count.lines:
            positions.append((lines, count.offset))
        lines += count.lines
    return positions


def read_pairs_from(
    source: Source, index: int, positions: Sequence[Sequence[Position]] | None
) -> Iterator[Pair]:
    """Yields the pairs of a corpus from an index on.

    Args:
        source: the source of the corpus.
        index: the index of the first pair.
        positions: `CorpusSurvey.positions`.
    """
    if positions is None:
        return itertools.islice(iter(source()), index, None)
    assert isinstance(source, ParallelFiles)
    return zip(
        read_lines_from(source.source_path, index, positions[0]),
        read_lines_from(source.target_path, index, positions[1]),
        strict=False,  # the lines were counted
    )


def read_lines_from(
    path: str | Path, index: int, positions: Sequence[Position]
) -> Iterator[str]:
    """Yields the lines of a file from an index on, as `read_lines` does.

    Args:
        path: the file.
        index: the index of the first line.
        positions: see `line_positions`.
    """
    nearest = bisect.bisect_right(positions, index, key=lambda position: position[0])
    line, offset = positions[nearest - 1] if nearest else (0, 0)
    with readable(path), open(path, "rb", 1 << 20) as file:
        file.seek(offset)
        lines = decoded_lines(file, str(path), start=line + 1)
        yield from itertools.islice(lines, index - line, None)
