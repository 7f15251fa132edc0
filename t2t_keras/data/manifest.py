"""The manifest: what a data directory was made from, and what it contains."""

import dataclasses
import glob
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self, TypedDict

from t2t_keras.data.checksums import sha256
from t2t_keras.data.data_config import DataConfig, differences
from t2t_keras.data.json_files import digest, read_json
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.data.schema import TWO, FileName, from_fields
from t2t_keras.data.sides import SIDES
from t2t_keras.data.split_files import find_shards, unfinished_dir
from t2t_keras.errors import UserError
from t2t_keras.problem import Split
from t2t_keras.quantity import quantity
from t2t_keras.type_hints import Count, Limits, Rule

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
    share: Annotated[float, Limits(gt=0)]


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
        text_sha256: split -> SHA-256 of the raw sources and of the raw targets. Data of
            earlier versions have none.
        single_sentences: split -> side -> share of the examples whose text on that side
            is one sentence, by the rules of `text.sentence_ends`. Data of earlier
            versions, and data without texts, have none.
        index_sha256: split -> `RecordIndex.sha256`. Data of earlier versions have none.
        languages: the language codes of source and target; None: unknown.
        license: the licence of the data, as in `Problem`.
        bpe_dropout: not 0 in data that an earlier version wrote with BPE-dropout.
        copies: number of copies of each training pair in such data.
    """

    vocab_files: Annotated[dict[str, FileName], _ON_BOTH_SIDES]
    vocab_sizes: Annotated[dict[str, Count], _ON_BOTH_SIDES]
    vocab_sha256: Annotated[dict[str, str], _ON_BOTH_SIDES]
    examples: dict[Split, Count]
    dropped: dict[Split, dict[str, Count]]
    tokens: dict[Split, Annotated[dict[str, Count], _ON_BOTH_SIDES]]
    corpora: dict[Split, dict[str, CorpusRecord]] = dataclasses.field(
        default_factory=dict
    )
    text_sha256: dict[Split, Annotated[list[str], TWO]] = dataclasses.field(
        default_factory=dict
    )
    single_sentences: dict[Split, dict[str, float]] = dataclasses.field(
        default_factory=dict
    )
    index_sha256: dict[Split, str] = dataclasses.field(default_factory=dict)
    languages: tuple[str, str] | None = None
    license: str = ""
    bpe_dropout: float = 0.0
    copies: int = 1

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
        for name in ("examples", "dropped", "tokens"):
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
                f"there is no {path}: run `t2t datagen` for this problem and "
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
        data_dir = Path(data_dir)
        digest = self.index_sha256.get(split)
        index = RecordIndex.open(data_dir, self.problem, split, swap, digest)
        expected = self.examples.get(split)
        if expected not in (None, len(index)):
            raise UserError(
                f"{data_dir} has {quantity(len(index), f'{split} examples')} of "
                f"'{self.problem}', and {self.path(data_dir, self.problem).name} says "
                f"{expected:,}; copy the directory again, or generate the data in "
                "another --data_dir"
            )
        return index

    def fingerprints(self, split: Split) -> list[str]:
        """Returns digests of all that the examples of a split depend on.

        Store the first one: it does not change when another split is added. Earlier
        versions stored a digest that included other splits; if the data are still the
        same, it is among the rest.
        """
        other_splits = [name for name in self.sources if name != split]
        fingerprints = []
        for count in range(len(other_splits) + 1):
            for added in itertools.combinations(other_splits, count):
                fingerprints.append(self._fingerprint((split, *added)))
        return fingerprints

    def _fingerprint(self, splits: Sequence[Split]) -> str:
        """Returns a digest of all that the examples of some splits depend on."""
        fields = dataclasses.asdict(self)
        for name in ("given_vocabularies", "license", "languages"):
            del fields[name]
        for name in ("text_sha256", "index_sha256"):
            del fields[name]
        del fields["single_sentences"]  # they follow from the texts
        for name in ("sources", "examples", "dropped", "tokens"):
            fields[name] = {split: fields[name].get(split) for split in splits}
        # Data of earlier versions have neither field, and keep their digests.
        corpora = {s: c for s, c in fields.pop("corpora").items() if s in splits}
        tags = fields.pop("tags")
        return digest(
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
    old_sources = manifest.sources
    fields = vars(config) | {
        "given_vocabularies": manifest.given_vocabularies,
        "sources": {
            split: config.sources.get(split, old_sources[split])
            for split in old_sources
        },
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
