"""All that the bytes of a data directory depend on."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from t2t_keras.data.checksums import sha256
from t2t_keras.data.schema import FileName
from t2t_keras.data.sides import SPLITS
from t2t_keras.data.sources import checksum
from t2t_keras.data.vocabulary_files import vocab_files
from t2t_keras.problem import Problem, Split


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
        max_length: most tokens of a side of a training pair.
        cleaning: the rules by which training pairs are dropped, see `problem.Cleaning`.
        sources: split -> checksum of its source.
        given_vocabularies: vocabulary files that were there before: name -> SHA-256.
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

    @classmethod
    def of(cls, problem: Problem, data_dir: Path, seed: int) -> Self:
        """Returns the config for the data of a problem and a seed."""
        assert problem.vocab_size is not None  # datagen has chosen one
        names = set(vocab_files(problem).values())
        cleaning = dataclasses.asdict(problem.cleaning)
        return cls(
            problem=problem.data_name,
            seed=seed,
            tokenizer=problem.tokenizer,
            vocab_size=problem.vocab_size,
            shared_vocab=problem.shared_vocab,
            symbols=tuple(problem.text_processor.symbols),
            tags=problem.tags,
            max_length=problem.max_length,
            cleaning={rule: value for rule, value in cleaning.items() if value},
            sources={
                s: checksum(problem.sources[s]) for s in SPLITS if s in problem.sources
            },
            given_vocabularies={
                name: sha256(data_dir / name)
                for name in sorted(names)
                if (data_dir / name).exists()
            },
        )

    def added_to(self, manifest: "DataConfig") -> "DataConfig":
        """Returns the config of a manifest, with the splits of this one added."""
        both = {**manifest.sources, **self.sources}
        fields = {name: getattr(manifest, name) for name in vars(self)}
        sources = {split: both[split] for split in SPLITS if split in both}
        return DataConfig(**fields | {"sources": sources})


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Returns the differences in the fields of a `DataConfig`, in phrases."""
    phrases = []
    for name, value in now.items():
        old = before[name]
        if not isinstance(value, dict):
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
