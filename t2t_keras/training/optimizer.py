"""The optimizer (5.3): the learning rate, and the update of the weights.

`t2t_keras.register_optimizer` adds one, or an entry point of `t2t_keras.optimizers`,
whose name is then a value of `HParams.optimizer`.

All optimizers run in replica context with the same all-reduced gradients on every
replica, which updates its own copy of weights and state. Keras's optimizers cannot do
that: in replica context their `apply` all-reduces the gradients again, and leaves the
replica context; and none of them can skip an update without a `tf.cond`. The tests
compare AdamW and Adafactor with those of Keras.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.hparam import OPTIMIZERS, OTHER_OPTIMIZERS, HParams
from t2t_keras.model.schedule import scheduled_rate
from t2t_keras.run.checkpoint import slot_name
from t2t_keras.usr_dir import explain_error


class Optimizer(Protocol):
    """An optimizer, as the training step and checkpoints use it.

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
            is_applied: bool scalar; if false, weights and state stay as they are. It
                selects the optimizer's constants, because a `tf.cond` would make the
                host wait for the gradients. A training begins with such an update, when
                the state is still zeros: divide by nothing that is 0 then, since 0
                times infinity is NaN.
        """


def slots(
    prefix: str,
    weights: Mapping[str, tf.Variable],
    shape: Callable[[tf.TensorShape], tf.TensorShape] = lambda shape: shape,
) -> dict[str, tf.Variable]:
    """Returns a variable of zeros for each weight, by its name in a checkpoint.

    Args:
        prefix: the beginning of the names, such as "adam/m".
        weights: the weights by their names in a checkpoint.
        shape: returns the shape of a slot for the shape of a weight.
    """
    return {
        slot_name(prefix, name): tf.Variable(tf.zeros(shape(weight.shape)))
        for name, weight in weights.items()
    }


def add_to(variable: tf.Variable, value: tf.Tensor) -> None:
    """Adds to a variable in replica context, where `assign_add` is not allowed."""
    tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=value)


class MovingAverage:
    """An optimizer that also updates a moving average of the weights.

    average += (1 - decay_t) * (weight - average), with t counted from 1 and decay_t =
    min(`decay`, (t - 1) / (t + 9)): the first average is the weights after the first
    update, and early averages soon forget the first weights.

    Create it in the scope of the strategy; each replica updates its own copy.

    Args:
        optimizer: updates the weights.
        weights: the weights by their names in a checkpoint.
        decay: `HParams.ema_decay`.

    Attributes:
        averages: the moving averages by the names of their weights.
        variables: the optimizer's variables and the averages, by their names in a
            checkpoint.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        weights: Mapping[str, tf.Variable],
        decay: float,
    ) -> None:
        self._optimizer = optimizer
        self._weights = weights
        self._decay = decay
        averages = slots("ema", weights)
        self.averages = dict(zip(weights, averages.values(), strict=True))
        self.variables: Mapping[str, tf.Variable]
        self.variables = {**optimizer.variables, **averages}

    def apply(
        self,
        gradients: Sequence[tf.Tensor],
        learning_rate: tf.Tensor,
        step: tf.Tensor,
        is_applied: tf.Tensor,
    ) -> None:
        """Updates the weights, then their averages; see `Optimizer.apply`."""
        self._optimizer.apply(gradients, learning_rate, step, is_applied)
        share = 1 - tf.minimum(self._decay, (step - 1) / (step + 9))
        share = tf.where(is_applied, share, 0.0)
        for name, average in self.averages.items():
            change = self._weights[name] - average
            add_to(average, tf.math.multiply_no_nan(change, share))


def learning_rate(hparams: HParams, step: int) -> float:
    """Returns `hparams.learning_rate` times the factors that `schedule` names.

    The paper's linear_warmup * rsqrt_decay * rsqrt_hidden_size is its
    d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5). tensor2tensor writes it
    with the factor "constant", its name for our `learning_rate`; with
    "constant*linear_warmup" the learning rate stays constant after the warm-up.

    Args:
        hparams: `learning_rate`, `schedule`, `warmup_steps`, `d_model`.
        step: of the update, counted from 1, as in the paper. (tensor2tensor counts
            from 0: its first update has a learning rate of 0.)

    Raises:
        UserError: a registered factor fails, or the rate is not a finite number of at
            least 0.
    """
    try:
        rate = float(scheduled_rate(hparams, step, min, max))
    except (TypeError, ValueError, ArithmeticError) as error:
        raise UserError(f"{_place(hparams, step)}: {explain_error(error)}") from error
    if not 0 <= rate < math.inf:
        raise UserError(
            f"{_place(hparams, step)}: the learning rate must be a finite number of at "
            f"least 0, not {rate}"
        )
    return rate


def _place(hparams: HParams, step: int) -> str:
    return f"hparams: schedule '{hparams.schedule}' at step {step}"


def make_optimizer(weights: Mapping[str, tf.Variable], hparams: HParams) -> Optimizer:
    """Returns the optimizer that `hparams.optimizer` names.

    Call it in the scope of the strategy, so that every replica has its own state.

    Args:
        weights: the weights by their names in a checkpoint.
        hparams: `optimizer` and the constants that it takes; with `ema_decay` the
            optimizer is a `MovingAverage`.

    Raises:
        UserError: a registered class is not an `Optimizer`.
    """
    name = hparams.optimizer
    classes: dict[str, Callable[[Any, Any], Any]]
    classes = dict(zip(OPTIMIZERS, (Adam, AdamW), strict=True))
    if OTHER_OPTIMIZERS.find(name):
        classes[name] = OTHER_OPTIMIZERS.get(name)
    cls = classes.get(name) or load_plugins("optimizers")[name]
    optimizer: Optimizer = cls(weights, hparams)
    variables = getattr(optimizer, "variables", None)
    if not isinstance(variables, Mapping) or not hasattr(optimizer, "apply"):
        raise UserError(
            f"optimizer '{name}' must have a method `apply` and a dict `variables`, as "
            "`register_optimizer` describes; an optimizer of Keras has not"
        )
    if hparams.ema_decay:
        return MovingAverage(optimizer, weights, hparams.ema_decay)
    return optimizer


def require_unchanged(
    variables: Mapping[str, tf.Variable],
    earlier: Mapping[str, tf.Tensor],
    hparams: HParams,
) -> None:
    """Refuses an optimizer that has changed variables in an update not to be applied.

    Args:
        variables: weights and state by their names in a checkpoint.
        earlier: their values before the update, see `run.checkpoint.snapshot`.
        hparams: `optimizer`.

    Raises:
        UserError: one has another value, NaN for instance.
    """
    with tf.device("CPU:0"):
        for name, variable in variables.items():
            value = earlier[name]
            is_same = tf.equal(variable.read_value(), value)
            was_nan = tf.not_equal(value, value)
            if not tf.reduce_all(tf.logical_or(is_same, was_nan)):
                raise UserError(
                    f"optimizer '{hparams.optimizer}': apply changes '{name}' although "
                    "is_applied is false: multiply by 0 only what is finite, also when "
                    "the state is still zeros"
                )


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
        beta1_power = self._beta1**step
        beta2_power = self._beta2**step
        beta1 = tf.where(is_applied, self._beta1, 1.0)
        beta2 = tf.where(is_applied, self._beta2, 1.0)
        learning_rate = tf.where(is_applied, learning_rate, 0.0)
        epsilon = tf.constant(self._epsilon)
        for weight, first_moment, second_moment, gradient in zip(
            self._weights,
            self._first_moments.values(),
            self._second_moments.values(),
            gradients,
            strict=True,
        ):
            tf.raw_ops.ResourceApplyAdam(
                var=weight.handle,
                m=first_moment.handle,
                v=second_moment.handle,
                beta1_power=beta1_power,
                beta2_power=beta2_power,
                lr=learning_rate,
                beta1=beta1,
                beta2=beta2,
                epsilon=epsilon,
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
