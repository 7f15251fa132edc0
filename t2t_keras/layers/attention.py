"""Scaled dot-product and multi-head attention (3.2)."""

import itertools
from typing import Any

import keras
from keras import ops

from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.linear import BlockGlorot, Linear

# Added to the logits of illegal positions. Finite: a row without any legal position
# (an empty sentence that fills up a batch) must stay a number.
MASKED = -1e9


def padding_bias(is_padding: Any) -> Any:
    """Returns the bias [B, 1, 1, S] that hides padding; `is_padding` is bool [B, S]."""
    return ops.cast(is_padding, "float32")[:, None, None, :] * MASKED


def causal_bias(length: Any) -> Any:
    """Returns the bias [1, 1, T, T] that hides what comes after each position."""
    steps = ops.arange(length)
    is_later = steps[None, :] > steps[:, None]
    return ops.cast(is_later, "float32")[None, None] * MASKED


def attention_weights(
    query: Any, key: Any, bias: Any = None, scale: float | None = None
) -> Any:
    """softmax(Q K^T / sqrt(d_k)), in float32 whatever Q and K are.

    Args:
        query: [B, H, T, d_k]
        key: [B, H, S, d_k]
        bias: added to the logits: broadcastable to [B, H, T, S].
        scale: in place of 1 / sqrt(d_k).

    Returns:
        [B, H, T, S]
    """
    # Scaled after the product, not the query before: TensorFlow 2.21's graph optimizer
    # (its oneDNN remapper) would make a while loop around that return empty tensors.
    logits = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    logits = ops.cast(logits, "float32") * scale
    return ops.softmax(logits if bias is None else logits + bias)


class _MultiHead(keras.layers.Layer):
    """What both kinds of multi-head attention have in common (3.2.2).

    MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O with
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), all without biases.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        key_size: int,
        value_size: int,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        # Keras would cast the float32 bias; the projections cast what they multiply.
        super().__init__(autocast=False, **kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.key_size = key_size
        self.value_size = value_size
        self.output_projection = self._projection(d_model, name="output")
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def _projection(self, *widths: int, name: str) -> Linear:
        """A projection whose output holds several blocks, each with its own Glorot."""
        return Linear(
            sum(widths),
            use_bias=False,
            kernel_initializer=BlockGlorot(widths),
            name=name,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights; all widths are known."""
        self.output_projection.build((None, self.num_heads * self.value_size))
        self.dropout.build(None)

    def _split(self, x: Any, *sizes: int) -> list[Any]:
        """[B, T, H * (a + b ...)] -> [B, H, T, a], [B, H, T, b] ...

        Neighbours of one size, which queries, keys and values mostly are, are moved as
        one: a slice each would cost as many passes over memory, and twice as many in
        the gradient.
        """
        batch, length, _ = ops.shape(x)
        groups = [(size, len(list(same))) for size, same in itertools.groupby(sizes)]
        widths = [self.num_heads * size * count for size, count in groups]
        blocks = []
        if len(groups) > 1:
            parts = ops.split(x, list(itertools.accumulate(widths))[:-1], axis=-1)
        else:
            parts = [x]
        for part, (size, count) in zip(parts, groups, strict=True):
            heads = ops.reshape(part, (batch, length, count, self.num_heads, size))
            blocks += ops.unstack(ops.transpose(heads, (2, 0, 3, 1, 4)), count)
        return blocks

    def head_weights(self, query: Any, key: Any, bias: Any) -> Any:
        """Returns what the values are weighed by, see `attention_weights`."""
        return attention_weights(query, key, bias)

    def _attend(self, query: Any, key: Any, value: Any, bias: Any, seed: Any) -> Any:
        """Attention of every head, the heads joined by W^O: [B, T, D]."""
        weights = ops.cast(self.head_weights(query, key, bias), value.dtype)
        heads = ops.matmul(self.dropout(weights, seed=seed), value)
        batch, _, length, _ = ops.shape(heads)
        joined = ops.transpose(heads, (0, 2, 1, 3))
        joined = ops.reshape(joined, (batch, length, self.num_heads * self.value_size))
        return self.output_projection(joined)


class SelfAttention(_MultiHead):
    """Multi-head attention of a sequence to itself.

    The projections to queries, keys and values are one matrix product.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        keys = self.num_heads * self.key_size
        values = self.num_heads * self.value_size
        self.projection = self._projection(keys, keys, values, name="query_key_value")

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights."""
        self.projection.build((None, self.d_model))
        super().build(input_shape)

    def causal_bias(self, length: Any) -> Any:
        """Returns what hides the future in `call`, for T = `length`."""
        return causal_bias(length)

    def call(self, x: Any, bias: Any, seed: Any = None) -> Any:
        """Attends.

        Args:
            x: [B, T, D]
            bias: broadcastable to [B, H, T, T], see `padding_bias` and `causal_bias`.
            seed: of dropout; None at inference.

        Returns:
            [B, T, D]
        """
        query, key, value = self._project(x)
        return self._attend(query, key, value, bias, seed)

    def step(self, x: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        """Attends from one new position to itself and all before it.

        Args:
            x: [N, 1, D], the new position of N hypotheses.
            key: [N, H, t, d_k], of the t positions before.
            value: [N, H, t, d_v]

        Returns:
            The output [N, 1, D] and the keys and values, longer by one.
        """
        query, new_key, new_value = self._project(x)
        key = ops.concatenate([key, new_key], axis=2)
        value = ops.concatenate([value, new_value], axis=2)
        return self._attend(query, key, value, None, None), key, value

    def _project(self, x: Any) -> list[Any]:
        return self._split(
            self.projection(x), self.key_size, self.key_size, self.value_size
        )


class CrossAttention(_MultiHead):
    """Multi-head attention of the target to the encoded source.

    Keys and values come from `project_memory`, apart from `call`, because decoding
    computes them once for all steps.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        keys = self.num_heads * self.key_size
        values = self.num_heads * self.value_size
        self.query_projection = self._projection(keys, name="query")
        self.memory_projection = self._projection(keys, values, name="key_value")

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights."""
        self.query_projection.build((None, self.d_model))
        self.memory_projection.build((None, self.d_model))
        super().build(input_shape)

    def project_memory(self, memory: Any) -> list[Any]:
        """Returns keys [B, H, S, d_k] and values [B, H, S, d_v] of memory [B, S, D]."""
        return self._split(
            self.memory_projection(memory), self.key_size, self.value_size
        )

    def call(self, x: Any, key: Any, value: Any, bias: Any, seed: Any = None) -> Any:
        """Attends.

        Args:
            x: [B, T, D]; when decoding, T is the beams of a sentence, which all look
                at the same source.
            key: [B, H, S, d_k]
            value: [B, H, S, d_v]
            bias: broadcastable to [B, H, T, S], see `padding_bias`.
            seed: of dropout; None at inference.

        Returns:
            [B, T, D]
        """
        (query,) = self._split(self.query_projection(x), self.key_size)
        return self._attend(query, key, value, bias, seed)
