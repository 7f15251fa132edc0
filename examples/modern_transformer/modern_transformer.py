"""A Transformer of today as a registered model: the parts that replace the paper's.

Rotary positions (Su et al., 2021), RMSNorm (Zhang and Sennrich, 2019), SwiGLU (Shazeer,
2020) and grouped key/value heads (Ainslie et al., 2023); use it by `t2t ... --usr_dir`.
Letters in shapes are those of `t2t_keras.model.layers`; G is the number of key/value
heads, C the number of cached tokens.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras import (
    HParams,
    UserError,
    option,
    register_hparams,
    register_model,
    registry,
)
from t2t_keras.model.layers import (
    FeedForward,
    Linear,
    SelfAttention,
    causal_bias,
    rotated,
    select_columns,
)
from t2t_keras.model.transformer import Transformer


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

    key: Any
    value: Any
    position: Any

    def select(self, rows: Any, columns: Any) -> "RotaryCache":
        """Returns the cache of sentences [R] with some of their tokens [R, U]."""
        key, value = (select_columns(x, rows, columns) for x in self[:2])
        return RotaryCache(key, value, ops.take(self.position, rows, axis=0))

    def reorder(self, parents: Any) -> "RotaryCache":
        """Returns the cache after beams changed places: beams share all tokens."""
        return self


@keras.saving.register_keras_serializable("modern_transformer")
class RotaryAttention(SelfAttention):
    """Self-attention with rotary positions, whose heads share G keys and values."""

    def __init__(self, *args: Any, num_kv_heads: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.num_kv_heads = num_kv_heads

    def make_projection(self) -> Linear:
        """Returns the projection to queries, keys and values."""
        heads = self.num_heads, self.num_kv_heads, self.num_kv_heads
        widths = (number * self.key_size for number in heads)
        return self.make_linear(*widths, name="query_key_value")

    def compute_attention(
        self, x: Any, bias: Any = None, seed: Any = None, cache: Any = None
    ) -> tuple[Any, Any, Any]:
        """Has the arguments and results of `SelfAttention.compute_attention`."""
        batch, length, _ = ops.shape(x)
        ends = self.num_heads, self.num_heads + self.num_kv_heads
        heads = self.projection(x)
        count = heads.shape[-1] // self.key_size
        heads = ops.reshape(heads, (batch, length, count, self.key_size))
        heads = ops.transpose(heads, (0, 2, 1, 3))
        query, key, value = ops.split(heads, ends, axis=1)
        positions = ops.arange(length)[None] if cache is None else cache.position
        query, key = rotated(query, positions), rotated(key, positions)
        if cache is not None:
            key = ops.concatenate([cache.key, key], axis=2)
            value = ops.concatenate([cache.value, value], axis=2)
            cache = RotaryCache(key, value, cache.position + 1)
        elif self.causal:
            bias = causal_bias(length, bias)
        groups = self.num_heads // self.num_kv_heads
        key, value = (ops.repeat(x, groups, axis=1) for x in (key, value))
        return *self.multi_head(query, [key], [value], bias, seed), cache

    def empty_cache(self, batch_size: Any, num_beams: Any) -> RotaryCache:
        """Returns the cache before the first step."""
        tokens = (batch_size, self.num_kv_heads, 0, self.key_size)
        none = ops.zeros(tokens, self.compute_dtype)
        return RotaryCache(none, none, ops.zeros((batch_size, 1), "int32"))


@keras.saving.register_keras_serializable("modern_transformer")
class SwiGLU(FeedForward):
    """The feed-forward network (swish(x W1 + b1) * (x W3 + b3)) W2 + b2."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gate = Linear(self.d_ff, name="gate", dtype=self.dtype_policy)

    def build(self, input_shape: Any) -> None:
        """Creates the weights."""
        super().build(input_shape)
        self.gate.build(input_shape)

    def call(self, x: Any, seed: Any = None) -> Any:
        """Maps [B, T, D] to [B, T, D]."""
        hidden = ops.silu(self.gate(x)) * self.inner(x)
        return self.outer(self.dropout(hidden, seed=seed))


@register_model(hparams=ModernHParams)
@keras.saving.register_keras_serializable("modern_transformer")
class ModernTransformer(Transformer):
    """Rotary positions, RMSNorm, SwiGLU and grouped key/value heads."""

    def make_positions(self) -> Callable[[Any], Any]:
        """Adds nothing to embeddings: self-attention has the positions."""
        return lambda positions: 0.0

    def make_norm(self) -> keras.layers.Layer:
        """Returns RMSNorm."""
        return keras.layers.RMSNormalization(name="norm", dtype="float32")

    def make_self_attention(self, causal: bool) -> SelfAttention:
        """Returns rotary self-attention."""
        groups = self.hparams.num_kv_heads
        options = self.attention_options("self_attention")
        return RotaryAttention(causal=causal, num_kv_heads=groups, **options)

    def make_feed_forward(self) -> FeedForward:
        """Returns SwiGLU."""
        d_model, d_ff = self.hparams.d_model, self.hparams.d_ff
        dropout, dtype = self.hparams.ffn_dropout, self.dtype_policy
        return SwiGLU(d_model, d_ff, dropout, name="feed_forward", dtype=dtype)


@register_hparams
def modern_tiny() -> HParams:
    """`tiny` as a modern transformer, with the same number of parameters."""
    return registry.hparams("tiny").override(
        model="modern_transformer", norm="pre", d_ff=384
    )
