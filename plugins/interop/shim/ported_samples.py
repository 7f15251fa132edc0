"""The samples of a user's problem, as pairs of texts."""

import contextlib
import dataclasses
import itertools
import json
import os
import random
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.problem import Pair, Split
from t2t_keras.usr_dir import definition_location, error_in_file

from . import say_once
from .encoders import EOS_ID, EncodedText, TextEncoder
from .ported_members import SPLITS, is_overridden, num_shards
from .problems import DatasetSplit, Text2TextProblem

# This is the default of --random_seed in tensor2tensor's t2t-datagen.
_SEED = 429459

_DATASET_SPLITS = {split: dataset_split for dataset_split, split in SPLITS.items()}


class Samples:
    """The samples of a problem as pairs, generated once and stored in temporary files.

    So a split has the same pairs in each reading, even if `generate_samples` is random.

    Args:
        original: the user's problem.
        data_dir: the argument `data_dir` of its methods.
        tmp_dir: the argument `tmp_dir` of its methods; the files are there too.

    Attributes:
        encoders: the encoders whose ids were samples, by "inputs" and "targets".
    """

    def __init__(self, original: Text2TextProblem, data_dir: str, tmp_dir: str) -> None:
        self._original = original
        self._data_dir = data_dir
        self._tmp_dir = tmp_dir
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._generated: set[Split] = set()
        self._sample_number = 0
        self.encoders: dict[str, TextEncoder] = {}

    def pairs(self, split: Split) -> Iterator[Pair]:
        """Yields the pairs of a split.

        Raises:
            UserError: a sample does not have texts, or the user's code has an error.
        """
        self.generate(split)
        with self._path(split).open(encoding="utf-8") as file:
            for line in file:
                source, target = json.loads(line)
                yield source, target

    def generate(self, split: Split) -> None:
        """Generates the samples of a split, unless they exist."""
        if split in self._generated:
            return
        os.makedirs(self._tmp_dir, exist_ok=True)
        name = self._original.name
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(
                prefix=f"{name}-samples-", dir=self._tmp_dir
            )
        try:
            with seeded():
                self._write(split)
        except UserError as error:
            raise UserError(f"problem '{name}': {error}") from error
        except Exception as error:
            location = definition_location(type(self._original))
            message = error_in_file(error, location, name)
            raise UserError(
                f"{message} (data_dir is {self._data_dir}, tmp_dir is {self._tmp_dir})"
            ) from error

    def _path(self, split: Split) -> Path:
        assert self._directory is not None
        return Path(self._directory.name) / f"{split}.jsonl"

    def _write(self, split: Split) -> None:
        """Writes the pairs of a split, or those of all splits if they share samples."""
        shards = num_shards(self._original)
        if self._original.is_generate_per_split:
            shards = {split: 1}
        generated_split = split if len(shards) == 1 else "train"
        # tensor2tensor deals the samples to the shards of all splits in this order.
        shard_splits: list[Split] = []
        for shard_split, count in shards.items():
            shard_splits += [shard_split] * count
        with contextlib.ExitStack() as stack:
            files = {}
            for shard_split in shards:
                file = self._path(shard_split).open("w", encoding="utf-8")
                files[shard_split] = stack.enter_context(file)
            samples = self._generate_samples(_DATASET_SPLITS[generated_split])
            pairs = self._convert(samples)
            for shard_split, pair in zip(
                itertools.cycle(shard_splits), pairs, strict=False
            ):
                files[shard_split].write(f"{json.dumps(pair)}\n")
        self._generated.update(shards)

    def _generate_samples(self, split: str) -> Iterable[Mapping[str, Any] | None]:
        """Returns the samples that the user's method yields."""
        original: Any = self._original
        if is_overridden(original, "generate_encoded_samples"):
            return original.generate_encoded_samples(
                self._data_dir, self._tmp_dir, split
            )
        if is_overridden(original, "generator"):
            # Problems had this method until tensor2tensor 1.3.
            is_training = split == DatasetSplit.TRAIN
            return original.generator(self._data_dir, self._tmp_dir, is_training)
        return original.generate_samples(self._data_dir, self._tmp_dir, split)

    def _convert(self, samples: Iterable[Mapping[str, Any] | None]) -> Iterator[Pair]:
        """Yields the samples as pairs."""
        if samples is None or isinstance(samples, str | Mapping):
            raise UserError(
                f"generate_samples must yield samples, not return {samples!r:.40}"
            )
        original = self._original
        for sample_number, sample in enumerate(samples, 1):
            self._sample_number = sample_number
            if sample is None:
                # tensor2tensor also ignores it.
                continue
            if not isinstance(sample, Mapping):
                raise UserError(
                    f"sample {sample_number} must have 'inputs' and 'targets', but is "
                    f"{sample!r:.80}"
                )
            for key in sample.keys() - {"inputs", "targets"}:
                say_once(
                    f"problem '{original.name}': '{key}' of its samples has no effect"
                )
            source = self._text(sample, "inputs", original.inputs_prefix)
            target = self._text(sample, "targets", original.targets_prefix)
            yield source, target

    def _text(self, sample: Mapping[str, Any], key: str, prefix: str) -> str:
        """Returns a text of a sample.

        Raises:
            UserError: the sample does not have it.
        """
        location = f"sample {self._sample_number}"
        if key not in sample:
            raise UserError(
                f"{location} has no '{key}', only {', '.join(map(repr, sample))}; here "
                "a problem has a source text and a target text"
            )
        value = sample[key]
        if isinstance(value, bytes):
            value = value.decode()
        if isinstance(value, str):
            return prefix + value
        if isinstance(value, list | tuple | np.ndarray):
            return self._decode(list(value), value, key)
        raise UserError(f"{location}: '{key}' must be a text, not {value!r:.80}")

    def _decode(self, ids: list[int], value: object, key: str) -> str:
        """Returns the text of ids.

        Raises:
            UserError: they are not the ids of a text.
        """
        location = f"sample {self._sample_number}: '{key}'"
        if not all(isinstance(i, int | np.integer) for i in ids):
            raise UserError(f"{location} must be a text, not {value!r:.80}")
        if ids[-1:] == [EOS_ID]:
            ids = ids[:-1]
        if isinstance(value, EncodedText) and value.encoder.encode(value.text) == ids:
            self.encoders.setdefault(key, value.encoder)
            return value.text
        if key not in self.encoders:
            encoders = self._original.get_feature_encoders(self._data_dir)
            self.encoders[key] = encoders[key]
        text = self.encoders[key].decode(ids)
        if not isinstance(text, str) or list(self.encoders[key].encode(text)) != ids:
            raise UserError(
                f"{location} has ids that are not those of a text; yield texts in "
                "generate_samples instead"
            )
        return text


@contextlib.contextmanager
def seeded() -> Iterator[None]:
    """Seeds random numbers as tensor2tensor does, and restores their state."""
    state = random.getstate()
    numpy_state = np.random.get_state()
    random.seed(_SEED)
    np.random.seed(_SEED)
    try:
        yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


@dataclasses.dataclass(frozen=True)
class SplitSource:
    """The source of a split.

    Attributes:
        samples: the samples of all splits.
        split: the split.
    """

    samples: Samples
    split: Split

    def __call__(self) -> Iterator[Pair]:
        """Yields the pairs; see `Samples.pairs`."""
        return self.samples.pairs(self.split)
