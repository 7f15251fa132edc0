"""The manifest: what a data directory was made from, and what it contains."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self, TypedDict

from t2t_keras.data.files import read_json, sha256, write_json
from t2t_keras.data.records import find_shards, unfinished_dir
from t2t_keras.data.sources import checksum
from t2t_keras.data.vocabulary import vocab_files
from t2t_keras.option import UserError
from t2t_keras.problem import Problem, Split

SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that the bytes of a data directory depend on.

    Attributes:
        problem: the problem's `data_name`, with which the file names begin.
        seed: seed of the vocabulary's sample and of the order of the examples.
        tokenizer: as in `Problem`, as are the next five.
        vocab_size: the size that was asked for.
        shared_vocab: whether both sides have the same vocabulary.
        symbols: texts that are one token of the target.
        tags: words before sources that are one token of the source.
        max_length: most tokens of a side of a training pair.
        bpe_dropout: dropout of merges in training examples.
        copies: number of examples of each training pair.
        cleaning: the rules by which training pairs are dropped, see `problem.Cleaning`.
        sources: split -> checksum of its source.
        given_vocabularies: vocabulary files that were there before: name -> SHA-256.
    """

    problem: str
    seed: int
    tokenizer: str
    vocab_size: int
    shared_vocab: bool
    symbols: tuple[str, ...]
    max_length: int
    sources: dict[Split, str]
    given_vocabularies: dict[str, str]
    cleaning: dict[str, float] = dataclasses.field(default_factory=dict)
    bpe_dropout: float = 0.0
    copies: int = 1
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, problem: Problem, data_dir: Path, seed: int) -> Self:
        """Returns the recipe of a problem, with its sources, and a seed."""
        assert problem.vocab_size is not None  # datagen has chosen one
        vocabularies = {data_dir / name for name in vocab_files(problem).values()}
        same = ["tokenizer", "vocab_size", "shared_vocab", "max_length"]
        same += ["bpe_dropout", "copies"]
        cleaning = dataclasses.asdict(problem.cleaning)
        return cls(
            problem=problem.data_name,
            seed=seed,
            symbols=tuple(problem.symbols),
            tags=problem.tags,
            sources={
                s: checksum(problem.sources[s]) for s in SPLITS if s in problem.sources
            },
            given_vocabularies={
                path.name: sha256(path)
                for path in sorted(vocabularies)
                if path.exists()
            },
            cleaning={rule: value for rule, value in cleaning.items() if value},
            **{name: getattr(problem, name) for name in same},
        )

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Returns what `save` wrote, or None if there is no such file."""
        fields: dict[str, Any] | None = read_json(
            path, otherwise="generate the data in another --data_dir"
        )
        if fields is None:
            return None
        try:
            symbols = tuple(fields["symbols"])
            tags = tuple(fields.get("tags", ()))
            return cls(**fields | {"symbols": symbols, "tags": tags})
        except (TypeError, KeyError):
            raise UserError(
                f"{path} is from another version of this program; "
                "generate the data anew"
            ) from None

    def save(self, path: Path) -> None:
        """Writes it as JSON, atomically."""
        write_json(path, dataclasses.asdict(self))

    def values(self) -> dict[str, Any]:
        """Returns the fields of the recipe by name, without those of a manifest."""
        names = (field.name for field in dataclasses.fields(Recipe))
        return {name: getattr(self, name) for name in names}

    def added_to(self, manifest: "Manifest") -> "Recipe":
        """Returns the recipe of a manifest, with the splits of this one added."""
        both = {**manifest.sources, **self.sources}
        sources = {split: both[split] for split in SPLITS if split in both}
        return Recipe(**manifest.values() | {"sources": sources})

    def digest(self) -> str:
        """Returns a SHA-256 of all fields."""
        return _digest(dataclasses.asdict(self))

    def differences(self, other: "Recipe") -> list[str]:
        """Returns what is different in the other recipe, a phrase for each field."""
        phrases = []
        for name, here in self.values().items():
            there = getattr(other, name)
            if isinstance(here, dict):
                phrases += [
                    f"{name} '{key}' " + _change(here.get(key), there.get(key))
                    for key in sorted(here.keys() | there.keys())
                    if here.get(key) != there.get(key)
                ]
            elif here != there:
                phrases.append(f"{name} was {here!r} and is now {there!r}")
        return phrases


class CorpusRecord(TypedDict):
    """What the manifest has of a corpus.

    Attributes:
        pairs: number of pairs that were read.
        examples: number of examples that were made of them.
        share: its share of the examples that are read for training.
    """

    pairs: int
    examples: int
    share: float


def _digest(fields: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def _change(here: object, there: object) -> str:
    """Returns what happened to an entry, without the checksums themselves."""
    if here is None:
        return "is new"
    return "is gone" if there is None else "has changed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(Recipe):
    """A recipe and its result: `{data_name}.manifest.json`.

    Attributes:
        vocab_files: side ("source" or "target") -> file name; the same if shared.
        vocab_sizes: side -> number of tokens in the vocabulary.
        vocab_sha256: side -> SHA-256 of the file.
        examples: split -> number of examples.
        dropped: split -> reason (see `cleaning.reasons`) -> number of examples; also
            the number of pairs that the source itself left out (its `dropped`).
        tokens: split -> side -> number of tokens in the examples, EOS included.
        corpora: split -> name -> `CorpusRecord`, for splits that are mixtures.
        license: the licence of the data, as in `Problem`.
    """

    vocab_files: dict[str, str]
    vocab_sizes: dict[str, int]
    vocab_sha256: dict[str, str]
    examples: dict[Split, int]
    dropped: dict[Split, dict[str, int]]
    tokens: dict[Split, dict[str, int]]
    corpora: dict[Split, dict[str, CorpusRecord]] = dataclasses.field(
        default_factory=dict
    )
    license: str = ""

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Returns what `save` wrote, or None if there is no such file.

        Raises:
            UserError: the file is damaged, or it names a file in another directory.
        """
        manifest = super().load(path)
        for name in manifest.vocab_files.values() if manifest else ():
            if Path(name).name != name:  # files of that name are read, and copied
                raise UserError(f"{path}: '{name}' is not the name of a file beside it")
        return manifest

    def has(self, splits: Iterable[Split]) -> bool:
        """Whether it has all of some splits."""
        return self.sources.keys() >= set(splits)

    def fingerprints(self, split: Split) -> list[str]:
        """Returns digests of all that the examples of a split depend on.

        The first one is to be stored: it does not change when another split is added.
        Earlier versions stored a digest that included other splits; if the data are
        still the same, it is one of the others.
        """
        others = [other for other in self.sources if other != split]
        return [
            self._fingerprint((split, *more))
            for count in range(len(others) + 1)
            for more in itertools.combinations(others, count)
        ]

    def _fingerprint(self, splits: Sequence[Split]) -> str:
        """Returns a digest of all about some splits, except given vocabularies."""
        fields = dataclasses.asdict(self)
        del fields["given_vocabularies"], fields["license"]
        for name in ("sources", "examples", "dropped", "tokens"):
            fields[name] = {split: fields[name].get(split) for split in splits}
        # Data of earlier versions have neither, and keep their digests.
        corpora = {s: c for s, c in fields.pop("corpora").items() if s in splits}
        tags = fields.pop("tags")
        return _digest(
            fields
            | ({"corpora": corpora} if corpora else {})
            | ({"tags": tags} if tags else {})
        )

    def check_vocabularies(self, data_dir: Path) -> None:
        """Raises `UserError` if a vocabulary is missing or has been changed."""
        for side, name in self.vocab_files.items():
            path = Path(data_dir) / name
            if not path.exists() or sha256(path) != self.vocab_sha256[side]:
                raise UserError(
                    f"{path} is not the vocabulary that the data was made with; bring "
                    "it back or generate the data in another --data_dir"
                )

    @staticmethod
    def path(data_dir: Path, data_name: str) -> Path:
        """Returns the path of the manifest of a data set."""
        return Path(data_dir) / f"{data_name}.manifest.json"

    @classmethod
    def open(cls, data_dir: Path, data_name: str) -> Self:
        """Returns the manifest of a data set; raises `UserError` if there is none."""
        path = cls.path(data_dir, data_name)
        manifest = cls.load(path)
        if manifest is None:
            raise UserError(
                f"there is no {path}: run `t2t datagen` for this problem and "
                "--data_dir (or with `t2t adopt` if tensor2tensor made the data)"
            )
        return manifest


def held(recipe: Recipe, data_dir: Path) -> Manifest | None:
    """Returns the manifest of a directory whose data were made by a recipe.

    The directory may have other splits than the recipe. If the recipe has no training
    examples, its rules for them are ignored.

    Returns:
        None if the directory has no data of the problem.

    Raises:
        UserError: its data were made by another recipe, or have been changed.
    """
    path = Manifest.path(data_dir, recipe.problem)
    manifest = Manifest.load(path)
    if manifest is None:
        shards = data_dir.glob(f"{recipe.problem}-*-?????-of-?????")
        on_its_way = unfinished_dir(data_dir, recipe.problem) / "done" / path.name
        if any(shards) and not on_its_way.exists():
            raise UserError(
                f"{data_dir} has data of '{recipe.problem}' without a manifest, from "
                "another program; give another --data_dir, or `t2t adopt` what "
                "tensor2tensor made"
            )
        return None
    known = manifest.sources
    asked: dict[str, Any] = {
        "given_vocabularies": manifest.given_vocabularies,
        "sources": {split: recipe.sources.get(split, known[split]) for split in known},
    }
    if "train" not in recipe.sources:
        asked = manifest.values() | asked | {"vocab_size": recipe.vocab_size}
    differences = manifest.differences(dataclasses.replace(recipe, **asked))
    if differences:
        raise UserError(
            f"{data_dir} holds data of '{recipe.problem}' made otherwise "
            f"({'; '.join(differences)}); give another --data_dir, or remove the old "
            "data"
        )
    manifest.check_vocabularies(data_dir)
    for split in manifest.examples:
        find_shards(data_dir, recipe.problem, split)
    return manifest
