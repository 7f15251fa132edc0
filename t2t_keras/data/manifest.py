"""The manifest: what a data directory was made from, and what it contains.

`DataConfig` is what its bytes depend on; a `DataPlan` is what a run of datagen makes,
with the paths of its files until they are published.
"""

import dataclasses
import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self, TypedDict

from annotated_types import Interval

from t2t_keras.checking import Count, Rule
from t2t_keras.data.record_index import RecordIndex, find_shards, unfinished_dir
from t2t_keras.data.sources import checksum
from t2t_keras.errors import UserError
from t2t_keras.files.json_files import (
    TWO,
    FileName,
    digest,
    from_fields,
    read_json,
    sha256,
    typed_value,
)
from t2t_keras.problem import SIDES, SPLITS, Problem, Side, Split
from t2t_keras.text.tokenizer import (
    load_tokenizer,
    tokenizer_class,
    tokenizer_classes,
    vocabulary_suffix,
)
from t2t_keras.text.vocabulary import write_vocabulary

# The number of pairs by split and name of the corpus. A source that is not a mixture
# has one corpus, whose name is empty.
Counts = dict[Split, dict[str, int]]


def read_counts(path: Path) -> Counts:
    """Returns the counts in a file, by split and name; none if there is no file.

    Raises:
        UserError: the file is damaged.
    """
    hint = dict[Split, dict[str, Count]]
    return typed_value(hint, read_json(path) or {}, "counts", path)


def vocab_files(problem: Problem) -> dict[Side, str]:
    """Returns the file name of each side's vocabulary; the same one when shared."""
    stem = f"vocab.{problem.data_name}"
    suffix = tokenizer_class(problem.tokenizer).suffix
    if problem.shared_vocab:
        return dict.fromkeys(SIDES, f"{stem}.{problem.vocab_size}{suffix}")
    return {side: f"{stem}.{side}.{problem.vocab_size}{suffix}" for side in SIDES}


def size_in_file_name(problem: Problem, data_dir: Path) -> int | None:
    """Returns the size in the name of the vocabulary file that a directory has.

    Returns:
        None if the directory has no vocabulary of the problem, or several.
    """
    stem = f"vocab.{problem.data_name}"
    suffix = tokenizer_class(problem.tokenizer).suffix
    side = "" if problem.shared_vocab else r"\.(?:source|target)"
    name = re.compile(rf"{re.escape(stem)}{side}\.(\d+){re.escape(suffix)}")
    names = os.listdir(data_dir) if data_dir.is_dir() else []
    sizes = {int(match[1]) for match in map(name.fullmatch, names) if match}
    return sizes.pop() if len(sizes) == 1 else None


def use_vocabularies(
    problem: Problem, files: tuple[Path, Path], data_dir: Path
) -> Problem:
    """Copies vocabularies into a data directory, where `generate` finds them.

    Args:
        problem: the problem to make data of.
        files: the vocabularies of source and target; one file twice if they share it.
        data_dir: the data directory, which is made if absent.

    Returns:
        The problem with the tokenizer and the size of the vocabularies.

    Raises:
        UserError: a file is not a vocabulary, the two need different tokenizers, or
            the directory has another vocabulary in its place.
    """
    sizes = [load_tokenizer(path).vocab_size for path in files]
    suffix = vocabulary_suffix(files[0])
    if vocabulary_suffix(files[1]) != suffix:
        raise UserError(f"{files[0]} and {files[1]} are of different kinds")
    names = {cls.suffix: name for name, cls in tokenizer_classes()}
    problem = problem.replace(
        tokenizer=names[suffix],
        vocab_size=max(sizes),
        shared_vocab=files[0].read_bytes() == files[1].read_bytes(),
    )
    if problem.reverse:  # the data are of the other direction
        files = files[::-1]
    data_dir.mkdir(parents=True, exist_ok=True)
    for file, name in zip(files, vocab_files(problem).values(), strict=True):
        path = data_dir / name
        if path.exists() and path.read_bytes() != file.read_bytes():
            raise UserError(f"{path} is another vocabulary; give a new --data_dir")
        write_vocabulary(path, file.read_bytes())
    return problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataConfig:
    """All that the bytes of a data directory depend on.

    Attributes:
        problem: the problem's `data_name`, with which the file names begin.
        seed: seed of the vocabulary's sample and of the order of the examples.
        tokenizer: as in `Problem`, as are the next five.
        vocab_size: the size that was asked for.
        shared_vocab: whether both sides have the same vocabulary.
        symbols: texts that are one token of the target.
        tags: words before sources that are one token of the source.
        max_length: largest number of tokens on a side of a training pair.
        cleaning: the rules by which training pairs are dropped, see `problem.Cleaning`.
        sources: split -> checksum of its source.
        given_vocabularies: vocabulary files that were there before: name -> SHA-256.
        held_out: split -> number of pairs that were taken out of the training pairs;
            the checksums of sources are then those of all training pairs.
    """

    problem: FileName
    seed: int
    tokenizer: str
    vocab_size: int
    shared_vocab: bool
    symbols: tuple[str, ...]
    max_length: int
    sources: dict[Split, str]
    given_vocabularies: dict[str, str]
    cleaning: dict[str, float | bool] = dataclasses.field(default_factory=dict)
    tags: tuple[str, ...] = ()
    held_out: dict[Split, int] = dataclasses.field(default_factory=dict)

    def added_to(self, earlier: "DataConfig") -> "DataConfig":
        """Returns the config of earlier data, with the splits of this one added."""
        fields = {name: getattr(earlier, name) for name in vars(self)}
        merged = {**earlier.sources, **self.sources}
        sources = {split: merged[split] for split in SPLITS if split in merged}
        return DataConfig(**fields | {"sources": sources})


def data_config(
    problem: Problem,
    data_dir: Path,
    seed: int,
    held_out: dict[Split, int],
) -> DataConfig:
    """Returns the config for the data of a problem, whose `vocab_size` is set.

    Args:
        problem: the problem.
        data_dir: the data directory, which may have vocabularies.
        seed: see `DataConfig`.
        held_out: see `DataConfig`.
    """
    assert problem.vocab_size is not None
    given_vocabularies = {}
    for name in sorted(set(vocab_files(problem).values())):
        if (data_dir / name).exists():
            given_vocabularies[name] = sha256(data_dir / name)
    sources: dict[Split, str] = {}
    for split in SPLITS:
        if split in problem.sources:
            sources[split] = checksum(problem.sources[split])
    cleaning = dataclasses.asdict(problem.cleaning)
    return DataConfig(
        problem=problem.data_name,
        seed=seed,
        tokenizer=problem.tokenizer,
        vocab_size=problem.vocab_size,
        shared_vocab=problem.shared_vocab,
        symbols=tuple(problem.text_processor.symbols),
        tags=problem.tags,
        max_length=problem.max_length,
        cleaning={rule: value for rule, value in cleaning.items() if value},
        sources=sources,
        given_vocabularies=given_vocabularies,
        held_out=held_out,
    )


def differences(
    earlier: Mapping[str, object], current: Mapping[str, object]
) -> list[str]:
    """Returns the differences in the fields of a `DataConfig`, in phrases."""
    phrases = []
    for name, value in current.items():
        old = earlier[name]
        if not (isinstance(value, dict) and isinstance(old, dict)):
            if old != value:
                phrases.append(f"{name} was {old!r} and is now {value!r}")
            continue
        for key in sorted(old.keys() | value.keys()):
            if key not in old:
                phrases.append(f"{name} '{key}' is new")
            elif key not in value:
                phrases.append(f"{name} '{key}' is gone")
            elif old[key] != value[key]:
                phrases.append(f"{name} '{key}' has changed")
    return phrases


_ON_BOTH_SIDES = Rule(
    lambda values: values.keys() == {*SIDES}, "an object with source and target"
)


class CorpusRecord(TypedDict):
    """What the manifest says about a corpus.

    Attributes:
        pairs: number of pairs that were read.
        examples: number of examples that were made of them.
        share: its share of the examples that are read for training.
    """

    pairs: Count
    examples: Count
    share: Annotated[float, Interval(gt=0)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(DataConfig):
    """A config and its result: `{data_name}.manifest.json`.

    Attributes:
        vocab_files: side ("source" or "target") -> file name; the same if shared.
        vocab_sizes: side -> number of tokens in the vocabulary.
        vocab_sha256: side -> SHA-256 of the file.
        examples: split -> number of examples.
        dropped: split -> reason (see `cleaning.reasons`) -> number of examples; also
            the number of pairs that the source itself left out (its `dropped`).
        tokens: split -> side -> number of tokens in the examples, EOS included.
        corpora: split -> name -> `CorpusRecord`, for splits that are mixtures.
        index_sha256: split -> `RecordIndex.sha256`.
        text_sha256: split -> SHA-256 of the raw sources and of the raw targets. The
            training data, and all data of tensor2tensor, have none.
        single_sentences: split -> side -> share of the examples whose text on that side
            is one sentence, by the rules of `text.sentences`. Data of tensor2tensor
            have none.
        languages: the language codes of source and target; None: unknown.
        license: the licence of the data, as in `Problem`.
    """

    vocab_files: Annotated[dict[str, FileName], _ON_BOTH_SIDES]
    vocab_sizes: Annotated[dict[str, Count], _ON_BOTH_SIDES]
    vocab_sha256: Annotated[dict[str, str], _ON_BOTH_SIDES]
    examples: dict[Split, Count]
    dropped: dict[Split, dict[str, Count]]
    tokens: dict[Split, Annotated[dict[str, Count], _ON_BOTH_SIDES]]
    index_sha256: dict[Split, str]
    corpora: dict[Split, dict[str, CorpusRecord]] = dataclasses.field(
        default_factory=dict
    )
    text_sha256: dict[Split, Annotated[list[str], TWO]] = dataclasses.field(
        default_factory=dict
    )
    single_sentences: dict[Split, dict[str, float]] = dataclasses.field(
        default_factory=dict
    )
    languages: tuple[str, str] | None = None
    license: str = ""

    def __repr__(self) -> str:
        return (
            f"Manifest({self.problem!r}, examples={self.examples}, "
            f"vocab_sizes={self.vocab_sizes})"
        )

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Returns the manifest in a file, or None if there is no such file.

        Raises:
            UserError: the file is damaged, or it names a file in another directory.
        """
        fields = read_json(path, otherwise="generate the data in another --data_dir")
        if fields is None:
            return None
        manifest = from_fields(cls, fields, path)
        splits = manifest.sources.keys()
        for name in ("examples", "dropped", "tokens", "index_sha256"):
            if missing := splits - getattr(manifest, name).keys():
                raise UserError(
                    f"{path}: the field '{name}' lacks the split '{min(missing)}'; "
                    "restore the file from a copy"
                )
        return manifest

    @classmethod
    def open(cls, data_dir: Path, data_name: str) -> Self:
        """Returns the manifest of a data set; raises `UserError` if there is none."""
        path = cls.path(data_dir, data_name)
        manifest = cls.load(path)
        if manifest is None:
            raise UserError(
                other_than_data(data_dir)
                or f"there is no {path}: run `t2t datagen` for this problem and "
                "--data_dir (or `t2t adopt` if tensor2tensor made the data)"
            )
        return manifest

    @staticmethod
    def path(data_dir: Path, data_name: str) -> Path:
        """Returns the path of the manifest of a data set."""
        return Path(data_dir) / f"{data_name}.manifest.json"

    def has_splits_of(self, config: DataConfig) -> bool:
        """Returns whether the directory has all splits that a config has."""
        return self.sources.keys() >= config.sources.keys()

    def open_index(
        self, data_dir: str | Path, split: Split, swap: bool = False
    ) -> RecordIndex:
        """Opens the index of a split, and compares it with the manifest.

        Args:
            data_dir: the directory of the manifest.
            split: the split.
            swap: see `RecordIndex.open`.

        Raises:
            UserError: the split's data are absent, incomplete, damaged, or not those
                of the manifest.
        """
        return RecordIndex.open(
            Path(data_dir), self.problem, split, swap, self.index_sha256.get(split)
        )

    def fingerprint(self, split: Split) -> str:
        """Returns a digest of all that the examples of a split depend on.

        It does not change when another split is added.
        """
        fields = dataclasses.asdict(self)
        for name in ("given_vocabularies", "license", "languages"):
            del fields[name]
        # They follow from the sources.
        for name in ("text_sha256", "index_sha256", "single_sentences"):
            del fields[name]
        for name in ("sources", "examples", "dropped", "tokens", "corpora"):
            fields[name] = fields[name].get(split)
        return digest(fields)

    def check_vocabularies(self, data_dir: Path) -> None:
        """Raises `UserError` if a vocabulary is missing or has been changed."""
        for side, name in self.vocab_files.items():
            path = Path(data_dir) / name
            if not path.exists() or sha256(path) != self.vocab_sha256[side]:
                raise UserError(
                    f"{path} is not the vocabulary that the data was made with; bring "
                    "it back or generate the data in another --data_dir"
                )


def is_export(path: str | Path) -> bool:
    """Returns whether a directory holds an export, which is neither data nor a run."""
    return (Path(path) / "t2t_export.json").exists()


def other_than_data(path: str | Path) -> str:
    """Returns a sentence about a run or an export that was given in place of data.

    It says which data the run has. For all else it is "".
    """
    directory = Path(path)
    if is_export(path):
        return f"--data_dir: {path} is an export"
    if not (directory / "hparams.json").exists():
        return ""
    fields = read_json(directory / "config.json") or {}
    if not isinstance(data_dir := fields.get("data_dir"), str):
        return ""
    return f"--data_dir: {path} is a run directory; its data are in {data_dir}"


def existing_data(config: DataConfig, data_dir: Path) -> Manifest | None:
    """Returns the manifest of a directory whose data were made by a config.

    The directory may have other splits than the config. If the config has no training
    examples, its rules for them are ignored.

    Returns:
        None if the directory has no data of the problem.

    Raises:
        UserError: its data were made by another config, or have been changed.
    """
    path = Manifest.path(data_dir, config.problem)
    manifest = Manifest.load(path)
    if manifest is None:
        shards = data_dir.glob(f"{glob.escape(config.problem)}-*-?????-of-?????")
        unpublished = unfinished_dir(data_dir, config.problem) / "done" / path.name
        if any(shards) and not unpublished.exists():
            raise UserError(
                f"{data_dir} has data of '{config.problem}' without a manifest, from "
                "another program; give another --data_dir, or `t2t adopt` what "
                "tensor2tensor made"
            )
        return None
    sources = {s: config.sources.get(s, old) for s, old in manifest.sources.items()}
    fields = vars(config) | {
        "given_vocabularies": manifest.given_vocabularies,
        "sources": sources,
    }
    if "train" not in config.sources:
        fields = {name: fields[name] for name in ("problem", "vocab_size", "sources")}
    if changes := differences(vars(manifest), fields):
        raise UserError(
            f"{data_dir} holds data of '{config.problem}' made otherwise "
            f"({'; '.join(changes)}); give another --data_dir, or remove the old data"
        )
    manifest.check_vocabularies(data_dir)
    for split in manifest.examples:
        find_shards(data_dir, config.problem, split)
    return manifest


@dataclasses.dataclass(frozen=True)
class DataPlan:
    """What a run of datagen makes.

    Attributes:
        problem: the problem to make data of.
        config: all that the result depends on.
        data_dir: the directory that gets the result.
        earlier: manifest of the directory to which splits are added, if there is one.
    """

    problem: Problem
    config: DataConfig
    data_dir: Path
    earlier: Manifest | None = None

    @property
    def splits(self) -> list[Split]:
        """The splits to make, in order."""
        present = self.earlier.sources if self.earlier else ()
        return [s for s in SPLITS if s in self.config.sources and s not in present]

    @property
    def directory(self) -> Path:
        """The directory of all files until they are published."""
        return unfinished_dir(self.data_dir, self.problem.data_name)

    @property
    def done(self) -> Path:
        """The directory of the files that will be published."""
        return self.directory / "done"

    @property
    def manifest_path(self) -> Path:
        """The manifest before it is published."""
        return self.done / Manifest.path(self.data_dir, self.problem.data_name).name

    @property
    def vocabularies(self) -> dict[Side, Path]:
        """The vocabulary file of each side."""
        if self.earlier:
            return {s: self.data_dir / self.earlier.vocab_files[s] for s in SIDES}
        paths = {}
        for side, name in vocab_files(self.problem).items():
            is_given = name in self.config.given_vocabularies
            paths[side] = (self.data_dir if is_given else self.done) / name
        return paths

    def is_complete(self) -> bool:
        """Returns whether all files are made, though perhaps not yet published."""
        path = Manifest.path(self.data_dir, self.problem.data_name)
        published = Manifest.load(path)
        if published and published.has_splits_of(self.config):
            return True
        return self.manifest_path.exists()
