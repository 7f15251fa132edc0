"""The same model trained by Keras's `fit`, as a baseline."""

from typing import Any

import keras
import tensorflow as tf
from keras import ops
from workload import Workload

from t2t_keras.model.transformer import Transformer


class PlainModel(keras.Model):
    """A Transformer that `fit` can call: on (source, target), with its own seed."""

    def __init__(self, work: Workload) -> None:
        super().__init__()
        self.transformer = Transformer(work.hparams, work.vocab_size)
        self.seeds = keras.random.SeedGenerator(0)

    def call(self, pair: tuple[Any, Any], training: bool = False) -> Any:
        """Returns logits [B, T, V]."""
        seed = self.seeds.next() if training else None
        return self.transformer(*pair, seed=seed)


class FitWork:
    """Some steps of `fit` at a time.

    Args:
        work: the model and its batches.
        xla: compile the step by XLA, which compiles again for every shape of batch.
    """

    def __init__(self, work: Workload, xla: bool) -> None:
        hparams = work.hparams

        def loss(target: Any, logits: Any) -> Any:
            return keras.losses.categorical_crossentropy(
                ops.one_hot(target, work.vocab_size),
                logits,
                from_logits=True,
                label_smoothing=hparams.label_smoothing,
            )

        self._model = PlainModel(work)
        self._model.compile(
            keras.optimizers.Adam(
                1e-4, hparams.adam_beta1, hparams.adam_beta2, hparams.adam_epsilon
            ),
            loss,
            jit_compile=xla,
        )
        source, target = work.ids(0), work.ids(1)
        self._batches = tf.data.Dataset.from_tensors(
            ((source, target), target)
        ).repeat()

    def run(self, steps: int) -> None:
        """Trains for so many steps."""
        self._model.fit(self._batches, steps_per_epoch=steps, verbose=0)
