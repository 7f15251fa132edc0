"""Mixtures of several corpora, from Python or from a TOML file."""

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.data.sources import PairFile, ParallelFiles, checksum, parse_languages
from t2t_keras.errors import UserError
from t2t_keras.files.config_files import parse_toml
from t2t_keras.files.text_files import read_text
from t2t_keras.problem import SPLITS, Pair, Source, Split
from t2t_keras.text.alignment import AlignedPair

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
                f"with these weights an epoch would have {epoch_size:,.0f} examples "
                f"for those of '{name}' to occur once; give it a larger weight"
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


_FILES = ("source", "target", "pairs", "alignment")
_FIELDS = {*_FILES, "name", "languages", "weight", "tag"}


def read_mixture(path: str | Path) -> dict[Split, Source]:
    """Reads the sources of each split from a TOML file.

        temperature = 5            # or a weight for each corpus of [[train]]

        [[train]]
        name = "captions"          # default: the name of the file
        source = "train.en.gz"     # relative to this file
        target = "train.de.gz"
        tag = "<2de>"

        [[train]]
        pairs = "memory.tmx"       # or .tsv, .csv, .jsonl, .xlf, .parquet
        languages = "en-de"

        [[dev]]
        source = "dev.en"
        target = "dev.de"

    Raises:
        UserError: the file cannot be read, or is not as described.
    """
    path = Path(path)
    values = parse_toml(read_text(path), str(path))
    temperature = values.pop("temperature", None)
    try:
        if temperature is None:
            temperature = 0.0
        elif not isinstance(temperature, int | float) or not temperature:
            raise UserError("temperature must be a number of at least 1")
        sources: dict[Split, Source] = {}
        for name, tables in values.items():
            split = next((split for split in SPLITS if split == name), None)
            if split is None or not isinstance(tables, list):
                raise UserError(
                    f"there is '{name}', not temperature, [[train]], [[dev]] or "
                    "[[test]]"
                )
            corpora = tuple(_corpus(table, path.parent) for table in tables)
            if split != "train" and any(corpus.weight for corpus in corpora):
                raise UserError(f"a weight in [[{split}]]: only training has weights")
            sources[split] = Mixture(corpora, temperature if split == "train" else 0.0)
        if not sources:
            raise UserError("there is no [[train]], [[dev]] or [[test]]")
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return sources


def _corpus(table: Any, directory: Path) -> Corpus:
    """Returns the corpus that a table of the file describes."""
    if not isinstance(table, dict):
        raise UserError("a corpus is a table with source and target, or pairs")
    if unknown := sorted(table.keys() - _FIELDS):
        raise UserError(
            f"a corpus has no '{unknown[0]}'; it has {', '.join(sorted(_FIELDS))}"
        )
    for key, value in table.items():
        kinds = (int, float) if key == "weight" else (str,)
        if not isinstance(value, kinds) or isinstance(value, bool):
            expected = "number" if key == "weight" else "text"
            raise UserError(f"{key} is a {expected}, not {value!r}")
    files = {key: directory / table[key] for key in _FILES if key in table}
    source: Source
    if files.keys() == {"pairs"}:
        languages = table.get("languages")
        source = PairFile(files["pairs"], languages and parse_languages(languages))
    elif {"source", "target"} == files.keys() - {"alignment"} and (
        "languages" not in table
    ):
        source = ParallelFiles(files["source"], files["target"], files.get("alignment"))
    else:
        raise UserError("a corpus needs source and target, or pairs (and languages)")
    file = next(iter(files.values()))
    name = table.get("name", file.name)
    if table.get("weight") == 0:
        raise UserError(f"corpus '{name}': its weight must be positive; leave it out")
    return Corpus(name, source, float(table.get("weight", 0.0)), table.get("tag", ""))
