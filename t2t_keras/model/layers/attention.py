"""Multi-head attention (3.2): self-attention and cross-attention."""

import itertools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, Protocol, Self, TypedDict

import keras
from keras import ops

from t2t_keras.model.backend import (
    Layer,
    Shape,
    Tensor,
    at_least_float32,
    serializable,
)
from t2t_keras.model.execution import current_execution, from_rows, to_rows
from t2t_keras.model.layers.cache import (
    UsedColumns,
    add_used,
    append_columns,
    column_indices,
    count_used,
    reserve_columns,
    take_columns,
)
from t2t_keras.model.layers.dropout import Dropout, DropoutSeed, training_seed
from t2t_keras.model.layers.linear import BlockGlorot, Kernels, Linear
from t2t_keras.model.layers.masks import causal_bias, masking_bias


def scaled_dot_product(
    query: Tensor, key: Tensor, scale: float | None = None
) -> Tensor:
    """Returns Q K^T / sqrt(d_k) (3.2.1, equation 1), [B, H, T, S].

    If the components are independent with mean 0 and variance 1, q . k has the variance
    d_k: a larger d_k saturates the softmax and makes its gradients smaller. `scale`
    replaces the factor 1 / sqrt(d_k). Q is [B, H, T, d_k], and K [B, H, S, d_k]. The
    result is float32, or float64 if they are.
    """
    scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))  # [B, H, T, S]
    scores = at_least_float32(scores)
    # The factor is one number per head, not a scalar. TensorFlow 2.21's graph optimizer
    # (its oneDNN remapper) would fuse a scalar and the bias into the product, and the
    # fused kernel takes up to 20 times as long in float32. The product is scaled, not
    # the query: otherwise the optimizer makes a surrounding while loop return empty
    # tensors.
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    factors = ops.full((query.shape[1], 1, 1), scale, scores.dtype)  # [H, 1, 1]
    return scores * factors


def attention_weights(scores: Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns the softmax [B, H, T, S] of the scores [B, H, T, S] plus the bias."""
    if bias is not None:
        scores = scores + ops.cast(bias, scores.dtype)
    return ops.softmax(scores)


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
            trainable=self.trainable,
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
        """Compares [B, H, T, d_k] with [B, H, S, d_k] as `scaled_dot_product` does."""
        if self.score_function != "additive":
            scale = 1.0 if self.score_function == "unscaled" else None
            return scaled_dot_product(query, key, scale)
        hidden = ops.tanh(query[:, :, :, None] + key[:, :, None])  # [B, H, T, S, d_k]
        vectors = ops.transpose(self.score_vectors)  # [H, d_k]
        vectors = ops.cast(vectors, hidden.dtype)[:, None, :, None]  # [H, 1, d_k, 1]
        return at_least_float32(ops.matmul(hidden, vectors)[..., 0])

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

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns [..., D]."""
        return (*input_shape[:-1], self.d_model)

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


class TokenCache(Protocol):
    """What a decoder's self-attention keeps of the tokens before a decoding step.

    A cache with an axis that grows may also have `reserve(columns)`, which returns the
    cache, preallocated for that many tokens. XLA compiles the search only if no axis
    grows.
    """

    def select(self, rows: Tensor, columns: Tensor) -> Self:
        """Returns the cache of the sentences `rows` [R] with the tokens `columns`.

        `columns` are int32 [R, U], the numbers of the tokens of each sentence.
        """

    def reorder(self, parents: Tensor) -> Self:
        """Returns the cache in which beam k continues beam `parents[b, k]`, [B, K]."""


class SelfAttentionCache(NamedTuple):
    """The keys and values of the C tokens that a sentence's hypotheses consist of.

    A token is stored once, however many hypotheses begin with it. A step appends to the
    recent tokens only, because appending copies the existing ones.
    """

    key: Tensor  # [B, H, P, d_k]
    value: Tensor  # [B, H, P, d_v]
    recent_key: Tensor  # [B, H, C - P, d_k], of the tokens of the last few steps
    recent_value: Tensor  # [B, H, C - P, d_v]
    used: UsedColumns = ()

    def append(self, key: Tensor, value: Tensor) -> "SelfAttentionCache":
        """Returns the cache with the tokens of a step, [B, H, K, d_k] and d_v."""
        return self._replace(
            recent_key=append_columns(self.recent_key, key, self.used),
            recent_value=append_columns(self.recent_value, value, self.used),
            used=add_used(self.used, key),
        )

    def reserve(self, columns: int | Tensor) -> "SelfAttentionCache":
        """Returns the cache, preallocated for a total of `columns` recent tokens."""
        return self._replace(
            recent_key=reserve_columns(self.recent_key, columns),
            recent_value=reserve_columns(self.recent_value, columns),
            used=count_used(self.recent_key, self.used),
        )

    def select(self, rows: Tensor, columns: Tensor) -> "SelfAttentionCache":
        """Returns the cache of some sentences, with some of their tokens."""
        key = ops.concatenate([self.key, self.recent_key], axis=2)  # [B, H, C, d_k]
        value = ops.concatenate([self.value, self.recent_value], axis=2)
        indices = column_indices(key, rows, columns)  # [R, H, U]
        key = take_columns(key, indices)  # [R, H, U, d_k]
        value = take_columns(value, indices)  # [R, H, U, d_v]
        return SelfAttentionCache(key, value, key[:, :, :0], value[:, :, :0])

    def reorder(self, parents: Tensor) -> "SelfAttentionCache":
        """Returns the same cache: `DecodingCache.positions` changes instead."""
        del parents
        return self


class SelfAttentionOutput(NamedTuple):
    """What self-attention returns; in a decoding step T is K, and S is C + K."""

    output: Tensor  # [B, T, D]
    scores: Tensor  # [B, H, T, S]
    cache: TokenCache | None  # with the new tokens; None except in a decoding step


@serializable
class SelfAttention(MultiHead):
    """Multi-head attention of a sequence to itself.

    The projections to queries, keys and values are one matrix product, and for XLA one
    each.

    Args:
        *args: see `MultiHead`.
        causal: whether positions attend to earlier ones and themselves only.
        **kwargs: see `MultiHead`.
    """

    def __init__(self, *args: Any, causal: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.causal = causal

    def make_projection(self) -> Linear:
        """Returns the projection of [B, T, D] to queries, keys and values."""
        keys = self.num_heads * self.key_size
        values = self.num_heads * self.value_size
        return self.make_linear(keys, keys, values, name="query_key_value")

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        self.projection = self.make_projection()
        self.projection.build(input_shape)
        super().build(input_shape)

    def call(
        self,
        x: Tensor,
        attention_mask: Tensor | None = None,
        use_causal_mask: bool = False,
        return_attention_scores: bool = False,
        seed: DropoutSeed | None = None,
        mask: Tensor | None = None,
        x_mask: Tensor | None = None,
        training: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attends as `keras.layers.MultiHeadAttention` does with x as query and value.

        Args:
            x: [B, T, D]
            attention_mask: bool [B, T, T], true where a position is attended to; the
                axes of B and of the queries may be 1.
            use_causal_mask: whether positions attend to earlier ones and themselves
                only.
            return_attention_scores: whether to return, after the output [B, T, D], the
                attention weights [B, H, T, T].
            seed: dropout seed, see `Dropout`.
            mask: bool [B, T], true where x has a token; Keras passes the mask of x.
            x_mask: the same; Keras uses this name if there are other tensors.
            training: see `Dropout.call`.
        """
        seed = training_seed(self, seed, training)
        bias = masking_bias(attention_mask, mask, x_mask)
        length = ops.shape(x)[1]
        if use_causal_mask:
            bias = causal_bias(length, bias)
        y, scores, _ = self.compute_attention(x, bias, seed)
        if not return_attention_scores:
            return y
        return y, self.full_attention_scores(scores, length)

    def compute_attention(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        seed: DropoutSeed | None = None,
        cache: SelfAttentionCache | None = None,
        kernels: Kernels | None = None,
    ) -> SelfAttentionOutput:
        """Attends from every position to every other, or to the tokens in a cache.

        In a decoding step, the new tokens of a sentence's K hypotheses take the place
        of positions, and `bias` masks the tokens that are not in their prefixes.

        Args:
            x: [B, T, D], in a decoding step [B, K, D].
            bias: broadcastable to [B, H, T, T], see `padding_bias`, and for packed rows
                `segment_bias`; in a decoding step [B, 1, K, C + K].
            seed: dropout seed, see `Dropout`.
            cache: the keys and values of C tokens; None except in a decoding step.
            kernels: see `Linear.call`; None except in a decoding step.
        """
        query, key, value = self.project(x, kernels)
        query, key = self.encode_positions(query, key, bias, cache)
        if cache is None:
            if self.causal:
                bias = causal_bias(ops.shape(x)[1], bias)
            attention = self.multi_head(query, [key], [value], bias, seed)
            return SelfAttentionOutput(*attention, cache=None)
        cache = cache.append(key, value)
        keys = [cache.key, cache.recent_key]
        values = [cache.value, cache.recent_value]
        attention = self.multi_head(query, keys, values, bias, seed, kernels)
        return SelfAttentionOutput(*attention, cache)

    def project(self, x: Tensor, kernels: Kernels | None = None) -> list[Tensor]:
        """Projects x to queries and keys [B, H, T, d_k] and values [B, H, T, d_v]."""
        sizes = self.key_size, self.key_size, self.value_size
        return self.project_heads(self.projection, x, *sizes, kernels=kernels)

    def encode_positions(
        self,
        query: Tensor,
        key: Tensor,
        bias: Tensor | None,
        cache: SelfAttentionCache | None,
    ) -> tuple[Tensor, Tensor]:
        """Adds positions to queries and keys in a subclass; here it adds none.

        The position of a token is the number of earlier tokens that `bias` does not
        mask: in training `bias_positions`, and in a decoding step the number of all
        other tokens.
        """
        del bias, cache
        return query, key

    def full_attention_scores(self, scores: Tensor, length: int | Tensor) -> Tensor:
        """Returns the scores of `compute_attention` as [B, H, T, T], T = `length`."""
        del length
        return scores

    def empty_cache(
        self, batch_size: int | Tensor, num_beams: int | Tensor
    ) -> SelfAttentionCache:
        """Returns the cache before the first step of K hypotheses for each sentence."""
        del num_beams  # The beams of a sentence share one list of tokens.
        shape = (batch_size, self.num_heads, 0)
        key = ops.zeros((*shape, self.key_size), self.compute_dtype)  # [B, H, 0, d_k]
        value = ops.zeros((*shape, self.value_size), self.compute_dtype)
        return SelfAttentionCache(key, value, key, value)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"causal": self.causal}


@serializable
class CrossAttention(MultiHead):
    """Multi-head attention of the target to the encoded source.

    It has the arguments of `MultiHead`.
    """

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        keys = self.num_heads * self.key_size
        values = self.num_heads * self.value_size
        self.query_projection = self.make_linear(keys, name="query")
        self.key_value_projection = self.make_linear(keys, values, name="key_value")
        self.query_projection.build(input_shape)
        self.key_value_projection.build(input_shape)
        super().build(input_shape)

    def call(
        self,
        x: Tensor,
        encoder_output: Tensor,
        attention_mask: Tensor | None = None,
        return_attention_scores: bool = False,
        seed: DropoutSeed | None = None,
        encoder_output_mask: Tensor | None = None,
        training: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attends as `keras.layers.MultiHeadAttention` does.

        Args:
            x: queries [B, T, D].
            encoder_output: [B, S, D], what they attend to.
            attention_mask: bool [B, T, S], see `SelfAttention.call`.
            return_attention_scores: whether to return, after the output [B, T, D], the
                attention weights [B, H, T, S].
            seed: dropout seed, see `Dropout`.
            encoder_output_mask: bool [B, S]; Keras passes the mask of `encoder_output`.
            training: see `Dropout.call`.
        """
        seed = training_seed(self, seed, training)
        key, value = self.project_key_value(encoder_output)
        bias = masking_bias(attention_mask, encoder_output_mask)
        y, scores = self.compute_attention(x, key, value, bias, seed)
        return (y, scores) if return_attention_scores else y

    def project_key_value(self, encoder_output: Tensor) -> list[Tensor]:
        """Projects [B, S, D] to keys [B, H, S, d_k] and values [B, H, S, d_v]."""
        return self.project_heads(
            self.key_value_projection, encoder_output, self.key_size, self.value_size
        )

    def compute_attention(
        self,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        bias: Tensor | None,
        seed: DropoutSeed | None = None,
        kernels: Kernels | None = None,
    ) -> AttentionOutput:
        """Attends from every target position x [B, T, D] to the source.

        Keys and values come from `project_key_value`: decoding computes them once for
        all steps. The bias is broadcastable to [B, H, T, S]. In a decoding step the
        axis T holds a sentence's K beams, which all attend to the same source.
        """
        (query,) = self.project_heads(
            self.query_projection, x, self.key_size, kernels=kernels
        )  # [B, H, T, d_k]
        return self.multi_head(query, [key], [value], bias, seed, kernels)
