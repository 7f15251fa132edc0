"""Multi-head attention of a sequence to itself (3.2.3), and its decoding cache."""

from typing import Any, NamedTuple, Protocol, Self

from keras import ops

from t2t_keras.model.backend import Shape, Tensor
from t2t_keras.model.layers.attention import MultiHead
from t2t_keras.model.layers.base import serializable
from t2t_keras.model.layers.columns import (
    UsedColumns,
    add_used,
    append_columns,
    column_indices,
    count_used,
    reserve_columns,
    take_columns,
)
from t2t_keras.model.layers.dropout_keys import DropoutSeed
from t2t_keras.model.layers.linear import Kernels, Linear
from t2t_keras.model.layers.masks import causal_bias, with_masks


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
        """
        bias = with_masks(None, attention_mask, mask, x_mask)
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
        mask: in training `bias_positions`, and in a decoding step that of all others.
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
