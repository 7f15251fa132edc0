"""Self-attention restricted to neighbours, the paper's next step (4, Table 1)."""

from typing import Any

from keras import ops

from t2t_keras.backend import Tensor
from t2t_keras.model.layers import (
    MASKED,
    AttentionKernels,
    SelfAttention,
    attention_weights,
)

# Positions that only fill up the blocks; further away than padding inside a sentence.
_OUTSIDE = 4 * MASKED


class WindowSelfAttention(SelfAttention):
    """`SelfAttention` of each position i to those from i - `before` to i + `after`.

    Computed in blocks:
    positions are cut into blocks as long as the window reaches, and the queries of a
    block meet the keys of their own block and of the blocks beside it, nothing else. So
    time and memory are O(r n d), not O(n^2 d).

    Args:
        *args: see `SelfAttention`.
        before: positions seen on the left.
        after: positions seen on the right; 0 in the decoder, where with
            `before` = r - 1 the window is i - r < j <= i.
        **kwargs: see `SelfAttention`.
    """

    def __init__(self, *args: Any, before: int, after: int, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.before = before
        self.after = after

    def step(
        self,
        x: Tensor,
        key: Tensor,
        value: Tensor,
        kernels: AttentionKernels = AttentionKernels(),  # noqa: B008, it is immutable
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `SelfAttention.step`; the past is cut to what the window can see."""
        seen = slice(-self.before, None) if self.before else slice(0)
        return super().step(x, key[:, :, seen], value[:, :, seen], kernels)

    def causal_bias(self, length: int | Tensor) -> None:
        """Returns None: the window hides the future."""
        del length

    def call(
        self, x: Tensor, bias: Tensor | None, seed: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attends.

        Args:
            x: [B, T, D]
            bias: [B, 1, 1, T], hides padding. Not read where nothing is seen on the
                right: what hides the future then is the window.
            seed: of dropout; None at inference.

        Returns:
            The output [B, T, D], and the weights of the blocks [B, H, N, P, W], which
            `full_weights` makes a matrix.
        """
        query, key, value = self._project(x)
        length = ops.shape(x)[1]
        if bias is None or not self.after:
            bias = ops.zeros((1, 1, 1, length))
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
        return self.output_projection(joined[:, :length]), weights

    def full_weights(self, weights: Tensor, length: int | Tensor) -> Tensor:
        """Returns the weights [B, H, T, T] of blocks of `call`, for T = `length`."""
        block, _ = self._block(length)
        count = ops.shape(weights)[2]
        # Which position, from 0, column w of block n belongs to.
        columns = ops.arange(ops.shape(weights)[4]) - int(self.before > 0) * block
        positions = columns[None, :] + (ops.arange(count) * block)[:, None]  # [N, W]
        is_column = positions[:, :, None] == ops.arange(length)  # [N, W, T]
        full = ops.matmul(weights, ops.cast(is_column, weights.dtype))
        batch, heads, *_ = ops.shape(weights)
        return ops.reshape(full, (batch, heads, -1, length))[:, :, :length]

    def _block(self, length: int | Tensor) -> tuple[int | Tensor, int | Tensor]:
        """Returns P, the length of a block, and how many positions fill up the last.

        P is the reach of the window, unless the whole sentence is shorter.
        """
        reach = max(self.before, self.after, 1)
        known = isinstance(length, int)
        block = min(length, reach) if known else ops.minimum(length, reach)
        return block, -length % block

    def _block_bias(self, block: int | Tensor) -> Tensor:
        """Returns what hides the window's outside: [P, W], the same in every block."""
        sides = int(self.before > 0), int(self.after > 0)
        keys = ops.arange((1 + sum(sides)) * block) - sides[0] * block
        offsets = keys[None, :] - ops.arange(block)[:, None]
        outside = ops.logical_or(offsets < -self.before, offsets > self.after)
        return ops.cast(outside, "float32") * MASKED

    def _with_neighbours(self, blocks: Tensor, outside: float = 0.0) -> Tensor:
        """[B, H, N, P, d] -> [B, H, N, W, d]: joins the blocks in reach to each."""
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
    """[B, H, T, d] -> [B, H, N, P, d], filled up to N P positions."""
    batch, heads, _, size = ops.shape(x)
    none = (0, 0)
    x = ops.pad(x, (none, none, (0, fill), none), constant_values=outside)
    return ops.reshape(x, (batch, heads, -1, block, size))
