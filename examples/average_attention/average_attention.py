"""Average attention (Zhang et al., ACL 2018) as a registered model.

A decoding step costs the same at every length: each hypothesis keeps a sum in place of
the keys and values of its tokens. Use it with `t2t ... --usr_dir`. Letters in shapes
are those of `t2t_keras.model.layers`.
"""

import dataclasses
from typing import Any, NamedTuple

import keras
from keras import ops

from t2t_keras import HParams, option, register_hparams, register_model, registry
from t2t_keras.model import Block, FeedForward, Linear, SelfAttention, Transformer
from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers import Kernels, SelfAttentionOutput, causal_bias


@dataclasses.dataclass(frozen=True, kw_only=True)
class AverageHParams(HParams):
    """The hyper-parameters of `average_attention`."""

    model: str = option("average_attention", "the registered model (`t2t list`)")
    average_d_ff: int = option(
        0, "inner width of the network on the average; 0 for none", ge=0
    )


class AverageCache(NamedTuple):
    """The sum [B, K, D] of each hypothesis's inputs; their number [B, 1, 1]."""

    total: Tensor
    count: Tensor

    def select(self, rows: Tensor, columns: Tensor) -> "AverageCache":
        """Returns the cache of sentences [R]; it holds no single tokens."""
        del columns
        total = ops.take(self.total, rows, axis=0)  # [R, K, D]
        return AverageCache(total, ops.take(self.count, rows, axis=0))

    def reorder(self, parents: Tensor) -> "AverageCache":
        """Returns the cache in which beam k continues beam `parents[b, k]`, [B, K]."""
        total = ops.take_along_axis(self.total, parents[:, :, None], axis=1)
        return self._replace(total=total)


class GatedAverage(Block):
    """The gated average of all inputs up to a position (Zhang et al., equations 1-3).

    g_t = FFN(mean(x_1 ... x_t)), h_t = sigmoid(x_t W_i) x_t + sigmoid(g_t W_f) g_t.
    As in Marian, each gate sees what it scales; in the paper both see x_t and g_t.

    Args:
        feed_forward: the FFN; None to leave it out.
        num_heads: number of heads H that other layers have.
        d_model: model width D.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    def __init__(
        self,
        feed_forward: FeedForward | None,
        num_heads: int,
        d_model: int,
        **kwargs: Any,
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # The sum needs float32 inputs.
        self.feed_forward = feed_forward
        self.num_heads = num_heads
        self.d_model = d_model
        self.input_gate = self._make_gate("input_gate")
        self.forget_gate = self._make_gate("forget_gate")

    def _make_gate(self, name: str) -> Linear:
        dtype = self.dtype_policy
        return Linear(self.d_model, activation="sigmoid", name=name, dtype=dtype)

    def compute_attention(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        seed: Tensor | None = None,
        cache: AverageCache | None = None,
        kernels: Kernels | None = None,
    ) -> SelfAttentionOutput:
        """Averages all positions, or continues a cache, as `SelfAttention` does."""
        batch, length, _ = ops.shape(x)
        if cache is not None:
            cache = AverageCache(cache.total + x, cache.count + 1.0)
            average = cache.total / cache.count  # [B, K, D]
        elif bias is not None:  # packed rows: the mean of the tokens that one sees
            weights = ops.softmax(causal_bias(length, bias))[:, 0]  # [B, T, T]
            average = ops.matmul(weights, x)  # [B, T, D]
        else:
            counts = ops.arange(1, length + 1, dtype="float32")
            average = ops.cumsum(x, axis=1) / counts[:, None]  # [B, T, D]
        if self.feed_forward:
            average = self.feed_forward(average, seed=seed, kernels=kernels)
        x = ops.cast(x, self.compute_dtype)
        y = ops.cast(average, self.compute_dtype)
        x = self.input_gate(x, kernels=kernels) * x
        y = self.forget_gate(y, kernels=kernels) * y
        no_scores = ops.zeros((batch, self.num_heads, length, 1))
        return SelfAttentionOutput(x + y, no_scores, cache)

    def empty_cache(
        self, batch_size: int | Tensor, num_beams: int | Tensor
    ) -> AverageCache:
        """Returns the cache before the first step."""
        total = ops.zeros((batch_size, num_beams, self.d_model))
        return AverageCache(total, ops.zeros((batch_size, 1, 1)))

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "feed_forward": keras.saving.serialize_keras_object(self.feed_forward),
            "num_heads": self.num_heads,
            "d_model": self.d_model,
        }


@register_model(hparams=AverageHParams)
class AverageAttention(Transformer):
    """The paper's model, with average attention as the decoder's self-attention."""

    def make_self_attention(self, causal: bool) -> SelfAttention | GatedAverage:
        """Returns average attention in the decoder, self-attention in the encoder."""
        if not causal:
            return super().make_self_attention(causal)
        hparams = self.hparams
        dtype = self.dtype_policy
        feed_forward = None
        if width := hparams.average_d_ff:
            feed_forward = FeedForward(
                hparams.d_model, width, hparams.ffn_dropout, name="average", dtype=dtype
            )
        return GatedAverage(
            feed_forward,
            hparams.num_heads,
            hparams.d_model,
            name="self_attention",
            dtype=dtype,
        )


@register_hparams
def average_tiny() -> HParams:
    """`tiny` with average attention."""
    return registry.hparams("tiny").override(model="average_attention")
