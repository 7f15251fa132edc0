"""What the bytes of a data directory depend on."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

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
        max_length: largest number of tokens on a side of a training pair.
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

    def added_to(self, earlier: "DataConfig") -> "DataConfig":
        """Returns the config of earlier data, with the splits of this one added."""
        fields = {name: getattr(earlier, name) for name in vars(self)}
        merged = {**earlier.sources, **self.sources}
        sources = {split: merged[split] for split in SPLITS if split in merged}
        return DataConfig(**fields | {"sources": sources})


def data_config(problem: Problem, data_dir: Path, seed: int) -> DataConfig:
    """Returns the config for the data of a problem, whose `vocab_size` is set.

    Args:
        problem: the problem.
        data_dir: the data directory, which may have vocabularies.
        seed: see `DataConfig`.
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
