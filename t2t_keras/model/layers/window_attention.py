"""Self-attention restricted to neighbours, which the paper proposes (4, Table 1)."""

from collections.abc import Sequence
from typing import Any

from keras import ops

from t2t_keras.model.backend import Tensor, arange, at_least_float32, serializable
from t2t_keras.model.layers.attention import (
    SelfAttention,
    SelfAttentionCache,
    SelfAttentionOutput,
    attention_weights,
)
from t2t_keras.model.layers.dropout import (
    DropoutKeys,
    DropoutSeed,
    ElementKeys,
    row_keys,
    weight_keys,
)
from t2t_keras.model.layers.linear import Kernels
from t2t_keras.model.layers.masks import MASKED

# Added to the scores of positions that only fill up the blocks. It is lower than
# MASKED, so that padding inside a sentence is preferred to them.
_OUTSIDE = 4 * float(MASKED)


@serializable
class WindowSelfAttention(SelfAttention):
    """`SelfAttention` of position i to i - `left_context` ... i + `right_context`.

    The sequence is cut into N blocks of P positions, as many as the window reaches to
    one side. The queries of a block are compared with the keys of the same block and of
    its neighbours in reach, W keys in all. So time and memory are O(r n d), not
    O(n^2 d).

    Args:
        *args: see `SelfAttention`.
        left_context: number of positions on the left that are attended to.
        right_context: number of positions on the right that are attended to; 0 in the
            decoder, where with `left_context` = r - 1 the window is i - r < j <= i.
        **kwargs: see `SelfAttention`.

    Raises:
        ValueError: the score is not scaled.
    """

    def __init__(
        self, *args: Any, left_context: int, right_context: int, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if self.score_function != "scaled":
            raise ValueError("the score of WindowSelfAttention must be 'scaled'")
        self.left_context = left_context
        self.right_context = right_context
        # The number of neighbouring blocks in reach on each side.
        self._neighbours = int(left_context > 0), int(right_context > 0)

    def compute_attention(
        self,
        x: Tensor,
        bias: Tensor | None = None,
        seed: DropoutSeed | None = None,
        cache: SelfAttentionCache | None = None,
        kernels: Kernels | None = None,
    ) -> SelfAttentionOutput:
        """Attends from every position to those in its window.

        It takes the arguments of `SelfAttention.compute_attention`. In a decoding step,
        the bias also masks what is outside the window. The attention weights are in
        blocks [B, H, N, P, W], which `full_attention_scores` makes a matrix.
        """
        if cache is not None:
            return super().compute_attention(x, bias, seed, cache, kernels)
        query, key, value = self.project(x)
        query, key = self.encode_positions(query, key, bias, cache)
        length = ops.shape(x)[1]
        block, fill = self._block(length)
        query = _blocks(query, block, fill)  # [B, H, N, P, d_k]
        key = self._with_neighbours(_blocks(key, block, fill))  # [B, H, N, W, d_k]
        value = self._with_neighbours(_blocks(value, block, fill))  # [B, H, N, W, d_v]
        bias = self._blocks_of_bias(bias, length) + self._window_bias(block)

        scores = ops.matmul(query, ops.swapaxes(key, 3, 4))  # [B, H, N, P, W]
        scores = at_least_float32(scores) * self.key_size**-0.5
        weights = attention_weights(scores, bias)
        seed = self._block_keys(seed, ops.shape(x), block, fill)
        dropped = self.dropout(ops.cast(weights, value.dtype), seed=seed)
        heads = ops.matmul(dropped, value)  # [B, H, N, P, d_v]
        heads = ops.transpose(heads, (0, 2, 3, 1, 4))  # [B, N, P, H, d_v]
        width = self.num_heads * self.value_size
        heads = ops.reshape(heads, (ops.shape(x)[0], -1, width))  # [B, N P, H d_v]
        y = self.output_projection(heads[:, :length])  # [B, T, D]
        return SelfAttentionOutput(y, weights, cache=None)

    def full_attention_scores(self, scores: Tensor, length: int | Tensor) -> Tensor:
        """Returns the scores of `compute_attention` as [B, H, T, T], T = `length`."""
        block, _ = self._block(length)
        batch, heads, count, _, width = ops.shape(scores)
        # Column w of block n stands for the position [n, w], counted from 0.
        columns = arange(width) - self._neighbours[0] * block  # [W]
        positions = columns[None, :] + (arange(count) * block)[:, None]  # [N, W]
        is_column = positions[:, :, None] == arange(length)  # [N, W, T]
        full = ops.matmul(scores, ops.cast(is_column, scores.dtype))  # [B, H, N, P, T]
        return ops.reshape(full, (batch, heads, -1, length))[:, :, :length]

    def _block(self, length: int | Tensor) -> tuple[int | Tensor, int | Tensor]:
        """Returns the block length P and the number of positions that fill up the last.

        P is the window's longer side, or the sequence length if that is shorter.
        """
        reach = max(self.left_context, self.right_context, 1)
        if isinstance(length, int):
            block = min(length, reach)
        elif ops.is_tensor(length):
            block = ops.minimum(length, reach)
        else:
            # JAX infers the shapes of outputs, and has only a name for the length.
            block = length
        return block, -length % block

    def _blocks_of_bias(self, bias: Tensor | None, length: int | Tensor) -> Tensor:
        """Returns the bias of the keys in reach, [B, 1, N, P, W] or [B, 1, N, 1, W].

        The former is of a bias [B, 1, T, T], the latter of [B, 1, 1, T] or None.
        """
        block, fill = self._block(length)
        if bias is None:
            bias = ops.zeros((1, 1, 1, length), "float32")
        if bias.shape[2] == 1:
            columns = _blocks(ops.swapaxes(bias, 2, 3), block, fill, _OUTSIDE)
            columns = self._with_neighbours(columns, _OUTSIDE)  # [B, 1, N, W, 1]
            return ops.swapaxes(columns, 3, 4)
        left_blocks, right_blocks = self._neighbours
        reach = (left_blocks * block, right_blocks * block + fill)
        pads = ((0, 0), (0, 0), (0, 0), reach)
        rows = _pad(bias, pads, _OUTSIDE)  # [B, 1, T, T']
        rows = _blocks(rows, block, fill)  # [B, 1, N, P, T']
        count = ops.shape(rows)[2]
        starts = arange(count)[:, None] * block  # [N, 1]
        width = (1 + left_blocks + right_blocks) * block  # W
        columns = starts + arange(width)  # [N, W]
        return ops.take_along_axis(rows, columns[None, None, :, None], axis=4)

    def _window_bias(self, block: int | Tensor) -> Tensor:
        """Returns the bias [P, W] that masks keys outside the window, in any block."""
        keys = arange((1 + sum(self._neighbours)) * block)  # [W]
        keys = keys - self._neighbours[0] * block
        offsets = keys[None, :] - arange(block)[:, None]  # [P, W]
        is_outside = ops.logical_or(
            offsets < -self.left_context, offsets > self.right_context
        )
        return ops.cast(is_outside, "float32") * MASKED

    def _block_keys(
        self,
        seed: DropoutSeed | None,
        shape: tuple[int | Tensor, ...],
        block: int | Tensor,
        fill: int | Tensor,
    ) -> ElementKeys | None:
        """Returns the keys of `SelfAttention`'s weights, in blocks.

        The input has the shape [B, T, D].
        """
        if seed is None or not self.dropout.rate:
            return None
        if not isinstance(seed, DropoutKeys):
            seed = row_keys(seed, *shape[:2])
        rows, columns = weight_keys(seed, self.num_heads)  # [B, H, T], [B, 1, 1, T]
        rows = _blocks(rows[..., None], block, fill)[..., 0]  # [B, H, N, P]
        columns = _blocks(ops.swapaxes(columns, 2, 3), block, fill)
        columns = self._with_neighbours(columns)  # [B, 1, N, W, 1]
        return ElementKeys(rows, ops.swapaxes(columns, 3, 4))

    def _with_neighbours(self, blocks: Tensor, outside: float = 0.0) -> Tensor:
        """Joins each block with its neighbours: [B, H, N, P, d] to [B, H, N, W, d]."""
        count = ops.shape(blocks)[2]
        pads = ((0, 0), (0, 0), self._neighbours, (0, 0), (0, 0))
        padded = _pad(blocks, pads, outside)
        shifts = range(1 + sum(self._neighbours))
        return ops.concatenate([padded[:, :, k : k + count] for k in shifts], axis=3)

    def get_config(self) -> dict[str, object]:
        """Returns the constructor's arguments."""
        return super().get_config() | {
            "left_context": self.left_context,
            "right_context": self.right_context,
        }


def _blocks(
    x: Tensor, block: int | Tensor, fill: int | Tensor, outside: float = 0.0
) -> Tensor:
    """Cuts [B, H, T, d] into blocks [B, H, N, P, d], filled up to N P positions."""
    batch, heads, _, size = ops.shape(x)
    pads = ((0, 0), (0, 0), (0, fill), (0, 0))
    x = _pad(x, pads, outside)  # [B, H, N P, d]
    return ops.reshape(x, (batch, heads, -1, block, size))


def _pad(
    x: Tensor, pads: Sequence[tuple[int | Tensor, int | Tensor]], value: float
) -> Tensor:
    """Pads x with a value: before and after each axis, as many as `pads` says."""
    padded = ops.pad(x, pads)
    if not value:
        return padded
    # TensorFlow takes a value other than 0 from a GPU to the host, which waits for it.
    is_inside = ops.pad(ops.ones_like(x), pads)
    return padded + (1.0 - is_inside) * value
