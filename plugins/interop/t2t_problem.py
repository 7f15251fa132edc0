"""tensor2tensor's text problems in a `--usr_dir`, with nothing but other imports.

    from tensor2tensor.data_generators import problem
    from tensor2tensor.data_generators import text_problems
    from tensor2tensor.utils import registry

becomes

    from . import t2t_problem as problem
    from . import t2t_problem as text_problems
    from . import t2t_problem as registry
"""

import functools
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from t2t_keras import registry
from t2t_keras.option import UserError
from t2t_keras.problem import Pair, Problem, Split

C = TypeVar("C", bound="type[Text2TextProblem]")

# What `generate_samples` gets as `data_dir` and `tmp_dir`.
TMP_DIR = os.environ.get("T2T_TMP_DIR", "/tmp/t2t_datagen")


class DatasetSplit:
    """The names of splits."""

    TRAIN = "train"
    EVAL = "eval"
    TEST = "test"


class VocabType:
    """The kinds of vocabularies, of which only subwords exist here."""

    CHARACTER = "character"
    SUBWORD = "subwords"
    TOKEN = "tokens"


_SPLITS: dict[str, Split] = {
    DatasetSplit.TRAIN: "train",
    DatasetSplit.EVAL: "dev",
    DatasetSplit.TEST: "test",
}


class Text2TextProblem:
    """A problem as users of tensor2tensor define it: by overriding these members."""

    @property
    def approx_vocab_size(self) -> int:
        """Number of tokens in the vocabulary, approximately."""
        return 2**15

    @property
    def vocab_type(self) -> str:
        """A member of `VocabType`."""
        return VocabType.SUBWORD

    @property
    def is_generate_per_split(self) -> bool:
        """Whether `generate_samples` is called for each split.

        Otherwise it is called for training only, and its samples are dealt out to the
        shards of all splits, one after the other.
        """
        return True

    @property
    def dataset_splits(self) -> list[dict[str, Any]]:
        """The splits, each with its number of shards."""
        return [
            {"split": DatasetSplit.TRAIN, "shards": 100},
            {"split": DatasetSplit.EVAL, "shards": 1},
        ]

    def generate_samples(
        self, data_dir: str, tmp_dir: str, dataset_split: str
    ) -> Iterable[Mapping[str, str]]:
        """Yields samples, each with the texts "inputs" and "targets".

        Args:
            data_dir: a directory for downloads; here the same as `tmp_dir`.
            tmp_dir: `$T2T_TMP_DIR`, or /tmp/t2t_datagen.
            dataset_split: a member of `DatasetSplit`.
        """
        raise NotImplementedError

    def to_problem(self) -> Problem:
        """Returns the problem in our terms.

        Raises:
            UserError: it has another vocabulary than of subwords.
        """
        if self.vocab_type != VocabType.SUBWORD:
            raise UserError(
                f"vocab_type is '{self.vocab_type}', and here a problem of "
                "tensor2tensor has a vocabulary of subwords; leave it out"
            )
        return Problem(
            summary=(type(self).__doc__ or "").partition("\n")[0],
            sources={
                _SPLITS[each["split"]]: functools.partial(self._pairs, each["split"])
                for each in self.dataset_splits
            },
            tokenizer="t2t_subword",
            vocab_size=self.approx_vocab_size,
        )

    def _pairs(self, split: str) -> Iterator[Pair]:
        """Yields the pairs of a split."""
        os.makedirs(TMP_DIR, exist_ok=True)
        per_split = self.is_generate_per_split
        samples: Iterable[Mapping[str, str]] = self.generate_samples(
            TMP_DIR, TMP_DIR, split if per_split else DatasetSplit.TRAIN
        )
        if not per_split:
            shards = [
                each["split"]
                for each in self.dataset_splits
                for _ in range(each["shards"])
            ]
            samples = itertools.compress(
                samples, (shard == split for shard in itertools.cycle(shards))
            )
        for sample in samples:
            yield sample["inputs"], sample["targets"]


def register_problem(cls: C) -> C:
    """Registers a problem of tensor2tensor under its name in snake_case."""
    definition: Callable[[], Problem] = functools.wraps(cls, updated=())(
        lambda: cls().to_problem()
    )
    definition.__name__ = registry.snake_case(cls.__name__)
    registry.register_problem(definition)
    return cls
