"""Gradients of one step on some replicas, held against each other."""

import numpy as np
import tensorflow as tf

from t2t_keras.data.pipeline import rows_per_replica
from t2t_keras.hparam import HParams
from t2t_keras.model.loss import summed_cross_entropies
from t2t_keras.model.transformer import Transformer
from t2t_keras.run.checkpoint import model_variables
from t2t_keras.training.optimizer import make_optimizer
from t2t_keras.training.step import TrainStep
from t2t_keras.training.strategy import distribute, make_strategy

HPARAMS = HParams(
    num_layers=1, d_model=16, d_ff=32, num_heads=2, dropout=0.0, label_smoothing=0.1
)
VOCAB = 23


class PlainSgd:
    """w -= rate * gradient, on each replica's copy."""

    def __init__(self, weights):
        self.weights = weights

    def apply(self, gradients, learning_rate, step, is_applied):
        del step
        learning_rate = tf.where(is_applied, learning_rate, 0.0)
        for weight, gradient in zip(self.weights, gradients, strict=True):
            tf.raw_ops.ResourceApplyGradientDescent(
                var=weight.handle, alpha=learning_rate, delta=gradient
            )


class Setup:
    """A model on some replicas; all setups start from the same weights."""

    def __init__(
        self,
        replicas: int,
        hparams: HParams = HPARAMS,
        micro_batches: int = 1,
        has_adam: bool = False,
    ) -> None:
        self.strategy = make_strategy(simulate_devices=replicas)
        self.parts = (replicas, micro_batches)
        with self.strategy.scope():
            self.model = Transformer(hparams, VOCAB)
            rng = np.random.default_rng(0)
            for weight in self.model.trainable_variables:
                noise = rng.normal(scale=0.2, size=weight.shape)
                weight.assign(noise + weight.path.endswith("gamma"))
            self.weights = model_variables(self.model)
            self.optimizer = PlainSgd(list(self.weights.values()))
            if has_adam:
                self.optimizer = make_optimizer(self.weights, hparams)
            self.step = TrainStep(
                self.model, self.optimizer, self.strategy, 5, micro_batches
            )

    def batches(self, *batches: tuple[np.ndarray, ...]):
        """Distributes source, target and perhaps alignment, all of the same shape."""
        names = ("source", "target", "alignment")
        parts = {}
        for name, arrays in zip(names, zip(*batches, strict=True), strict=False):
            parts[name] = tf.concat([self._per_replica(a) for a in arrays], axis=0)
        return distribute(self.strategy, tf.data.Dataset.from_tensor_slices(parts))

    def _per_replica(self, array: np.ndarray) -> tf.Tensor:
        """The rows of each replica, int32 ids or a float32 alignment."""
        dtype = tf.float32 if array.ndim == 3 else tf.int32
        flat = tf.constant(array.reshape(len(array), -1), dtype)
        rows = rows_per_replica(flat, *self.parts)
        return tf.reshape(rows, [*rows.shape[:2], *array.shape[1:]])

    def batch(self, *arrays: np.ndarray):
        (batch,) = self.batches(arrays)
        return batch

    def gradients(self, *arrays: np.ndarray) -> dict[str, np.ndarray]:
        return self.gradients_of(self.batch(*arrays))

    def gradients_of(self, batch) -> dict[str, np.ndarray]:
        """The mean gradients of a distributed batch, by the names of the weights."""
        return self.gradients_and_counts(batch)[0]

    def gradients_and_counts(self, batch) -> tuple[dict[str, np.ndarray], list[float]]:
        """The same, and the numbers of source tokens, target tokens and positions."""
        step = self.step

        def on_replica(parts):
            sums = step.all_reduce(step.accumulate(parts, tf.constant(0, tf.int64)))
            counts = sums.source_tokens, sums.target_tokens, sums.positions
            return step.mean_gradients(sums)[0], counts

        run = tf.function(
            lambda parts: self.strategy.run(on_replica, args=(parts,)), autograph=False
        )
        local = self.strategy.experimental_local_results
        gradients, counts = tf.nest.map_structure(
            lambda value: local(value)[0].numpy(), run(batch)
        )
        named = dict(zip(self.weights, gradients, strict=True))
        return named, [float(count) for count in counts]


def summed_loss(model: Transformer, source, target) -> tf.Tensor:
    """The label-smoothed loss, summed over the target tokens."""
    logits = model(source, target)
    return summed_cross_entropies(logits, target, model.hparams.label_smoothing)[0]


def unequal_batch(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """13 pairs, some of one token and some of twelve; 13 is odd."""
    rng = np.random.default_rng(seed)

    def side():
        lengths = rng.integers(1, 13, 13)
        ids = rng.integers(3, VOCAB, (13, 12))
        return np.where(np.arange(12) < lengths[:, None], ids, 0)

    return side(), side()


def assert_close(actual, expected, relative):
    for name, value in expected.items():
        scale = np.abs(value).max()
        assert np.abs(actual[name] - value).max() <= relative * scale, name
