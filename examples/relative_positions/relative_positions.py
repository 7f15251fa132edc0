"""Relative positions (Shaw et al., NAACL 2018) as a registered model.

The score of query i and key j is q_i . (k_j + a[j - i]) / sqrt(d), with a learned
vector a for each distance, clipped. The paper also has vectors for values, and finds
that those for keys may suffice. Use it with `t2t ... --usr_dir`. Letters in shapes
are those of `t2t_keras.model.layers`; R is the number of distances.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from keras import ops

from t2t_keras import (
    HParams,
    UserError,
    option,
    register_hparams,
    register_model,
    registry,
)
from t2t_keras.model import SelfAttention, Transformer
from t2t_keras.model.backend import Shape, Tensor
from t2t_keras.model.layers import AttentionOutput, Kernels


@dataclasses.dataclass(frozen=True, kw_only=True)
class RelativeHParams(HParams):
    """The hyper-parameters of `relative_positions`."""

    model: str = option("relative_positions", "the registered model (`t2t list`)")
    max_distance: int = option(16, "larger distances share its vector", ge=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention_window or self.attention == "additive":
            raise UserError(
                "hparams: relative_positions has no attention_window and no additive "
                "attention; leave them out"
            )


class RelativeAttention(SelfAttention):
    """Self-attention with a learned vector for each distance."""

    def __init__(self, *args: Any, max_distance: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.max_distance = max_distance

    def build(self, input_shape: Shape) -> None:
        """Creates the weights."""
        super().build(input_shape)
        shape = (2 * self.max_distance + 1, self.key_size)
        self.vectors = self.add_weight(name="distances", shape=shape)

    def multi_head(
        self,
        query: Tensor,
        keys: Sequence[Tensor],
        values: Sequence[Tensor],
        bias: Tensor | None,
        seed: Tensor | None = None,
        kernels: Kernels | None = None,
    ) -> AttentionOutput:
        """Adds the scores of distances to the bias; see `MultiHead.multi_head`."""
        vectors = ops.cast(self.vectors, query.dtype)[None, None]  # [1, 1, R, d]
        scores = self.score(query, vectors)  # [B, H, T, R]
        limit = self.max_distance
        index = ops.clip(self.distances(query, bias), -limit, limit) + limit
        scores = ops.take_along_axis(scores, index, axis=-1)  # [B, H, T, S]
        bias = scores if bias is None else scores + bias
        return super().multi_head(query, keys, values, bias, seed, kernels)

    def distances(self, query: Tensor, bias: Tensor | None) -> Tensor:
        """Returns j - i of queries i and keys j, int32 [B, 1, T, S] or [1, 1, T, S].

        In the decoder, a token sees earlier ones and itself, in their order; in a
        decoding step only `bias` tells which of the S tokens precede it.
        """
        if not self.causal:
            steps = ops.arange(ops.shape(query)[2])  # [T]
            return (steps - steps[:, None])[None, None]
        is_visible = ops.cast(ops.equal(bias, 0.0), "float32")  # [B, 1, T, S]
        count = ops.cumsum(is_visible, axis=-1)  # [B, 1, T, S]
        return ops.cast(count - count[..., -1:], "int32")

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {"max_distance": self.max_distance}


@register_model(hparams=RelativeHParams)
class RelativePositions(Transformer):
    """The paper's model with relative positions in self-attention."""

    def make_positions(self) -> Callable[[Tensor], Tensor]:
        """Adds nothing to embeddings: self-attention has the positions."""
        return lambda positions: 0.0

    def make_self_attention(self, causal: bool) -> SelfAttention:
        """Returns self-attention with relative positions."""
        options = self.attention_options("self_attention")
        max_distance = self.hparams.max_distance
        return RelativeAttention(causal=causal, max_distance=max_distance, **options)


@register_hparams
def relative_tiny() -> HParams:
    """`tiny` with relative positions."""
    return registry.hparams("tiny").override(model="relative_positions")
