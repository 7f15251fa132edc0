"""The sources of pairs: text files, tensorflow-datasets, and mixtures.

A source is a callable that yields pairs of texts, from the beginning on every call and
always the same ones. Any function will do; the classes here also have a checksum that
takes less time than a pass over the pairs.
"""

import contextlib
import dataclasses
import hashlib
import itertools
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from t2t_keras.data.files import sha256
from t2t_keras.data.lines import read_lines
from t2t_keras.data.pair_files import PairFile
from t2t_keras.data.pharaoh import parse_reference
from t2t_keras.data.text_files import read_text
from t2t_keras.errors import UserError, first_line
from t2t_keras.problem import AlignedPair, Alignment, Pair, Source, Split

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_BATCH = 1024  # examples that are read from tensorflow-datasets at a time
_MOST_REPEATED = 100  # how many times the data an epoch may have
_FIELDS = {"name", "source", "target", "pairs", "languages", "weight", "tag"}
_FIELDS |= {"alignment"}


def checksum(source: Source) -> str:
    """Returns the source's own `checksum()` if it has one, or else one of its texts.

    It changes whenever the source yields other pairs.

    Raises:
        UserError: the source does not yield pairs of strings.
    """
    if hasattr(source, "checksum"):
        return source.checksum()
    digest = hashlib.sha256()
    pairs = source() if callable(source) else None
    if pairs is None:
        raise UserError(
            f"a source must be a function that yields pairs: {source!r:.80}"
        )
    for pair in pairs:
        is_pair = isinstance(pair, tuple | list) and len(pair) == 2
        if not (is_pair and all(isinstance(text, str) for text in pair)):
            raise UserError(f"a source must yield pairs of strings, not {pair!r:.80}")
        digest.update(repr(pair).encode("utf-8", "surrogatepass"))
    return f"texts {digest.hexdigest()}"


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
    """

    source_path: str | Path
    target_path: str | Path
    alignment_path: str | Path | None = None

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
        for number, (pair, line) in enumerate(aligned, start=1):
            links = _links(line, pair, f"{self.alignment_path}, line {number}")
            yield AlignedPair(pair[0], pair[1], links)

    def checksum(self) -> str:
        """Returns the SHA-256 of the files."""
        paths = (self.source_path, self.target_path, self.alignment_path)
        return "files " + " ".join(sha256(Path(path)) for path in paths if path)


def side_by_side(
    paths: tuple[str | Path, str | Path],
    contents: tuple[Iterator[Any], Iterator[Any]],
    rule: str,
) -> Iterator[tuple[Any, Any]]:
    """Yields the lines of two files in pairs.

    Args:
        paths: the files.
        contents: their lines; those of the first may be pairs of lines.
        rule: why the files have as many lines, for the error message.

    Raises:
        UserError: one file has more lines than the other.
    """
    pairs = itertools.zip_longest(*contents)
    for number, pair in enumerate(pairs):
        if None in pair:
            shorter, longer = paths if pair[0] is None else paths[::-1]
            more = number + 1 + sum(1 for _ in pairs)
            raise UserError(
                f"{shorter} has only {number:,} lines and {longer} has {more:,}: {rule}"
            )
        yield pair


def _links(line: str, pair: tuple[str, str], place: str) -> Alignment:
    """Reads the links between the words of a pair.

    Args:
        line: the links in Pharaoh's format.
        pair: the texts.
        place: the file and the number of the line, for the error message.

    Raises:
        UserError: it has anything else, or a link to a word that is not there.
    """
    links = tuple(sorted(parse_reference(line, place).sure))
    source, target = (len(text.split()) for text in pair)
    for i, j in links:
        if i >= source or j >= target:
            raise UserError(
                f"{place}: '{i}-{j}' links a word that is not there: the source has "
                f"{source} words and the target {target}, and the first is word 0"
            )
    return links


@dataclasses.dataclass(frozen=True)
class ArchiveFormat:
    """A format of archives, registered as an entry point of `t2t_keras.archives`.

    Attributes:
        suffixes: the ends of the names of such archives, such as ".tgz".
        pairs: returns the source of the pairs of two members; it gets the directory,
            the address or name of the archive, and the names of the two members.
        download: downloads the archive of such a source, if it is absent.
    """

    suffixes: tuple[str, ...]
    pairs: Callable[[Path, str, str, str], Source]
    download: Callable[[Any], None]


@dataclasses.dataclass(frozen=True)
class TfdsPairs:
    """One split of a translation dataset of tensorflow-datasets.

    It is downloaded and prepared on first use, under `data_dir`.

    Attributes:
        name: the dataset with its configuration, such as "wmt14_translate/de-en".
        split: the split in the notation of tensorflow-datasets, such as "train[:1%]".
        source_feature: the feature with the source text, such as "en".
        target_feature: the feature with the target text, such as "de".
        data_dir: the directory in which tensorflow-datasets keeps its data; None for
            its default (`$TFDS_DATA_DIR` or `~/tensorflow_datasets`).
    """

    name: str
    split: str
    source_feature: str
    target_feature: str
    data_dir: str | Path | None = None

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs in the order in which they are stored.

        Raises:
            UserError: there is no such dataset, split or feature, it cannot be
                downloaded, or tensorflow-datasets is not installed.
        """
        builder = self._builder()
        import tensorflow_datasets as tfds

        try:
            with contextlib.redirect_stdout(sys.stderr):  # the library prints progress
                builder.download_and_prepare()
        except (OSError, tfds.download.DownloadError) as error:
            raise UserError(
                f"cannot download {self.name}: {first_line(error)}; try again with a "
                "network, or give files (--train_source, --train_target ...)"
            ) from error
        for feature in (self.source_feature, self.target_feature):
            if feature not in builder.info.features:
                raise UserError(
                    f"{self.name} has no feature '{feature}', only "
                    f"{', '.join(builder.info.features)}"
                )
        try:
            dataset = builder.as_dataset(
                split=self.split,
                shuffle_files=False,
                read_config=tfds.ReadConfig(interleave_cycle_length=1),
            )
        except ValueError:
            raise UserError(
                f"{self.name} has no split '{self.split}', only "
                f"{', '.join(builder.info.splits)}"
            ) from None
        for batch in dataset.batch(_BATCH).as_numpy_iterator():
            sources, targets = batch[self.source_feature], batch[self.target_feature]
            for source, target in zip(sources, targets, strict=True):
                yield source.decode("utf-8"), target.decode("utf-8")

    def checksum(self) -> str:
        """Returns name and version, which identify a dataset of tensorflow-datasets."""
        features = f"{self.source_feature} {self.target_feature}"
        return f"tfds {self._builder().info.full_name} {self.split} {features}"

    def _builder(self) -> "tfds.core.DatasetBuilder":
        """Returns the dataset's builder."""
        import tensorflow_datasets as tfds

        try:
            return tfds.builder(self.name, data_dir=self.data_dir)
        except (tfds.core.DatasetNotFoundError, ValueError) as error:
            raise UserError(
                f"tensorflow-datasets: {self.name}: {first_line(error)}"
            ) from None


# Mixtures.


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
        for pair in self.source():
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
    are those of the corpora's sizes.

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
        found = (getattr(corpus.source, "dropped", {}) for corpus in self.corpora)
        return sum(map(Counter, found), Counter())

    def checksum(self) -> str:
        """Returns the checksums of the corpora with their names, weights and tags."""
        parts = [
            f"{c.name} {c.weight} {c.tag} ({checksum(c.source)})" for c in self.corpora
        ]
        return f"mixture {self.temperature} {' '.join(parts)}"

    def shares(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """Returns the share of each corpus in the training examples.

        Args:
            sizes: the number of examples of each corpus. A corpus without examples,
                all of which were dropped, has the share 0.
        """
        power = 1 / (self.temperature or 1.0)
        weights = {
            c.name: (c.weight or sizes[c.name] ** power) if sizes[c.name] else 0.0
            for c in self.corpora
        }
        total = sum(weights.values()) or 1.0
        return {name: weight / total for name, weight in weights.items()}

    def checked_shares(self, sizes: Mapping[str, int]) -> dict[str, float]:
        """Returns the shares; see `shares`.

        Raises:
            UserError: an epoch with them would be far larger than the data.
        """
        shares = self.shares(sizes)
        needed = ((n / shares[c], c) for c, n in sizes.items() if n)
        most, name = max(needed, default=(0, ""))
        if most > _MOST_REPEATED * sum(sizes.values()):
            raise UserError(
                f"with these weights an epoch would have {most:.0f} examples for those "
                f"of '{name}' to occur once; give it a larger weight"
            )
        return shares


def repetitions(corpus: np.ndarray, shares: Sequence[float]) -> np.ndarray:
    """Returns how often each example occurs in an epoch of a mixture.

    The corpus with the smallest share for its size occurs once, the others more often.
    If a corpus is to occur r times and r is not a whole number, some of its examples,
    evenly spread, occur once more than the others. So the shares are exact up to one
    example of each corpus.

    Args:
        corpus: int [N], the number of the corpus of each example.
        shares: the share of each corpus, of which the sum is 1.

    Returns:
        int64 [N]
    """
    sizes = np.bincount(corpus, minlength=len(shares))
    total = max(n / share for n, share in zip(sizes.tolist(), shares, strict=True) if n)
    counts = np.zeros(len(corpus), np.int64)
    for number, share in enumerate(shares):
        if sizes[number]:
            wanted = round(total * share)
            ends = np.arange(sizes[number] + 1) * wanted // sizes[number]
            counts[corpus == number] = np.diff(ends)
    return counts


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
    try:
        values = tomllib.loads(read_text(path))
    except ValueError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: its lists or tables are nested too deeply") from None
    temperature = values.pop("temperature", None)
    try:
        if temperature is None:
            temperature = 0.0
        elif not isinstance(temperature, int | float) or not temperature:
            raise UserError("temperature must be a number of at least 1")
        sources: dict[Split, Source] = {}
        splits: tuple[Split, ...] = get_args(Split)
        for name, tables in values.items():
            split = next((split for split in splits if split == name), None)
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
            kind = "number" if key == "weight" else "text"
            raise UserError(f"{key} is a {kind}, not {value!r}")
    files = {
        key: directory / table[key]
        for key in ("source", "target", "pairs", "alignment")
        if key in table
    }
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
    first = next(iter(files.values()))
    name = table.get("name", first.name)
    if table.get("weight") == 0:
        raise UserError(f"corpus '{name}': its weight must be positive; leave it out")
    return Corpus(name, source, float(table.get("weight", 0.0)), table.get("tag", ""))


def parse_languages(text: str) -> tuple[str, str]:
    """Returns the languages that are written "en-de".

    Raises:
        UserError: the text does not have that form.
    """
    match = re.fullmatch(r"([a-z]{2,3}(?:_\w+)?)-([a-z]{2,3}(?:_\w+)?)", text)
    if not match:
        raise UserError(f"languages are two codes such as en-de, not '{text}'")
    return match[1], match[2]


def corpora_of(source: Source) -> list[Corpus]:
    """Returns the corpora of a source; one without a name if it is not a mixture."""
    return list(source.corpora) if isinstance(source, Mixture) else [Corpus("", source)]


# Languages.

_TEXTS = 500  # of which a language is guessed


def language_shares(texts: Sequence[str]) -> dict[str, float] | None:
    """Returns the share of texts of each language; None without the library for it."""
    try:
        from py3langid import classify
    except ImportError:  # it is in the extra [data]
        return None
    some = [text for text in texts[:: 1 + len(texts) // _TEXTS] if text]
    counts = Counter(classify(text)[0] for text in some)
    return {name: count / len(some) for name, count in counts.most_common()}


def guessed_languages(source: Source) -> tuple[str, str] | None:
    """Returns the languages of nine in ten of the first 500 texts; None: unknown."""
    pairs = list(itertools.islice(source(), _TEXTS))
    if len(pairs) < _TEXTS:
        return None
    found = []
    for texts in zip(*pairs, strict=True):
        shares = language_shares(texts)
        name, share = next(iter(shares.items())) if shares else ("", 0.0)
        if share < 0.9:
            return None
        found.append(name)
    return found[0], found[1]
