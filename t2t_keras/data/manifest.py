"""The manifest: what a data directory was made from, and what came of it."""

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any, Self

from t2t_keras.data.files import read_json, sha256, write_json
from t2t_keras.data.records import find_shards, unfinished_dir
from t2t_keras.data.sources import checksum
from t2t_keras.data.vocabulary import vocab_files
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem, Split

SPLITS: tuple[Split, ...] = ("train", "dev", "test")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """All that the bytes of a data directory depend on.

    Attributes:
        problem: the name that its files bear.
        seed: of the vocabulary's sample and of the order of the examples.
        tokenizer: the kind, as in `Problem`.
        vocab_size: as asked for.
        shared_vocab: one vocabulary for both sides.
        symbols: texts that are one piece of the target.
        max_length: longer training pairs are dropped.
        cleaning: the rules by which others are dropped, as in `problem.Cleaning`.
        bpe_dropout: of the training examples, as in `Problem`.
        copies: of each training pair.
        sources: split -> the checksum of its source.
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

    @classmethod
    def of(cls, problem: Problem, data_dir: Path, seed: int) -> Self:
        """Returns the recipe of a problem, sources and a seed."""
        vocabularies = {data_dir / name for name in vocab_files(problem).values()}
        return cls(
            problem=problem.data_name,
            seed=seed,
            tokenizer=problem.tokenizer,
            vocab_size=problem.vocab_size,
            shared_vocab=problem.shared_vocab,
            symbols=tuple(problem.symbols),
            max_length=problem.max_length,
            sources={
                split: checksum(problem.sources[split])
                for split in SPLITS
                if split in problem.sources
            },
            given_vocabularies={
                path.name: sha256(path)
                for path in sorted(vocabularies)
                if path.exists()
            },
            cleaning={
                rule: value
                for rule, value in dataclasses.asdict(problem.cleaning).items()
                if value
            },
            bpe_dropout=problem.bpe_dropout,
            copies=problem.copies,
        )

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Returns what `save` wrote; None where there is no such file."""
        fields: dict[str, Any] | None = read_json(path)
        if fields is None:
            return None
        try:
            return cls(**fields | {"symbols": tuple(fields["symbols"])})
        except (TypeError, KeyError):
            raise UserError(
                f"{path} is from another version of this program; "
                "generate the data anew"
            ) from None

    def save(self, path: Path) -> None:
        """Writes it as JSON, atomically."""
        write_json(path, dataclasses.asdict(self))

    def digest(self, but: tuple[str, ...] = ()) -> str:
        """Returns a SHA-256 that changes with any field, except some."""
        fields = {k: v for k, v in dataclasses.asdict(self).items() if k not in but}
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def differences(self, other: "Recipe", but: tuple[str, ...] = ()) -> list[str]:
        """Says what is different in another recipe, one phrase for each field.

        Args:
            other: the recipe that is asked for.
            but: fields that do not count.
        """
        phrases = []
        for field in dataclasses.fields(Recipe):
            here, there = getattr(self, field.name), getattr(other, field.name)
            if here == there or field.name in but:
                continue
            if isinstance(here, dict):
                phrases += [
                    f"{field.name} '{key}' " + _change(here.get(key), there.get(key))
                    for key in sorted(here.keys() | there.keys())
                    if here.get(key) != there.get(key)
                ]
            else:
                phrases.append(f"{field.name} was {here!r} and is now {there!r}")
        return phrases


def _change(here: Any, there: Any) -> str:
    """Says what happened to an entry; its checksums would tell nobody anything."""
    if here is None:
        return "is new"
    return "is gone" if there is None else "has changed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest(Recipe):
    """A recipe and what came of it: `{data_name}.manifest.json`.

    Attributes:
        vocab_files: "source" and "target" -> file name; the same one when shared.
        vocab_sizes: "source" and "target" -> number of pieces.
        vocab_sha256: "source" and "target" -> SHA-256 of the file.
        examples: split -> number of examples.
        dropped: split -> reason, see `cleaning.reasons` -> number of examples;
            and what the source itself left out (its `dropped`), in pairs.
        tokens: split -> "source" and "target" -> number of tokens, EOS included.
    """

    vocab_files: dict[str, str]
    vocab_sizes: dict[str, int]
    vocab_sha256: dict[str, str]
    examples: dict[Split, int]
    dropped: dict[Split, dict[str, int]]
    tokens: dict[Split, dict[str, int]]

    @property
    def fingerprint(self) -> str:
        """Changes with the examples: a digest of all but where pieces came from."""
        return self.digest(but=("given_vocabularies",))

    @staticmethod
    def path(data_dir: Path, data_name: str) -> Path:
        """Returns where the manifest of a data set stands."""
        return Path(data_dir) / f"{data_name}.manifest.json"

    @classmethod
    def open(cls, data_dir: Path, data_name: str) -> Self:
        """Returns the manifest of a data set.

        Raises:
            UserError: there is none.
        """
        path = cls.path(data_dir, data_name)
        manifest = cls.load(path)
        if manifest is None:
            raise UserError(
                f"there is no {path}: run `t2t datagen` for this problem and "
                "--data_dir (with --adopt if tensor2tensor made the data)"
            )
        return manifest


def complete(recipe: Recipe, data_dir: Path) -> Manifest | None:
    """Returns the manifest if the directory holds all the data of this recipe.

    Raises:
        UserError: it holds those of another recipe, or they have been changed.
    """
    path = Manifest.path(data_dir, recipe.problem)
    manifest = Manifest.load(path)
    if manifest is None:
        shards = data_dir.glob(f"{recipe.problem}-*-?????-of-?????")
        on_its_way = unfinished_dir(data_dir, recipe.problem) / "done" / path.name
        if any(shards) and not on_its_way.exists():
            raise UserError(
                f"{data_dir} has data of '{recipe.problem}' without a manifest, from "
                "another program; give another --data_dir, or --adopt what "
                "tensor2tensor made"
            )
        return None
    differences = manifest.differences(recipe, but=("given_vocabularies",))
    if differences:
        raise UserError(
            f"{data_dir} holds data of '{recipe.problem}' made otherwise "
            f"({'; '.join(differences)}); give another --data_dir, or remove the old "
            "data"
        )
    for side, name in manifest.vocab_files.items():
        path = data_dir / name
        if not path.exists() or sha256(path) != manifest.vocab_sha256[side]:
            raise UserError(
                f"{path} is not the vocabulary that the data was made with; bring it "
                "back or generate the data in another --data_dir"
            )
    for split in manifest.examples:
        find_shards(data_dir, recipe.problem, split)
    return manifest
