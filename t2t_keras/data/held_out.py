"""Dev and test pairs that are taken out of the training pairs."""

import dataclasses
import functools
import heapq
import struct
from collections import Counter
from collections.abc import Iterator, Mapping

from t2t_keras.console import progress
from t2t_keras.data.mixture import Mixture, corpora_of
from t2t_keras.data.sources import checksum
from t2t_keras.errors import UserError, quantity
from t2t_keras.files.json_files import hash_64
from t2t_keras.problem import Pair, Problem, Source, Split
from t2t_keras.text.sentences import is_blank

_CHUNK = 1000  # pairs after which the progress is updated
# Sources beyond twice the size of the new splits that are looked at, since those with
# many pairs may be passed over.
_SPARE = 1000


def hold_out(problem: Problem, sizes: Mapping[Split, int], seed: int) -> Problem:
    """Returns a problem whose dev and test pairs are some of its training pairs.

    The source texts are put in a random order. The pairs of the first texts become dev,
    the pairs of the next ones test, so all pairs with the same source stay together. A
    source with more pairs than a split still needs is skipped. A split can therefore be
    slightly smaller than asked if nearly every source occurs several times.

    Args:
        problem: a problem with training pairs. A source is taken out of all corpora of
            a mixture.
        sizes: the number of pairs of each new split.
        seed: seed of the order.

    Raises:
        UserError: the problem has no training pairs, or other pairs of a new split.
    """
    source = problem.source("train")
    for split in sizes:
        if split in problem.sources:
            raise UserError(
                f"--{split}_size takes {split} examples out of the training pairs, but "
                f"the problem has {split} examples; leave out one of them"
            )
    held_out = HeldOut(source, tuple(sizes.items()), seed)
    sources: dict[Split, Source] = dict(problem.sources)
    if isinstance(source, Mixture):
        corpora = []
        for corpus in source.corpora:
            remaining = Remaining(corpus.source, held_out)
            corpora.append(dataclasses.replace(corpus, source=remaining))
        sources["train"] = dataclasses.replace(source, corpora=tuple(corpora))
    else:
        sources["train"] = Remaining(source, held_out)
    for split in sizes:
        sources[split] = HeldOutSplit(held_out, split)
    return problem.replace(sources=sources)


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """What is held out, found in two passes over all pairs.

    Only the pairs of the new splits are kept in memory.

    Attributes:
        source: all pairs.
        sizes: the number of pairs of each new split.
        seed: seed of the order of the sources.
    """

    source: Source
    sizes: tuple[tuple[Split, int], ...]
    seed: int

    def rank(self, pair: Pair) -> int | None:
        """Returns the place of a pair's source in the order, a hash of 64 bits.

        Args:
            pair: the pair, without a tag. A pair with a blank side has no rank, since
                it is not held out.
        """
        if is_blank(pair[0]) or is_blank(pair[1]):
            return None
        text = " ".join(pair[0].split())  # white space does not matter
        seed = struct.pack("<q", self.seed)
        return hash_64(seed + text.encode("utf-8", "surrogatepass"))

    @functools.cached_property
    def splits(self) -> dict[int | None, Split]:
        """The new split of each source that is held out, by its rank.

        Raises:
            UserError: nothing is left for training, or a split cannot be filled.
        """
        flags = " and ".join(f"--{split}_size {size}" for split, size in self.sizes)
        total, counts = self._count_first()
        if total <= sum(size for _, size in self.sizes):
            raise UserError(
                f"{flags} leave nothing for training, which has "
                f"{quantity(total, 'pairs')}; give smaller sizes"
            )
        splits: dict[int | None, Split] = {}
        for split, size in self.sizes:
            lacking = size
            for rank in sorted(counts.keys() - splits.keys()):
                if counts[rank] <= lacking:
                    splits[rank] = split
                    lacking -= counts[rank]
            if lacking == size:
                raise UserError(
                    f"--{split}_size {size}: every source text has more than "
                    f"{quantity(size, 'pairs')}, which stay together; give a larger "
                    "size"
                )
        return splits

    @functools.cached_property
    def pairs(self) -> dict[Split, list[Pair]]:
        """The pairs of each new split in the order of the source, with their tags."""
        pairs: dict[Split, list[Pair]] = {split: [] for split, _ in self.sizes}
        splits = self.splits  # before the source is read again
        for corpus in corpora_of(self.source):
            for pair in corpus.source():
                if split := splits.get(self.rank(pair)):
                    pairs[split] += corpus.tagged([pair])
        return pairs

    @functools.cached_property
    def checksum(self) -> str:
        """The checksum of all pairs."""
        return checksum(self.source)

    def _count_first(self) -> tuple[int, dict[int, int]]:
        """Returns the number of all pairs, and of those of each of the first sources.

        Pairs with a blank side are not counted.
        """
        limit = 2 * sum(size for _, size in self.sizes) + _SPARE
        total = 0
        counts: dict[int, int] = {}
        heap: list[int] = []  # the ranks in `counts`, negative: the last one is on top
        with progress(
            f"choosing {' and '.join(split for split, _ in self.sizes)}", "pairs"
        ) as advance:
            for corpus in corpora_of(self.source):
                for pair in corpus.source():
                    rank = self.rank(pair)
                    if rank is None:
                        continue
                    total += 1
                    if total % _CHUNK == 0:
                        advance(_CHUNK)
                    if rank in counts:
                        counts[rank] += 1
                    elif len(heap) < limit:
                        heapq.heappush(heap, -rank)
                        counts[rank] = 1
                    elif rank < -heap[0]:
                        del counts[-heapq.heapreplace(heap, -rank)]
                        counts[rank] = 1
            advance(total % _CHUNK)
        return total, counts


@dataclasses.dataclass(frozen=True)
class Remaining:
    """A `Source` of the pairs of a corpus that are not held out.

    Attributes:
        source: all pairs of the corpus.
        held_out: what is held out.
    """

    source: Source
    held_out: HeldOut

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs; see `HeldOut.splits` for the errors."""
        splits = self.held_out.splits  # before the source is read again
        for pair in self.source():
            if self.held_out.rank(pair) not in splits:
                yield pair

    @property
    def dropped(self) -> Counter[str]:
        """The number of pairs that the source left out in the last pass, by reason."""
        return Counter(getattr(self.source, "dropped", {}))

    def checksum(self) -> str:
        """Returns the checksum of all pairs of the corpus."""
        return f"remaining of {checksum(self.source)}"


@dataclasses.dataclass(frozen=True)
class HeldOutSplit:
    """A `Source` of the pairs that are held out for a split.

    Attributes:
        held_out: what is held out.
        split: the split.
    """

    held_out: HeldOut
    split: Split

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs; see `HeldOut.splits` for the errors."""
        return iter(self.held_out.pairs[self.split])

    def checksum(self) -> str:
        """Returns the checksum of all training pairs."""
        return f"{self.split} of {self.held_out.checksum}"
