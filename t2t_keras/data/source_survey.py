"""Counts the pairs of corpora in tasks, and finds where reading them can begin.

A source with the methods `byte_ranges` and `read_from`, such as `ParallelFiles`, is
counted by ranges of its files. Any other source is one task.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from t2t_keras.data.line_positions import (
    ByteRange,
    LineCount,
    Position,
    count_lines,
    line_positions,
)
from t2t_keras.data.mixture import Corpus
from t2t_keras.data.tasks import TaskRunner


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


def survey(corpora: Sequence[Corpus], runner: TaskRunner) -> list[CorpusSurvey]:
    """Passes over corpora.

    Args:
        corpora: the corpora.
        runner: runs the tasks.

    Raises:
        UserError: a source has a mistake.
    """
    divided = []  # for each corpus, the byte ranges of its files
    tasks: list[ByteRange | Corpus] = []
    for corpus in corpora:
        by_file = None
        if hasattr(corpus.source, "byte_ranges"):
            by_file = corpus.source.byte_ranges()
        divided.append(by_file)
        if by_file is None:
            tasks.append(corpus)
            continue
        for ranges in by_file:
            tasks += ranges
    results: Iterator[Any] = iter(runner(_pass_over, tasks))
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
