"""The optimizer (5.3): the learning rate, the update of the weights, their average.

An optimizer has `variables`, its state by name in a checkpoint, and `apply`, which
updates the weights. A package adds one as an entry point of `t2t_keras.optimizers`,
whose name is then a value of `HParams.optimizer`.

All of them run in replica context with the same all-reduced gradients on every replica,
which updates its own copy of weights and state. Keras's optimizers cannot do that: in
replica context their `apply` all-reduces the gradients once more, and leaves the
replica context; and none of them can skip an update without a `tf.cond`. The tests hold
AdamW and Adafactor against those of Keras.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import tensorflow as tf

from t2t_keras.entry_points import load_plugins
from t2t_keras.hparam import OPTIMIZERS, HParams
from t2t_keras.model.schedule import scheduled_rate
from t2t_keras.run.checkpoint import slot_name


def learning_rate(hparams: HParams, step: int) -> float:
    """Returns `hparams.learning_rate` times the factors that `schedule` names.

    The paper's linear_warmup * rsqrt_decay * rsqrt_hidden_size is its
    d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5). tensor2tensor writes it
    with the factor "constant", its name for our `learning_rate`; with
    "constant*linear_warmup" the learning rate stays constant after the warm-up.

    Args:
        hparams: `learning_rate`, `schedule`, `warmup_steps`, `d_model`.
        step: of the update, counted from 1, as in the paper. (tensor2tensor counts the
            steps of a product from 0: its first update has a learning rate of 0.)
    """
    return scheduled_rate(hparams, step, min, max)


class Optimizer(Protocol):
    """What the trainer, the training step and checkpoints know of an optimizer.

    Attributes:
        variables: its state by the names in a checkpoint.
    """

    variables: Mapping[str, tf.Variable]

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        is_applied: tf.Tensor,
    ) -> None:
        """Updates the weights, in replica context.

        Args:
            gradients: one dense gradient for each weight, the same on every replica.
            learning_rate: float32 scalar.
            step: float32 scalar, of this update, counted from 1.
            is_applied: bool scalar; if false, weights and state stay as they are. The
                optimizer's constants are chosen by it, so that no `tf.cond` makes the
                host wait for the gradients.
        """


def make_optimizer(weights: Mapping[str, tf.Variable], hparams: HParams) -> Optimizer:
    """Returns the optimizer that `hparams.optimizer` names.

    Call it in the scope of the strategy, so that every replica has its own state.

    Args:
        weights: the weights by their names in a checkpoint.
        hparams: `optimizer` and the constants that it takes.
    """
    kinds = dict(zip(OPTIMIZERS, (Adam, AdamW), strict=True))
    kind = kinds.get(hparams.optimizer) or load_plugins("optimizers")[hparams.optimizer]
    return kind(weights, hparams)


class Adam:
    """Adam as the authors' code applies it, one fused operation for each weight.

    With t counted from 1: w -= lr * sqrt(1 - beta2^t) / (1 - beta1^t) * m / (sqrt(v) +
    epsilon).
    """

    def __init__(self, weights: Mapping[str, tf.Variable], hparams: HParams) -> None:
        self._weights = list(weights.values())
        self._beta1 = hparams.adam_beta1
        self._beta2 = hparams.adam_beta2
        self._epsilon = hparams.adam_epsilon
        self._first_moments = slots("adam/m", weights)
        self._second_moments = slots("adam/v", weights)
        self.variables: Mapping[str, tf.Variable]
        self.variables = self._first_moments | self._second_moments

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        is_applied: tf.Tensor,
    ) -> None:
        """Updates the weights; see `Optimizer.apply`."""
        beta1_power, beta2_power = self._beta1**step, self._beta2**step
        beta1, beta2 = (
            tf.where(is_applied, x, 1.0) for x in (self._beta1, self._beta2)
        )
        learning_rate = tf.where(is_applied, learning_rate, 0.0)
        for weight, first, second, gradient in zip(
            self._weights,
            self._first_moments.values(),
            self._second_moments.values(),
            gradients,
            strict=True,
        ):
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=learning_rate,
                beta1=beta1,
                beta2=beta2,
                epsilon=self._epsilon,
                grad=gradient,
            )


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, 2019).

    Before each update of Adam, w -= lr * `weight_decay` * w for every matrix. Vectors,
    which are biases and the scales of layer normalisation, do not decay.
    """

    def __init__(self, weights: Mapping[str, tf.Variable], hparams: HParams) -> None:
        super().__init__(weights, hparams)
        self._decay = hparams.weight_decay

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        is_applied: tf.Tensor,
    ) -> None:
        """Updates the weights; see `Optimizer.apply`."""
        learning_rate = tf.where(is_applied, learning_rate, 0.0)
        for weight in self._weights:
            if len(weight.shape) >= 2:
                add_to(weight, -learning_rate * self._decay * weight)
        super().apply(gradients, learning_rate, step, is_applied)


def slots(
    kind: str,
    weights: Mapping[str, tf.Variable],
    shape: Callable[[tf.TensorShape], tf.TensorShape] = lambda shape: shape,
) -> dict[str, tf.Variable]:
    """Returns a variable of zeros for each weight, by its name in a checkpoint."""
    return {
        slot_name(kind, name): tf.Variable(tf.zeros(shape(weight.shape)))
        for name, weight in weights.items()
    }


def add_to(variable: tf.Variable, value: tf.Tensor) -> None:
    """Adds to a variable in replica context, where `assign_add` is not allowed."""
    tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=value)
