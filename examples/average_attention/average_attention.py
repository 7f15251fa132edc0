"""Average attention (Zhang et al., ACL 2018) as a registered model.

A decoding step costs the same at every length: each hypothesis keeps a sum in place of
the keys and values of its tokens. Use it by `t2t ... --usr_dir`. Letters in shapes are
those of `t2t_keras.model.layers`.
"""

import dataclasses
from typing import Any, NamedTuple

from keras import ops

from t2t_keras import HParams, option, register_hparams, register_model, registry
from t2t_keras.model.layers import Block, FeedForward, Linear
from t2t_keras.model.transformer import Transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class AverageHParams(HParams):
    """The hyper-parameters of `average_attention`."""

    model: str = option("average_attention", "the registered model (`t2t list`)")
    average_d_ff: int = option(
        0, "inner width of the network on the average; 0 for none", ge=0
    )


class AverageCache(NamedTuple):
    """The sum [B, K, D] of each hypothesis's inputs; their number [B, 1, 1]."""

    total: Any
    count: Any

    def select(self, rows: Any, columns: Any) -> "AverageCache":
        """Returns the cache of sentences [R]; no tokens are kept."""
        del columns
        return AverageCache(*(ops.take(x, rows, axis=0) for x in self))

    def reorder(self, parents: Any) -> "AverageCache":
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
        self, feed_forward: Any, num_heads: int, d_model: int, **kwargs: Any
    ) -> None:
        super().__init__(autocast=False, **kwargs)  # the sum is float32
        self.feed_forward = feed_forward
        self.num_heads = num_heads
        self.d_model = d_model
        gates = {"activation": "sigmoid", "dtype": self.dtype_policy}
        self.input_gate = Linear(d_model, name="input_gate", **gates)
        self.forget_gate = Linear(d_model, name="forget_gate", **gates)

    def compute_attention(
        self, x: Any, bias: Any = None, seed: Any = None, cache: Any = None
    ) -> tuple[Any, Any, Any]:
        """Averages all positions, or continues a cache, as `SelfAttention` does."""
        del bias
        batch, length, _ = ops.shape(x)
        if cache is None:
            counts = ops.arange(1, length + 1, dtype="float32")
            average = ops.cumsum(x, axis=1) / counts[:, None]
        else:
            cache = AverageCache(cache.total + x, cache.count + 1.0)
            average = cache.total / cache.count
        y = average
        if self.feed_forward:
            y = self.feed_forward(average, seed=seed)
        x, y = (ops.cast(z, self.compute_dtype) for z in (x, y))
        y = self.input_gate(x) * x + self.forget_gate(y) * y
        return y, ops.zeros((batch, self.num_heads, length, 1)), cache

    def empty_cache(self, batch_size: Any, num_beams: Any) -> AverageCache:
        """Returns the cache before the first step."""
        total = ops.zeros((batch_size, num_beams, self.d_model))
        return AverageCache(total, ops.zeros((batch_size, 1, 1)))


@register_model(hparams=AverageHParams)
class AverageAttention(Transformer):
    """The paper's model, with average attention as the decoder's self-attention."""

    def make_self_attention(self, causal: bool) -> Any:
        """Returns average attention in the decoder, self-attention in the encoder."""
        if not causal:
            return super().make_self_attention(causal)
        hparams, dtype = self.hparams, self.dtype_policy
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
