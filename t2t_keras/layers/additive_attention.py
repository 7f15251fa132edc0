"""Additive attention (Bahdanau et al., 2015), which 3.2.1 compares with its own.

For small models and short sentences: one value for each pair of positions, head and
component of the keys is held in memory, B H T S d_k in all.
"""

from typing import Any

from keras import ops

from t2t_keras.layers.attention import CrossAttention, SelfAttention
from t2t_keras.layers.linear import BlockGlorot


class _Additive:
    """softmax(u . tanh(q + k)) V: a network with one hidden layer compares q and k.

    Its matrices are the projections to queries and keys; a vector u [d_k] for every
    head is all that is added. Mixed into a kind of attention, it replaces the function
    of queries and keys.
    """

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights."""
        super().build(input_shape)
        self.score = self.add_weight(
            name="score",
            shape=(self.key_size, self.num_heads),
            initializer=BlockGlorot([1] * self.num_heads),
        )

    def head_weights(self, query: Any, key: Any, bias: Any) -> Any:
        """Returns the softmax of u . tanh(q + k) + bias, float32 [B, H, T, S]."""
        hidden = ops.tanh(query[:, :, :, None] + key[:, :, None])  # [B, H, T, S, d_k]
        score = ops.cast(ops.transpose(self.score), hidden.dtype)[:, None, :, None]
        logits = ops.cast(ops.matmul(hidden, score)[..., 0], "float32")
        return ops.softmax(logits if bias is None else logits + bias)


class AdditiveSelfAttention(_Additive, SelfAttention):
    """`SelfAttention` by the additive function."""


class AdditiveCrossAttention(_Additive, CrossAttention):
    """`CrossAttention` by the additive function."""
