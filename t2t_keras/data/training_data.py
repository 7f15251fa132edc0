"""The training examples, and the batch of every step.

`augmentation` changes pairs at random, again each time a pair is read.
"""

import dataclasses
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self, TypeVar

import numpy as np
import tensorflow as tf

from t2t_keras.data.batch_plan import BatchPlan, BucketPlan, StaticShapePlan
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.mixture import repetitions
from t2t_keras.data.packed_plan import PackedPlan
from t2t_keras.data.pipeline import batch_signature, has_links, training_batches
from t2t_keras.data.record_index import RecordIndex, index_path
from t2t_keras.data.tfrecord import example
from t2t_keras.errors import UserError
from t2t_keras.hparam import Bucketing, HParams
from t2t_keras.problem import Problem
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.tokenizer import Tokenizer


def _title(word: str) -> str:
    """Writes the first letter in upper case, the others in lower case: "Don't"."""
    start = next((i for i, character in enumerate(word) if character.isalpha()), 0)
    return word[:start] + word[start:].capitalize()


L = TypeVar("L", int, np.ndarray)

# A text that a vocabulary with normalization changes: spaces, a ligature, a digit.
_PROBE = "  ﬁne  ① "
_CASES = (str.lower, str.upper, _title)


class Augmentation:
    """Changes the pairs of training batches.

    The changes of a pair depend only on the seed, the step and its number in the batch,
    so that resuming or distributing a training does not change them. No text gets more
    tokens than `planned_lengths` has for it: if it would, merges are skipped with half
    or a quarter of the probability, then not at all, and then it gets another case.

    Args:
        hparams: has `word_dropout`, `case_noise` and `bpe_dropout`.
        tokenizers: the tokenizers of source and target.
        index: the index of the examples.
        seed: seed of the changes.
        tags: words before sources, which are not changed.

    Raises:
        UserError: a tokenizer does not suit `bpe_dropout`.
    """

    def __init__(
        self,
        hparams: HParams,
        tokenizers: tuple[Tokenizer, Tokenizer],
        index: RecordIndex,
        seed: int,
        tags: Sequence[str] = (),
    ) -> None:
        self._word_dropout = hparams.word_dropout
        self._case_noise = hparams.case_noise
        self._bpe_dropout = hparams.bpe_dropout
        self._growth = _growth(hparams)
        self._tokenizers = tokenizers
        self._seed = seed
        self._features = index.features
        self._tags = frozenset(tags)
        if self._bpe_dropout:
            self._require_merges(index)

    def _require_merges(self, index: RecordIndex) -> None:
        """Raises UserError unless the vocabularies have merges that can be skipped."""
        lists = self._lists(index.read([0])[0])
        for tokenizer, name in zip(self._tokenizers, self._features, strict=True):
            if not isinstance(tokenizer, SentencePieceTokenizer):
                raise UserError(
                    "hparams: bpe_dropout needs vocabularies of the kind "
                    "'sentencepiece'"
                )
            for probe in (_PROBE, tokenizer.decode(lists[name])):
                if tokenizer.sample(probe, 0.0, 0) != tokenizer.encode(probe):
                    raise UserError(
                        "hparams: bpe_dropout needs a vocabulary as `t2t datagen` "
                        "trains it, of byte-pair encoding and without normalization; "
                        "set bpe_dropout to 0, or make data with another vocabulary"
                    )

    def __call__(self, payload: bytes, step: int, pair_id: int) -> bytes:
        """Returns an example of a batch, changed."""
        rng = random.Random(f"{self._seed} {step} {pair_id}")
        lists = self._lists(payload)
        for side, name in enumerate(self._features):
            lists[name] = self._changed(lists[name], side, rng)
        return example(lists["inputs"], lists["targets"])

    def _lists(self, payload: bytes) -> dict[str, list[int]]:
        """Returns the ids in an example by feature."""
        features = tf.train.Example.FromString(payload).features.feature
        return {name: list(features[name].int64_list.value) for name in self._features}

    def _changed(self, ids: list[int], side: int, rng: random.Random) -> list[int]:
        """Returns the ids of a text after the changes.

        Args:
            ids: ids of the text, EOS last.
            side: 0 for the source; 1 for the target, whose words do not change.
            rng: the random number generator.
        """
        tokenizer = self._tokenizers[side]
        max_length = _max_length(len(ids), self._growth[side])
        text = tokenizer.decode(ids)
        seed = rng.getrandbits(63)
        for variant in self._variants(text, rng) if side == 0 else [text]:
            for dropout in (
                self._bpe_dropout,
                self._bpe_dropout / 2,
                self._bpe_dropout / 4,
                0.0,
            ):
                if dropout:
                    assert isinstance(tokenizer, SentencePieceTokenizer)
                    new = tokenizer.sample(variant, dropout, seed)
                else:
                    new = ids if variant == text else tokenizer.encode(variant)
                if len(new) <= max_length:
                    return new
        return ids

    def _variants(self, text: str, rng: random.Random) -> list[str]:
        """Returns changed sources in the order of preference."""
        words = text.split(" ")
        remaining = []
        for word in words:
            if word in self._tags or rng.random() >= self._word_dropout:
                remaining.append(word)
        if self._tags.issuperset(filter(None, remaining)):  # no word would be left
            remaining = words
        cases: list[Callable[[str], str]] = [str]
        if rng.random() < self._case_noise:
            cases = [*rng.sample(_CASES, len(_CASES)), str]
        variants = []
        for case in cases:
            changed = [w if w in self._tags else case(w) for w in remaining]
            variants.append(" ".join(changed))
        return variants


def planned_lengths(
    index: RecordIndex, hparams: HParams
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the largest lengths of sources and targets, int32 [N], for a `BatchPlan`.

    They exceed the lengths of the pairs by a quarter with `bpe_dropout`, by a half
    with `case_noise`.
    """
    source_growth, target_growth = _growth(hparams)
    source_length = _max_length(index.source_length, source_growth)
    return source_length, _max_length(index.target_length, target_growth)


def _growth(hparams: HParams) -> tuple[int, int]:
    """Returns how many quarters more tokens sources, and targets, may get."""
    target_growth = 1 if hparams.bpe_dropout else 0
    return 2 if hparams.case_noise else target_growth, target_growth


def _max_length(length: L, quarters: int) -> L:
    """Returns the largest number of tokens that a text of some tokens may get."""
    return length + length * quarters // 4


def batch_plan(
    bucketing: Bucketing,
    source_length: np.ndarray,
    target_length: np.ndarray,
    batch_tokens: int,
    seed: int,
    swapped: bool = False,
) -> BatchPlan:
    """Returns the plan that a value of `HParams.bucketing` asks for.

    Args:
        bucketing: see `HParams`; "auto", which `train` replaces, has exact lengths.
        source_length: see `BatchPlan`, as are the others.
        target_length: int [N]
        batch_tokens: the budget.
        seed: seed of the order.
        swapped: whether the sides are swapped.
    """
    plans = {
        "auto": BatchPlan,  # of a training loop written by the user
        "exact": BatchPlan,
        "t2t": BucketPlan,
        "static": StaticShapePlan,
        "packed": PackedPlan,
    }
    cls = plans[bucketing]
    return cls(source_length, target_length, batch_tokens, seed, swapped)


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """The train split, and the batch of every step.

    Attributes:
        index: the index of the records.
        plan: the plan of the batches.
        largest_shape: (rows, S, T) of the batch that takes the most memory.
        aligned: whether a batch has a word alignment besides source and target.
        augmentation: changes the examples of a batch; None: they stay as they are.
    """

    index: RecordIndex
    plan: BatchPlan
    largest_shape: tuple[int, int, int]
    aligned: bool = False
    augmentation: Augmentation | None = None

    @classmethod
    def open(
        cls,
        problem: Problem,
        data_dir: str | Path,
        hparams: HParams,
        tokenizers: tuple[Tokenizer, Tokenizer],
        seed: int,
    ) -> Self:
        """Opens the data and plans the batches.

        Args:
            problem: the problem.
            data_dir: the data directory.
            hparams: the hyper-parameters of the training.
            tokenizers: the tokenizers of source and target.
            seed: the seed of the order of the batches and of the changes.

        Raises:
            UserError: there are no such data, `batch_tokens` is less than the longest
                example, or the data have no word alignments and
                `guided_alignment` needs them.
        """
        index = training_index(Path(data_dir), problem)
        aligned = hparams.guided_alignment > 0
        if aligned and not has_links(index):
            raise UserError(
                "hparams: guided_alignment needs word alignments, and the train data "
                f"of '{problem.data_name}' in {data_dir} have none; generate data "
                'with `t2t datagen --mixture FILE`, where FILE has alignment = "PATH", '
                "or set it to 0"
            )
        lengths = planned_lengths(index, hparams)
        plan = batch_plan(
            hparams.bucketing, *lengths, hparams.batch_tokens, seed, index.swapped
        )
        augmentation = None
        if hparams.changes_pairs:
            augmentation = Augmentation(hparams, tokenizers, index, seed, problem.tags)

        def num_activations(shape: tuple[int, int, int]) -> int:
            """Returns about how many activations the backward pass needs."""
            rows, source, target = shape
            d = hparams.d_model
            f = hparams.d_ff
            heads = hparams.num_heads
            encoder = source * (10 * d + f + heads * source)
            decoder = target * (15 * d + f + heads * (source + target))
            layers = hparams.num_layers * encoder + hparams.decoder_layers * decoder
            return rows * (layers + 2 * target * tokenizers[1].vocab_size)

        return cls(
            index, plan, plan.largest_shape(num_activations), aligned, augmentation
        )

    @property
    def signature(self) -> dict[str, tf.TensorSpec]:
        """The type of a batch."""
        return batch_signature(self.aligned, self.plan.packs_rows)

    def batches(
        self, steps: range, num_replicas: int, micro_batches: int, local_replicas: range
    ) -> tf.data.Dataset:
        """Returns the batches of some steps, see `training_batches`."""
        return training_batches(
            self.index,
            self.plan,
            steps,
            num_replicas,
            micro_batches=micro_batches,
            local_replicas=local_replicas,
            aligned=self.aligned,
            augment=self.augmentation,
        )


def training_index(data_dir: Path, problem: Problem) -> RecordIndex:
    """Opens the training examples, in a mixture as often as its shares demand.

    Raises:
        UserError: the data are absent, incomplete or damaged.
    """
    name = problem.data_name
    manifest = Manifest.open(data_dir, name)
    index = manifest.open_index(data_dir, "train", problem.reverse)
    corpora = manifest.corpora.get("train")
    if not corpora:
        return index
    if index.corpus is None:
        raise UserError(
            f"{index_path(data_dir, name, 'train')} does not belong to the data; copy "
            "the directory again, or generate the data again"
        )
    shares = [record["share"] for record in corpora.values()]
    counts = repetitions(index.corpus, shares)
    return index if (counts == 1).all() else index.repeated(counts)
