"""A Transformer of today as a registered model: the parts that replace the paper's.

Rotary positions (Su et al., 2021), RMSNorm (Zhang and Sennrich, 2019), SwiGLU (Shazeer,
2020) and grouped key/value heads (Ainslie et al., 2023). Use it with `t2t ...
--usr_dir`. Letters in shapes are those of `t2t_keras.model.layers`; G is the number of
key/value heads, C the number of cached tokens.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from t2t_keras import (
    HParams,
    UserError,
    option,
    register_hparams,
    register_model,
    registry,
)
from t2t_keras.model import FeedForward, Linear, SelfAttention, Transformer
from t2t_keras.model.backend import Shape, Tensor
from t2t_keras.model.layers import (
    Kernels,
    SelfAttentionOutput,
    UsedColumns,
    add_used,
    append_columns,
    bias_positions,
    causal_bias,
    count_used,
    reserve_columns,
    select_columns,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModernHParams(HParams):
    """The hyper-parameters of `modern_transformer`."""

    model: str = option("modern_transformer", "the registered model (`t2t list`)")
    num_kv_heads: int = option(2, "key/value heads of self-attention (G)", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_heads % self.num_kv_heads or self.key_size % 2:
            raise UserError(
                f"hparams: num_heads {self.num_heads} must be divisible by "
                f"num_kv_heads {self.num_kv_heads}, and the size of a head even"
            )
        if self.key_size != self.value_size:
            raise UserError("hparams: modern_transformer needs d_k equal to d_v")
        if self.attention_window or self.position != "sinusoidal":
            raise UserError(
                "hparams: modern_transformer has rotary positions and no "
                "attention_window; leave out position and attention_window"
            )


class RotaryCache(NamedTuple):
    """Keys and values [B, G, C, d] of a sentence's tokens; the next position [B, 1]."""

    key: Tensor
    value: Tensor
    position: Tensor
    used: UsedColumns = ()

    def append(self, key: Tensor, value: Tensor) -> "RotaryCache":
        """Returns the cache with the keys and values [B, G, K, d] of a step."""
        return RotaryCache(
            append_columns(self.key, key, self.used),
            append_columns(self.value, value, self.used),
            self.position + 1,
            add_used(self.used, key),
        )

    def reserve(self, columns: int | Tensor) -> "RotaryCache":
        """Returns the cache with free columns, for `columns` tokens in all."""
        return RotaryCache(
            reserve_columns(self.key, columns),
            reserve_columns(self.value, columns),
            self.position,
            count_used(self.key, self.used),
        )

    def select(self, rows: Tensor, columns: Tensor) -> "RotaryCache":
        """Returns the cache of sentences [R] with some of their tokens [R, U]."""
        key = select_columns(self.key, rows, columns)  # [R, G, U, d]
        value = select_columns(self.value, rows, columns)  # [R, G, U, d]
        return RotaryCache(key, value, ops.take(self.position, rows, axis=0))

    def reorder(self, parents: Tensor) -> "RotaryCache":
        """Returns the same cache: the beams of a sentence share all tokens."""
        return self


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotates the pairs (x[i], x[i + d / 2]) by angles proportional to the position.

    Args:
        x: queries or keys [B, H, T, d]; d is even.
        positions: [1, T] or [B, T].
    """
    half = x.shape[-1] // 2
    rates = 10000.0 ** (-np.arange(half) / half)
    angles = ops.cast(positions, "float32")[:, None, :, None] * rates.astype("float32")
    cos = ops.cast(ops.cos(angles), x.dtype)  # [B, 1, T, d / 2]
    sin = ops.cast(ops.sin(angles), x.dtype)
    a = x[..., :half]
    b = x[..., half:]
    return ops.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


@keras.saving.register_keras_serializable("modern_transformer")
class RotaryAttention(SelfAttention):
    """Self-attention with rotary positions, whose heads share G keys and values."""

    def __init__(self, *args: Any, num_kv_heads: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_kv_heads = num_kv_heads

    def make_projection(self) -> Linear:
        """Returns the projection to queries, keys and values."""
        queries = self.num_heads * self.key_size
        keys = self.num_kv_heads * self.key_size
        return self.make_linear(queries, keys, keys, name="query_key_value")

    def compute_attention(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        seed: Tensor | None = None,
        cache: RotaryCache | None = None,
        kernels: Kernels | None = None,
    ) -> SelfAttentionOutput:
        """Has the arguments and results of `SelfAttention.compute_attention`."""
        batch, length, _ = ops.shape(x)
        heads = self.projection(x, kernels=kernels)
        count = self.num_heads + 2 * self.num_kv_heads
        heads = ops.reshape(heads, (batch, length, count, self.key_size))
        heads = ops.transpose(heads, (0, 2, 1, 3))  # [B, H + 2 G, T, d]
        boundaries = (self.num_heads, self.num_heads + self.num_kv_heads)
        query, key, value = ops.split(heads, boundaries, axis=1)
        positions = bias_positions(bias, length) if cache is None else cache.position
        query = rotate(query, positions)
        key = rotate(key, positions)
        if cache is not None:
            cache = cache.append(key, value)
            key = cache.key  # [B, G, C + K, d]
            value = cache.value
        elif self.causal:
            bias = causal_bias(length, bias)
        groups = self.num_heads // self.num_kv_heads
        key = ops.repeat(key, groups, axis=1)  # [B, H, S, d]
        value = ops.repeat(value, groups, axis=1)
        attention = self.multi_head(query, [key], [value], bias, seed, kernels)
        return SelfAttentionOutput(*attention, cache)

    def empty_cache(
        self, batch_size: int | Tensor, num_beams: int | Tensor
    ) -> RotaryCache:
        """Returns the cache before the first step."""
        shape = (batch_size, self.num_kv_heads, 0, self.key_size)
        key = ops.zeros(shape, self.compute_dtype)
        return RotaryCache(key, key, ops.zeros((batch_size, 1), "int32"))

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"num_kv_heads": self.num_kv_heads}


@keras.saving.register_keras_serializable("modern_transformer")
class SwiGLU(FeedForward):
    """The feed-forward network (swish(x W1 + b1) * (x W3 + b3)) W2 + b2."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gate = Linear(self.d_ff, name="gate", dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        super().build(input_shape)
        self.gate.build(input_shape)

    def call(
        self, x: Tensor, seed: Tensor | None = None, kernels: Kernels | None = None
    ) -> Tensor:
        """Maps [B, T, D] to [B, T, D]."""
        gate = ops.silu(self.gate(x, kernels=kernels))  # [B, T, F]
        hidden = gate * self.inner(x, kernels=kernels)
        return self.outer(self.dropout(hidden, seed=seed), kernels=kernels)


@register_model(hparams=ModernHParams)
@keras.saving.register_keras_serializable("modern_transformer")
class ModernTransformer(Transformer):
    """Rotary positions, RMSNorm, SwiGLU and grouped key/value heads."""

    def make_positions(self) -> Callable[[Tensor], Tensor]:
        """Adds nothing to embeddings: self-attention has the positions."""
        return lambda positions: 0.0

    def make_norm(self) -> keras.layers.Layer:
        """Returns RMSNorm."""
        return keras.layers.RMSNormalization(name="norm", dtype="float32")

    def make_self_attention(self, causal: bool) -> SelfAttention:
        """Returns rotary self-attention."""
        options = self.attention_options("self_attention")
        num_kv_heads = self.hparams.num_kv_heads
        return RotaryAttention(causal=causal, num_kv_heads=num_kv_heads, **options)

    def make_feed_forward(self) -> FeedForward:
        """Returns SwiGLU."""
        return SwiGLU(
            self.hparams.d_model,
            self.hparams.d_ff,
            self.hparams.ffn_dropout,
            name="feed_forward",
            dtype=self.dtype_policy,
        )


@register_hparams
def modern_tiny() -> HParams:
    """`tiny` as a modern transformer, with the same number of parameters."""
    return registry.hparams("tiny").override(
        model="modern_transformer", norm="pre", d_ff=384
    )
