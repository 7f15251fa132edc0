"""One step of training on all replicas: forward, backward, reduce, update."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.model.transformer import Transformer
from t2t_keras.training.loss import count_tokens, summed_cross_entropies
from t2t_keras.training.loss_scale import LossScale
from t2t_keras.training.optimizer import Adam
from t2t_keras.training.strategy import batch_spec


class StepResult(NamedTuple):
    """What a step reports; sums are over all replicas and micro-batches."""

    loss_sum: tf.Tensor  # of label-smoothed cross-entropy
    nll_sum: tf.Tensor  # negative log-likelihood: the same without label smoothing
    source_tokens: tf.Tensor
    target_tokens: tf.Tensor
    positions: tf.Tensor  # of both sides, padding included
    gradient_norm: tf.Tensor  # of the mean gradient, before clipping; 0 if skipped
    skipped: tf.Tensor  # 1 if float16 overflowed and the update was left out, else 0


class _Sums(NamedTuple):
    """What is added up over micro-batches and replicas."""

    gradients: list[tf.Tensor]  # of the summed loss, times the loss scale
    loss: tf.Tensor
    source_tokens: tf.Tensor
    target_tokens: tf.Tensor
    positions: tf.Tensor
    nll: tf.Tensor


def loss_sums(
    model: Transformer,
    source: tf.Tensor,
    target: tf.Tensor,
    seed: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns what `summed_cross_entropies` does for source [B, S], target [B, T]."""
    logits = model(source, target, seed=seed)
    return summed_cross_entropies(logits, target, model.hparams.label_smoothing)


class TrainStep:
    """The update of a model's weights by one batch.

    Gradients, loss and token counts are summed over micro-batches and replicas, and
    only then divided: a mean for each part, averaged afterwards, would weigh the tokens
    of short sentences more. So eight replicas, one with eight micro-batches and one big
    batch are the same thing.

    Create it in the scope of the strategy.

    Args:
        model: whose `hparams` say how to clip and what to compute in.
        optimizer: of its weights.
        strategy: on whose replicas to run.
        seed: of dropout.
        micro_batches: into which each replica's rows are divided, to take the memory of
            one of them.
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: Adam,
        strategy: tf.distribute.Strategy,
        seed: int,
        micro_batches: int = 1,
    ) -> None:
        self._model = model
        self._weights = [weight.value for weight in model.trainable_variables]
        self._optimizer = optimizer
        self._strategy = strategy
        self._seed = seed
        self._micro_batches = micro_batches
        self._clip_norm = model.hparams.clip_norm
        in_float16 = model.hparams.compute_dtype == "float16"
        self.loss_scale = LossScale() if in_float16 else None
        batch, step = batch_spec(strategy), tf.TensorSpec([], tf.int64)
        rate = tf.TensorSpec([], tf.float32)
        self.update = tf.function(self._update, input_signature=[batch, step, rate])
        self.dry_run = tf.function(self._dry_run, input_signature=[batch, step])

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

            def apply() -> None:
                count = tf.cast(step + 1, tf.float32)
                self._optimizer.apply(gradients, learning_rate, count)

            if self.loss_scale is None:
                apply()
                return result
            # The norm is of the same sums on every replica: all of them agree.
            good = tf.math.is_finite(result.gradient_norm)
            tf.cond(good, apply, lambda: None)
            skipped = self.loss_scale.update(good)
            return result._replace(
                gradient_norm=tf.where(skipped, 0.0, result.gradient_norm),
                skipped=tf.cast(skipped, tf.float32),
            )

        return self._on_replicas(on_replica, batch)

    def _dry_run(
        self, batch: tuple[tf.Tensor, tf.Tensor], step: tf.Tensor
    ) -> StepResult:
        """Computes the gradients of a distributed batch and leaves the weights."""
        return self._on_replicas(
            lambda source, target: self.gradients(source, target, step)[1], batch
        )

    def gradients(
        self, source: tf.Tensor, target: tf.Tensor, step: tf.Tensor
    ) -> tuple[list[tf.Tensor], StepResult]:
        """Returns the mean gradient over the tokens of all replicas.

        Runs in replica context, on this replica's rows.

        Args:
            source: int32 [B, S]; the micro-batches are B / k consecutive rows each.
            target: int32 [B, T]
            step: int64 scalar, which dropout depends on.
        """
        scale = self.loss_scale.value if self.loss_scale else tf.constant(1.0)
        sums = self._sums(source, target, step, scale)
        replica = tf.distribute.get_replica_context()
        sums = replica.all_reduce(tf.distribute.ReduceOp.SUM, sums)
        gradients = [g / (scale * sums.target_tokens) for g in sums.gradients]
        return gradients, StepResult(
            loss_sum=sums.loss,
            nll_sum=sums.nll,
            source_tokens=sums.source_tokens,
            target_tokens=sums.target_tokens,
            positions=sums.positions,
            gradient_norm=tf.linalg.global_norm(gradients),
            skipped=tf.zeros([]),
        )

    def _sums(
        self, source: tf.Tensor, target: tf.Tensor, step: tf.Tensor, scale: tf.Tensor
    ) -> _Sums:
        """Returns `_sums_of` added up over this replica's micro-batches."""
        count = self._micro_batches
        if count == 1:
            seed = self._dropout_seed(step)
            return self._sums_of(source, target, scale, seed)
        sources, targets = (
            tf.reshape(ids, [count, -1, tf.shape(ids)[1]]) for ids in (source, target)
        )

        def add(i: tf.Tensor, sums: _Sums) -> tuple[tf.Tensor, _Sums]:
            seed = self._dropout_seed(step, i)
            more = self._sums_of(sources[i], targets[i], scale, seed)
            return i + 1, tf.nest.map_structure(tf.add, sums, more)

        zero = tf.zeros([])
        gradients = [tf.zeros(weight.shape) for weight in self._weights]
        _, sums = tf.while_loop(
            lambda i, sums: i < count,
            add,
            (tf.constant(0), _Sums(gradients, zero, zero, zero, zero, zero)),
            parallel_iterations=1,  # or the next forward pass would take memory as well
        )
        return sums

    def _sums_of(
        self, source: tf.Tensor, target: tf.Tensor, scale: tf.Tensor, seed: tf.Tensor
    ) -> _Sums:
        """Returns the sums over some rows: source [B, S], target [B, T]."""
        with tf.GradientTape() as tape:
            loss, nll = loss_sums(self._model, source, target, seed)
        gradients = tape.gradient(loss, self._weights, output_gradients=scale)
        # Dense: ids looked up on another replica are other rows of an embedding.
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
        positions = tf.cast(tf.size(source) + tf.size(target), tf.float32)
        return _Sums(
            gradients, loss, count_tokens(source), count_tokens(target), positions, nll
        )

    def _dropout_seed(
        self, step: tf.Tensor, micro_batch: tf.Tensor | int = 0
    ) -> tf.Tensor:
        """Returns a seed of its own for every step and part of the batch, int32 [2].

        Parts are numbered through: it makes no difference to which replica they belong.
        """
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        part = replica * self._micro_batches + micro_batch
        seed = tf.constant([self._seed, 0], tf.int32)
        fold_in = tf.random.experimental.stateless_fold_in
        return fold_in(fold_in(seed, tf.cast(step, tf.int32)), part)

    def _on_replicas(
        self,
        function: Callable[[tf.Tensor, tf.Tensor], StepResult],
        batch: tuple[tf.Tensor, tf.Tensor],
    ) -> StepResult:
        """Runs a function on every replica; all return the same sums."""
        results = self._strategy.run(function, args=batch)
        local = self._strategy.experimental_local_results
        return StepResult(*(local(value)[0] for value in results))
