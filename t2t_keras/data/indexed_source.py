"""A source of which any part can be read."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

from t2t_keras.data.line_positions import Position
from t2t_keras.data.mixture import Corpus, corpora_of
from t2t_keras.problem import Pair, Source

# For each corpus whose files can be read from the middle, the positions in each file.
CorpusPositions = Mapping[str, list[list[Position]]]


@dataclasses.dataclass(frozen=True)
class IndexedSource:
    """A source whose corpora are counted.

    Attributes:
        source: the source.
        counts: the number of pairs of each corpus, by name.
        positions: where the files of corpora can be read from. Corpora that are not in
            it are read from their beginning.
    """

    source: Source
    counts: Mapping[str, int]
    positions: CorpusPositions

    def __call__(self) -> Iterator[Pair]:
        """Yields all pairs."""
        return self.read_pairs(0)

    def read_pairs(self, start: int, stop: int | None = None) -> Iterator[Pair]:
        """Yields some of the pairs, without reading the corpora before them.

        Args:
            start: the index of the first pair.
            stop: the index after the last one; None: the end.
        """
        if stop is None:
            stop = sum(self.counts.values())
        corpus_start = 0
        for corpus in corpora_of(self.source):
            size = self.counts[corpus.name]
            index = max(start - corpus_start, 0)
            count = min(stop - corpus_start, size) - index
            if count > 0:
                pairs = itertools.islice(self._read_from(corpus, index), count)
                yield from corpus.tagged(pairs)
            corpus_start += size

    def _read_from(self, corpus: Corpus, index: int) -> Iterator[Pair]:
        positions = self.positions.get(corpus.name)
        if positions is None:
            return itertools.islice(iter(corpus.source()), index, None)
        pairs: Iterator[Pair] = corpus.source.read_from(index, positions)  # type: ignore[attr-defined]
        return pairs
