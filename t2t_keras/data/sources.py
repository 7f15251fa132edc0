"""Sources of pairs: two text files, a file of pairs, tensorflow-datasets.

A source is a callable that yields pairs of texts, from the beginning on every call and
always the same ones. Any function will do. A source may have further methods:

- `checksum` takes less time than a pass over the pairs;
- `read_pairs(start, stop)` yields the pairs of these indices without reading others.

Formats of files of pairs, and of archives, are plugins.
"""

import contextlib
import dataclasses
import functools
import hashlib
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError, first_line, quantity
from t2t_keras.files.atomic import refuse_pipes
from t2t_keras.files.json_files import sha256
from t2t_keras.files.text_files import (
    HEAD,
    decoded_lines,
    open_binary,
    pair_format,
    read_lines,
    readable,
)
from t2t_keras.problem import Pair, Source, Split
from t2t_keras.text.alignment import (
    AlignedPair,
    Alignment,
    parse_reference,
    split_words,
)

if TYPE_CHECKING:
    import io

    import tensorflow_datasets as tfds


def changed_source(split: Split, expected: int, actual: int) -> UserError:
    """Returns the error for a source that does not yield the same pairs every time."""
    return UserError(
        f"the {split} source gave {quantity(expected, 'pairs')} at first and "
        f"{actual:,} when read again; it must give the same ones every time"
    )


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
            yield AlignedPair(pair[0].strip(), pair[1].strip(), links)

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
    """Reads the links between the words of a pair, as they are after `str.strip`.

    Args:
        line: the links in Pharaoh's format.
        pair: the texts.
        location: the file and the number of the line, for the error message.

    Raises:
        UserError: it has anything else, or a link to a word that is not there.
    """
    links = tuple(sorted(parse_reference(line, location).sure))
    source, target = (len(split_words(text)) for text in pair)
    for i, j in links:
        if i >= source or j >= target:
            raise UserError(
                f"{location}: '{i}-{j}' links a word that is not there: the source has "
                f"{source} words and the target {target}, and the first is word 0"
            )
    # A word of other white space, such as a no-break space, is not text.
    blank_source, blank_target = (
        len(split_words(text)) - len(split_words(text.lstrip())) for text in pair
    )
    counted = ((i - blank_source, j - blank_target) for i, j in links)
    return tuple((i, j) for i, j in counted if i >= 0 and j >= 0)


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


@dataclasses.dataclass(frozen=True)
class ArchiveFormat:
    """A format of archives, registered as an entry point of `t2t_keras.archives`.

    Attributes:
        suffixes: the ends of the names of such archives, such as ".tgz".
        pairs: returns the source of the pairs of two members; it gets the directory,
            the address or name of the archive, and the names of the two members.
        download: downloads the archive of a source from `pairs`, if it is absent.
        open_member: opens a member for reading its decompressed bytes; it gets the
            archive and the name of the member.
    """

    suffixes: tuple[str, ...]
    pairs: Callable[[Path, str, str, str], Source]
    download: Callable[[Any], None]
    open_member: Callable[[Path, str], AbstractContextManager["io.BufferedReader[Any]"]]


_LANGUAGES = re.compile(r"([a-z]{2,3}(?:_\w+)?)-([a-z]{2,3}(?:_\w+)?)")


_TEXTS = 500  # number of texts from which a language is guessed


def parse_languages(text: str) -> tuple[str, str]:
    """Returns the languages that are written "en-de".

    Raises:
        UserError: the text does not have that form.
    """
    if match := _LANGUAGES.fullmatch(text):
        return match[1], match[2]
    if _LANGUAGES.fullmatch(lower := text.lower()):
        raise UserError(f"languages are written in lower case: {lower}, not '{text}'")
    raise UserError(f"languages are two codes such as en-de, not '{text}'")


def language_shares(texts: Sequence[str]) -> dict[str, float] | None:
    """Returns the share of texts of each language; None without the library for it."""
    try:
        from py3langid import classify
    except ImportError:  # it is in the extra [data]
        return None
    sample = [text for text in texts[:: 1 + len(texts) // _TEXTS] if text]
    counts = Counter(classify(text)[0] for text in sample)
    return {name: count / len(sample) for name, count in counts.most_common()}


def guessed_languages(source: Source) -> tuple[str, str] | None:
    """Returns the languages of nine in ten of the first 500 texts; None: unknown."""
    pairs = list(itertools.islice(source(), _TEXTS))
    if len(pairs) < _TEXTS:
        return None
    languages = []
    for texts in zip(*pairs, strict=True):
        shares = language_shares(texts)
        name, share = next(iter(shares.items())) if shares else ("", 0.0)
        if share < 0.9:
            return None
        languages.append(name)
    return languages[0], languages[1]


_BATCH = 1024  # examples that are read from tensorflow-datasets at a time


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
                f"cannot download {self.name}: {first_line(error)}; run this command "
                "on a machine with a network and copy its ~/tensorflow_datasets/"
                f"{builder.info.full_name} to {builder.data_dir}, or give your own "
                "files to translate_text"
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
            sources = batch[self.source_feature]
            targets = batch[self.target_feature]
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
