"""Self-attention restricted to neighbours, which the paper proposes (4, Table 1)."""

from typing import Any

from keras import ops

from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers import (
    MASKED,
    SelfAttention,
    SelfAttentionCache,
    attention_weights,
    serializable,
)

# Added to the logits of positions that only fill up the blocks. It is lower than
# MASKED, so that padding inside a sentence is preferred to them.
_OUTSIDE = 4 * MASKED


@serializable
class WindowSelfAttention(SelfAttention):
    """`SelfAttention` of each position i to those from i - `before` to i + `after`.

    The sequence is cut into N blocks of P positions, as many as the window reaches to
    one side. The queries of a block are compared with the keys of the same block and of
    its neighbours in reach, W keys in all. So time and memory are O(r n d), not
    O(n^2 d).

    Args:
        *args: see `SelfAttention`.
        before: number of positions on the left that are attended to.
        after: number of positions on the right that are attended to; 0 in the decoder,
            where with `before` = r - 1 the window is i - r < j <= i.
        **kwargs: see `SelfAttention`.

    Raises:
        ValueError: the score is not scaled.
    """

    def __init__(self, *args: Any, before: int, after: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.score_function != "scaled":
            raise ValueError("the score of WindowSelfAttention must be 'scaled'")
        self.before = before
        self.after = after

    def compute_attention(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        seed: Tensor | None = None,
        cache: SelfAttentionCache | None = None,
    ) -> tuple[Tensor, Tensor, SelfAttentionCache | None]:
        """Attends from every position to those in its window.

        Args:
            x: [B, T, D]
            bias: [B, 1, 1, T], masks padding.
            seed: dropout seed, see `Dropout`.
            cache: as in `SelfAttention.compute_attention`; in a decoding step `bias`
                masks what is outside the window.

        Returns:
            The output [B, T, D]; the attention weights in blocks [B, H, N, P, W],
            which `full_attention_scores` makes a matrix; and the cache.

        Raises:
            ValueError: the mask of a query is not that of all others.
        """
        if cache is not None:
            return super().compute_attention(x, bias, seed, cache)
        query, key, value = self.project(x)
        length = ops.shape(x)[1]
        if bias is None:
            bias = ops.zeros((1, 1, 1, length))
        elif bias.shape[2] != 1:
            raise ValueError(
                "a window takes an attention_mask [B, 1, T], which masks padding, and "
                "no causal mask: make it with after=0"
            )
        block, fill = self._block(length)
        query = _blocks(query, block, fill)
        key = self._with_neighbours(_blocks(key, block, fill))
        value = self._with_neighbours(_blocks(value, block, fill))
        bias = _blocks(ops.swapaxes(bias, 2, 3), block, fill, _OUTSIDE)
        bias = ops.swapaxes(self._with_neighbours(bias, _OUTSIDE), 3, 4)

        logits = ops.matmul(query, ops.swapaxes(key, 3, 4))  # [B, H, N, P, W]
        logits = ops.cast(logits, "float32") * self.key_size**-0.5
        weights = attention_weights(logits, bias + self._block_bias(block))
        dropped = self.dropout(ops.cast(weights, value.dtype), seed=seed)
        heads = ops.matmul(dropped, value)  # [B, H, N, P, d_v]
        joined = ops.transpose(heads, (0, 2, 3, 1, 4))
        width = self.num_heads * self.value_size
        joined = ops.reshape(joined, (ops.shape(x)[0], -1, width))
        return self.output_projection(joined[:, :length]), weights, None

    def full_attention_scores(self, weights: Tensor, length: int | Tensor) -> Tensor:
        """Returns the weights of `compute_attention` as [B, H, T, T], T = `length`."""
        block, _ = self._block(length)
        count = ops.shape(weights)[2]
        # The position, from 0, that column w of block n stands for.
        columns = ops.arange(ops.shape(weights)[4]) - int(self.before > 0) * block
        positions = columns[None, :] + (ops.arange(count) * block)[:, None]  # [N, W]
        is_column = positions[:, :, None] == ops.arange(length)  # [N, W, T]
        full = ops.matmul(weights, ops.cast(is_column, weights.dtype))
        batch, heads, *_ = ops.shape(weights)
        return ops.reshape(full, (batch, heads, -1, length))[:, :, :length]

    def _block(self, length: int | Tensor) -> tuple[int | Tensor, int | Tensor]:
        """Returns the block length P and the number of positions that fill up the last.

        P is the window's longer side, or the sequence length if that is shorter.
        """
        reach = max(self.before, self.after, 1)
        known = isinstance(length, int)
        block = min(length, reach) if known else ops.minimum(length, reach)
        return block, -length % block

    def _block_bias(self, block: int | Tensor) -> Tensor:
        """Returns the bias [P, W] that masks keys outside the window, in any block."""
        sides = int(self.before > 0), int(self.after > 0)
        keys = ops.arange((1 + sum(sides)) * block) - sides[0] * block
        offsets = keys[None, :] - ops.arange(block)[:, None]
        outside = ops.logical_or(offsets < -self.before, offsets > self.after)
        return ops.cast(outside, "float32") * MASKED

    def _with_neighbours(self, blocks: Tensor, outside: float = 0.0) -> Tensor:
        """Joins each block with its neighbours: [B, H, N, P, d] to [B, H, N, W, d]."""
        count = ops.shape(blocks)[2]
        sides = int(self.before > 0), int(self.after > 0)
        none = (0, 0)
        padded = ops.pad(
            blocks, (none, none, sides, none, none), constant_values=outside
        )
        shifted = [padded[:, :, k : k + count] for k in range(1 + sum(sides))]
        return ops.concatenate(shifted, axis=3)


def _blocks(
    x: Tensor, block: int | Tensor, fill: int | Tensor, outside: float = 0.0
) -> Tensor:
    """Cuts [B, H, T, d] into blocks [B, H, N, P, d], filled up to N P positions."""
    batch, heads, _, size = ops.shape(x)
    none = (0, 0)
    x = ops.pad(x, (none, none, (0, fill), none), constant_values=outside)
    return ops.reshape(x, (batch, heads, -1, block, size))
