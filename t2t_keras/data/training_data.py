"""The training examples, and the batch of every step."""

import dataclasses
from pathlib import Path
from typing import Self

import tensorflow as tf

from t2t_keras.data.augmentation import Augmentation, planned_lengths
from t2t_keras.data.batch_plan import BatchPlan
from t2t_keras.data.bucketing import batch_plan
from t2t_keras.data.guided_alignment import has_links
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.mixture import repetitions
from t2t_keras.data.pipeline import batch_signature, training_batches
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.data.split_files import index_path
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizer import Tokenizer


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
