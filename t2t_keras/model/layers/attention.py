"""Multi-head attention (3.2): what self-attention and cross-attention share."""

import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypedDict

import keras
from keras import ops

from t2t_keras.model.backend import Shape, Tensor
from t2t_keras.model.execution import current_execution
from t2t_keras.model.layers.base import Layer
from t2t_keras.model.layers.dropout import Dropout
from t2t_keras.model.layers.dropout_keys import DropoutSeed
from t2t_keras.model.layers.linear import BlockGlorot, Kernels, Linear
from t2t_keras.model.layers.rows import from_rows, to_rows


def scaled_dot_product(
    query: Tensor, key: Tensor, scale: float | None = None
) -> Tensor:
    """Returns Q K^T / sqrt(d_k) (3.2.1, equation 1), float32 [B, H, T, S].

    If the components are independent with mean 0 and variance 1, q . k has the variance
    d_k: a larger d_k saturates the softmax and makes its gradients smaller. `scale`
    replaces the factor 1 / sqrt(d_k). Q is [B, H, T, d_k], and K [B, H, S, d_k].
    """
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, H, T, S]
    # The factor is one number per head, not a scalar. TensorFlow 2.21's graph optimizer
    # (its oneDNN remapper) would fuse a scalar and the bias into the product, and the
    # fused kernel takes up to 20 times as long in float32. The product is scaled, not
    # the query: otherwise the optimizer makes a surrounding while loop return empty
    # tensors.
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    factors = ops.full((query.shape[1], 1, 1), scale, "float32")  # [H, 1, 1]
    return ops.cast(scores, "float32") * factors


def attention_weights(scores: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns the softmax [B, H, T, S] of the scores [B, H, T, S] plus the bias."""
    return ops.softmax(scores if bias is None else scores + bias)


class AttentionOutput(NamedTuple):
    """What attention returns.

    As in `keras.layers.MultiHeadAttention`, "scores" are the outputs of the softmax.
    """

    output: Tensor  # [B, T, D]
    scores: Tensor  # [B, H, T, S], before dropout


class AttentionOptions(TypedDict, total=False):
    """The arguments of `MultiHead`."""

    d_model: int
    num_heads: int
    key_size: int
    value_size: int
    score: Literal["scaled", "unscaled", "additive"]
    dropout: float
    use_bias: bool
    name: str
    dtype: keras.DTypePolicy


class MultiHead(Layer):
    """Base class of self-attention and cross-attention (3.2.2).

    MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O with
    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) and
    Attention(Q, K, V) = softmax(score(Q, K)) V.

    Args:
        d_model: model width D.
        num_heads: number of heads H.
        key_size: size d_k of queries and keys; 0: D / H.
        value_size: size d_v of values; 0: D / H.
        score: "scaled", the paper's, or what 3.2.1 compares with it: "unscaled", or
            "additive" (Bahdanau et al., 2015), u . tanh(q + k) with one vector u [d_k]
            per head. The latter holds B H T S d_k values: for small models only.
        dropout: dropout rate of the attention weights.
        use_bias: whether the projections add biases; the paper's do not.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        key_size: int = 0,
        value_size: int = 0,
        score: Literal["scaled", "unscaled", "additive"] = "scaled",
        dropout: float = 0.0,
        use_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        # Keras would cast the float32 bias; the projections cast their own inputs.
        super().__init__(autocast=False, **kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.key_size = key_size or d_model // num_heads
        self.value_size = value_size or d_model // num_heads
        self.score_function = score
        self.use_bias = use_bias
        self.output_projection = self.make_linear(d_model, name="output")
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)

    def make_linear(self, *widths: int, name: str) -> Linear:
        """Returns a projection to several blocks, each initialized by its own width."""
        return Linear(
            sum(widths),
            use_bias=self.use_bias,
            kernel_initializer=BlockGlorot(widths),
            name=name,
            dtype=self.dtype_policy,
        )

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        self.output_projection.build((None, self.num_heads * self.value_size))
        self.dropout.build(input_shape)
        if self.score_function == "additive":
            self.score_vectors = self.add_weight(
                name="score",
                shape=(self.key_size, self.num_heads),
                initializer=BlockGlorot([1] * self.num_heads),
            )

    def score(self, query: Tensor, key: Tensor) -> Tensor:
        """Compares [B, H, T, d_k] with [B, H, S, d_k]: float32 [B, H, T, S]."""
        if self.score_function != "additive":
            scale = 1.0 if self.score_function == "unscaled" else None
            return scaled_dot_product(query, key, scale)
        hidden = ops.tanh(query[:, :, :, None] + key[:, :, None])  # [B, H, T, S, d_k]
        vectors = ops.transpose(self.score_vectors)  # [H, d_k]
        vectors = ops.cast(vectors, hidden.dtype)[:, None, :, None]  # [H, 1, d_k, 1]
        return ops.cast(ops.matmul(hidden, vectors)[..., 0], "float32")

    def project_heads(
        self,
        projection: Linear,
        x: Tensor,
        *sizes: int,
        kernels: Kernels | None = None,
    ) -> list[Tensor]:
        """Projects [B, T, D] to H * (a + b ...): [B, H, T, a], [B, H, T, b] ...

        Adjacent blocks of equal size (usually queries, keys and values) are transposed
        together: slicing them one by one would cost one pass over memory per block, and
        two in the gradient. For XLA each block is a product, see `rows`: it would copy
        the columns of one product.
        """
        batch, length, _ = ops.shape(x)
        # All positions are rows here, so that the shape is needed only once: TensorFlow
        # adds operations to the graph for each size that it does not know.
        rows = to_rows(x)  # [N, D]
        if current_execution().is_fused and kernels is None:
            widths = [self.num_heads * size for size in sizes]
            blocks = projection.blocks(rows, widths)  # [N, H a], [N, H b] ...
            return [self._split_heads(block, batch, length) for block in blocks]
        rows = projection(rows, kernels=kernels)  # [N, H * (a + b ...)]
        groups = [(size, len(list(group))) for size, group in itertools.groupby(sizes)]
        parts = [rows]
        if len(groups) > 1:
            widths = [self.num_heads * size * count for size, count in groups]
            parts = ops.split(rows, list(itertools.accumulate(widths))[:-1], axis=-1)
        heads_of_blocks: list[Tensor] = []
        for part, (size, count) in zip(parts, groups, strict=True):
            heads = ops.reshape(part, (batch, length, count, self.num_heads, size))
            heads = ops.transpose(heads, (2, 0, 3, 1, 4))  # [count, B, H, T, size]
            heads_of_blocks += ops.unstack(heads, count)
        return heads_of_blocks

    def _split_heads(
        self, rows: Tensor, batch: int | Tensor, length: int | Tensor
    ) -> Tensor:
        """Returns rows [N, H * size] as [B, H, T, size]."""
        size = rows.shape[1] // self.num_heads
        heads = from_rows(rows, batch, length, self.num_heads, size)
        return ops.transpose(heads, (0, 2, 1, 3))

    def multi_head(
        self,
        query: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        bias: Tensor | None,
        seed: DropoutSeed | None = None,
        kernels: Kernels | None = None,
    ) -> AttentionOutput:
        """Computes the attention of every head and projects the joined heads by W^O.

        The queries are [B, H, T, d_k]. The S keys and values are one or more tensors
        [B, H, S_i, d_k] and [B, H, S_i, d_v]. The bias is broadcastable to
        [B, H, T, S].
        """
        scores = [self.score(query, key) for key in keys]  # [B, H, T, S_i] each
        joined = scores[0] if len(scores) == 1 else ops.concatenate(scores, axis=-1)
        weights = attention_weights(joined, bias)  # [B, H, T, S]
        dropped = self.dropout(ops.cast(weights, values[0].dtype), seed=seed)
        if len(values) == 1:
            heads = ops.matmul(dropped, values[0])  # [B, H, T, d_v]
        else:
            heads = _sum_of_products(dropped, values)  # [B, H, T, d_v]
        batch, _, length, _ = ops.shape(heads)
        heads = ops.transpose(heads, (0, 2, 1, 3))  # [B, T, H, d_v]
        rows = to_rows(heads, self.num_heads * self.value_size)  # [N, H d_v]
        rows = self.output_projection(rows, kernels=kernels)  # [N, D]
        y = from_rows(rows, batch, length)  # [B, T, D]
        return AttentionOutput(y, weights)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "key_size": self.key_size,
            "value_size": self.value_size,
            "score": self.score_function,
            "dropout": self.dropout.rate,
            "use_bias": self.use_bias,
        }


def _sum_of_products(weights: Tensor, values: Sequence[Tensor]) -> Tensor:
    """Returns weights [B, H, T, S] times the concatenated values [B, H, S_i, d_v]."""
    products = []
    for value in values[:-1]:
        size = ops.shape(value)[2]  # S_i
        products.append(ops.matmul(weights[..., :size], value))  # [B, H, T, d_v]
        weights = weights[..., size:]
    products.append(ops.matmul(weights, values[-1]))
    return sum(products[1:], products[0])
