"""Mixtures of several corpora."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from t2t_keras.data.sources import checksum
from t2t_keras.errors import UserError
from t2t_keras.problem import AlignedPair, Pair, Source

_MAX_REPETITIONS = 100  # largest size of an epoch, in multiples of the data


@dataclasses.dataclass(frozen=True)
class Corpus:
    """One of the corpora of a `Mixture`.

    Attributes:
        name: its name in the manifest.
        source: its pairs.
        weight: its share of the training examples, relative to the other corpora; 0:
            not given.
        tag: a word that precedes each source, such as `<2de>` for the target language
            or `<bt>` for back-translated sources. It is one token of the vocabulary.
    """

    name: str
    source: Source
    weight: float = 0.0
    tag: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf:
            raise UserError(f"corpus '{self.name}': its weight must be positive")
        if self.tag and self.tag.split() != [self.tag]:
            raise UserError(f"corpus '{self.name}': '{self.tag}' is not one word")

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs, their sources with the tag."""
        return self.tagged(self.source())

    def tagged(self, pairs: Iterable[Pair]) -> Iterator[Pair]:
        """Yields pairs of the corpus, their sources with the tag."""
        for pair in pairs:
            if not self.tag:
                yield pair
                continue
            source, target = pair
            tagged = f"{self.tag} {source.strip()}"
            if isinstance(pair, AlignedPair):  # the tag is word 0
                links = tuple((i + 1, j) for i, j in pair.links)
                yield AlignedPair(tagged, target, links)
            else:
                yield tagged, target


@dataclasses.dataclass(frozen=True)
class Mixture:
    """A `Source` of several corpora, one after the other.

    The weights apply when the examples are read for training, see `repetitions`: the
    data directory has each example once. Without weights and a temperature the shares
    are proportional to the sizes of the corpora.

    Attributes:
        corpora: the corpora.
        temperature: the share of a corpus of n examples is proportional to
            n ** (1 / temperature) (Arivazhagan et al., 2019, use 5 for many languages);
            in place of weights. 0: not given.
    """

    corpora: tuple[Corpus, ...]
    temperature: float = 0.0

    def __post_init__(self) -> None:
        names = Counter(corpus.name for corpus in self.corpora)
        if not names:
            raise UserError("a mixture needs at least one corpus")
        name, count = names.most_common(1)[0]
        if count > 1:
            raise UserError(f"two corpora of a mixture have the name '{name}'")
        weighted = [corpus.name for corpus in self.corpora if corpus.weight]
        if weighted and len(weighted) < len(names):
            lacking = next(c.name for c in self.corpora if not c.weight)
            raise UserError(
                f"corpus '{weighted[0]}' has a weight and '{lacking}' has none; give "
                "weights to all corpora or to none"
            )
        if self.temperature and (weighted or not 1 <= self.temperature < math.inf):
            raise UserError(
                "the temperature of a mixture must be at least 1, and excludes weights"
            )

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs of the corpora, in their order."""
        for corpus in self.corpora:
            yield from corpus()

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags, each once."""
        return tuple(dict.fromkeys(c.tag for c in self.corpora if c.tag))

    @property
    def dropped(self) -> Counter[str]:
        """The number of pairs that the sources left out in the last pass, by reason."""
        total = Counter[str]()
        for corpus in self.corpora:
            total += Counter(getattr(corpus.source, "dropped", {}))
        return total

    def checksum(self) -> str:
        """Returns the checksums of the corpora with their names, weights and tags."""
        parts = []
        for c in self.corpora:
            parts.append(f"{c.name} {c.weight} {c.tag} ({checksum(c.source)})")
        return f"mixture {self.temperature} {' '.join(parts)}"

    def shares(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """Returns the share of each corpus in the training examples.

        Args:
            sizes: the number of examples of each corpus. A corpus without examples,
                all of which were dropped, has the share 0.
        """
        power = 1 / (self.temperature or 1.0)
        weights = {}
        for c in self.corpora:
            size = sizes[c.name]
            weights[c.name] = (c.weight or size**power) if size else 0.0
        total = sum(weights.values()) or 1.0
        return {name: weight / total for name, weight in weights.items()}

    def checked_shares(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """Returns the shares; see `shares`.

        Raises:
            UserError: an epoch with them would be far larger than the data.
        """
        shares = self.shares(sizes)
        needed = ((n / shares[c], c) for c, n in sizes.items() if n)
        epoch_size, name = max(needed, default=(0, ""))
        if epoch_size > _MAX_REPETITIONS * sum(sizes.values()):
            raise UserError(
                f"with these weights an epoch would have {epoch_size:.0f} examples for "
                f"those of '{name}' to occur once; give it a larger weight"
            )
        return shares


def repetitions(corpus: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Returns how often each example occurs in an epoch of a mixture.

    The corpus with the smallest share for its size occurs once, the others more often.
    If a corpus must occur r times and r is not an integer, some of its examples, evenly
    spread, occur once more than the others. So the shares are exact up to one example
    of each corpus.

    Args:
        corpus: int [N], the index of the corpus of each example.
        shares: the share of each corpus; they sum to 1.

    Returns:
        int64 [N]
    """
    sizes = np.bincount(corpus, minlength=len(shares))
    total = max(n / share for n, share in zip(sizes.tolist(), shares, strict=True) if n)
    counts = np.zeros(len(corpus), np.int64)
    for index, share in enumerate(shares):
        size = sizes[index]
        if size:
            occurrences = round(total * share)
            stops = np.arange(size + 1) * occurrences // size
            counts[corpus == index] = np.diff(stops)
    return counts


def corpora_of(source: Source) -> list[Corpus]:
    """Returns the corpora of a source; one without a name if it is not a mixture."""
    return list(source.corpora) if isinstance(source, Mixture) else [Corpus("", source)]


def sample_sizes(source: Source, totals: Mapping[str, int], size: int) -> list[int]:
    """Returns how many pairs of each corpus a sample has, as their shares demand.

    Args:
        source: the source of the training pairs.
        totals: the number of pairs of each corpus.
        size: the number of pairs of the sample.
    """
    if not isinstance(source, Mixture):
        return [size]
    shares = source.shares(totals)
    return [min(total, round(size * shares[name])) for name, total in totals.items()]
