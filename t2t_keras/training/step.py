"""One step of training on all replicas: forward, backward, reduce, update."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.model.transformer import Transformer
from t2t_keras.training.loss import count_tokens, summed_cross_entropy
from t2t_keras.training.optimizer import Adam
from t2t_keras.training.strategy import batch_spec


class StepResult(NamedTuple):
    """What a step reports; sums are over all replicas."""

    loss_sum: tf.Tensor  # of label-smoothed cross-entropy
    source_tokens: tf.Tensor
    target_tokens: tf.Tensor
    slots: tf.Tensor  # positions of both sides, padding included
    gradient_norm: tf.Tensor  # of the mean gradient, before clipping


def loss_sum(
    model: Transformer,
    source: tf.Tensor,
    target: tf.Tensor,
    seed: tf.Tensor | None,
) -> tf.Tensor:
    """Returns the loss of source [B, S], target [B, T], summed over target tokens."""
    logits = model(source, target, seed=seed)
    return summed_cross_entropy(logits, target, model.hparams.label_smoothing)


class TrainStep:
    """The update of a model's weights by one batch.

    Loss and token counts are summed over the replicas, and only then divided: a mean
    for each replica, averaged afterwards, would weigh the tokens of short sentences
    more, and would depend on the number of replicas.

    Create it in the scope of the strategy.
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: Adam,
        strategy: tf.distribute.Strategy,
        seed: int,
    ) -> None:
        self._model = model
        self._weights = [weight.value for weight in model.trainable_variables]
        self._optimizer = optimizer
        self._strategy = strategy
        self._seed = seed
        self._clip_norm = model.hparams.clip_norm
        batch, step = batch_spec(strategy), tf.TensorSpec([], tf.int64)
        rate = tf.TensorSpec([], tf.float32)
        self.update = tf.function(self._update, input_signature=[batch, step, rate])
        self.discard = tf.function(self._discard, input_signature=[batch, step])

    def gradients(
        self, source: tf.Tensor, target: tf.Tensor, step: tf.Tensor
    ) -> tuple[list[tf.Tensor], StepResult]:
        """Returns the mean gradient over the tokens of all replicas.

        Runs in replica context, on this replica's rows.

        Args:
            source: int32 [B, S]
            target: int32 [B, T]
            step: int64 scalar, which dropout depends on.
        """
        replica = tf.distribute.get_replica_context()
        with tf.GradientTape() as tape:
            loss = loss_sum(self._model, source, target, self._dropout_seed(step))
        # Dense: ids looked up on another replica are other rows of an embedding.
        gradients = [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(loss, self._weights)
        ]
        slots = tf.cast(tf.size(source) + tf.size(target), tf.float32)
        counts = [loss, count_tokens(source), count_tokens(target), slots]
        reduced = replica.all_reduce(tf.distribute.ReduceOp.SUM, [*gradients, *counts])
        gradients, (loss, source_tokens, target_tokens, slots) = (
            reduced[: len(gradients)],
            reduced[len(gradients) :],
        )
        gradients = [gradient / target_tokens for gradient in gradients]
        norm = tf.linalg.global_norm(gradients)
        result = StepResult(loss, source_tokens, target_tokens, slots, norm)
        return gradients, result

    def _update(
        self,
        batch: tuple[tf.Tensor, tf.Tensor],
        step: tf.Tensor,
        learning_rate: tf.Tensor,
    ) -> StepResult:
        """Runs one step on a distributed batch; steps count from 0."""

        def on_replica(source: tf.Tensor, target: tf.Tensor) -> StepResult:
            gradients, result = self.gradients(source, target, step)
            if self._clip_norm:
                gradients, _ = tf.clip_by_global_norm(
                    gradients, self._clip_norm, use_norm=result.gradient_norm
                )
            count = tf.cast(step + 1, tf.float32)
            self._optimizer.apply(gradients, learning_rate, count)
            return result

        return self._on_replicas(on_replica, batch)

    def _discard(
        self, batch: tuple[tf.Tensor, tf.Tensor], step: tf.Tensor
    ) -> StepResult:
        """Computes the gradients of a distributed batch and leaves the weights."""
        return self._on_replicas(
            lambda source, target: self.gradients(source, target, step)[1], batch
        )

    def _on_replicas(self, function, batch) -> StepResult:
        """Runs a function on every replica; all return the same sums."""
        results = self._strategy.run(function, args=batch)
        local = self._strategy.experimental_local_results
        return StepResult(*(local(value)[0] for value in results))

    def _dropout_seed(self, step: tf.Tensor) -> tf.Tensor:
        """Returns a seed of its own for every step and replica, int32 [2]."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        seed = tf.constant([self._seed, 0], tf.int32)
        fold_in = tf.random.experimental.stateless_fold_in
        return fold_in(fold_in(seed, tf.cast(step, tf.int32)), replica)
