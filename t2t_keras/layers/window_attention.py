"""Self-attention restricted to neighbours, the paper's next step (4, Table 1).

Computed in blocks: positions are cut into blocks as long as the window reaches, and the
queries of a block meet the keys of their own block and of the blocks beside it, nothing
else. So time and memory are O(r n d), not O(n^2 d).
"""

from typing import Any

from keras import ops

from t2t_keras.layers.attention import MASKED, SelfAttention

# Positions that only fill up the blocks; further away than padding inside a sentence.
_OUTSIDE = 4 * MASKED


class WindowSelfAttention(SelfAttention):
    """`SelfAttention` of each position i to those from i - `before` to i + `after`.

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

    def head_weights(self, query: Any, key: Any, bias: Any) -> Any:
        """Returns all weights [B, H, T, T], zeros outside the window: to look at.

        The blocks of `call` hold only those inside. Arguments as of
        `attention_weights`; without a bias it is a step, whose past is cut already.
        """
        if bias is None:
            return super().head_weights(query, key, bias)
        steps = ops.arange(ops.shape(key)[2])
        band = self._bias_of(steps[None, :] - steps[:, None])
        return super().head_weights(query, key, bias + band)

    def step(self, x: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
        """As `SelfAttention.step`; the past is cut to what the window can see."""
        seen = slice(-self.before, None) if self.before else slice(0)
        return super().step(x, key[:, :, seen], value[:, :, seen])

    def causal_bias(self, length: Any) -> None:
        """Returns None: the window hides the future."""
        del length

    def call(self, x: Any, bias: Any, seed: Any = None) -> Any:
        """Attends.

        Args:
            x: [B, T, D]
            bias: [B, 1, 1, T], hides padding. Not read where nothing is seen on the
                right: what hides the future then is the window.
            seed: of dropout; None at inference.

        Returns:
            [B, T, D]
        """
        query, key, value = self._project(x)
        length = ops.shape(x)[1]
        if bias is None or not self.after:
            bias = ops.zeros((1, 1, 1, length))
        reach = max(self.before, self.after, 1)
        # P, the length of a block: as the reach, unless the whole sentence is shorter.
        known = isinstance(length, int)
        block = min(length, reach) if known else ops.minimum(length, reach)
        fill = -length % block
        query = _blocks(query, block, fill)
        key = self._with_neighbours(_blocks(key, block, fill))
        value = self._with_neighbours(_blocks(value, block, fill))
        bias = _blocks(ops.swapaxes(bias, 2, 3), block, fill, _OUTSIDE)
        bias = ops.swapaxes(self._with_neighbours(bias, _OUTSIDE), 3, 4)

        logits = ops.matmul(query, ops.swapaxes(key, 3, 4))  # [B, H, N, P, W]
        logits = ops.cast(logits, "float32") * self.key_size**-0.5
        weights = ops.softmax(logits + (bias + self._block_bias(block)))
        weights = self.dropout(ops.cast(weights, value.dtype), seed=seed)
        heads = ops.matmul(weights, value)  # [B, H, N, P, d_v]
        joined = ops.transpose(heads, (0, 2, 3, 1, 4))
        width = self.num_heads * self.value_size
        joined = ops.reshape(joined, (ops.shape(x)[0], -1, width))
        return self.output_projection(joined[:, :length])

    def _block_bias(self, block: Any) -> Any:
        """Returns what hides the window's outside: [P, W], the same in every block."""
        sides = int(self.before > 0), int(self.after > 0)
        keys = ops.arange((1 + sum(sides)) * block) - sides[0] * block
        return self._bias_of(keys[None, :] - ops.arange(block)[:, None])

    def _bias_of(self, offsets: Any) -> Any:
        """Returns the bias of a key's position less the query's."""
        outside = ops.logical_or(offsets < -self.before, offsets > self.after)
        return ops.cast(outside, "float32") * MASKED

    def _with_neighbours(self, blocks: Any, outside: float = 0.0) -> Any:
        """[B, H, N, P, d] -> [B, H, N, W, d]: joins the blocks in reach to each."""
        count = ops.shape(blocks)[2]
        sides = int(self.before > 0), int(self.after > 0)
        none = (0, 0)
        padded = ops.pad(
            blocks, (none, none, sides, none, none), constant_values=outside
        )
        shifted = [padded[:, :, k : k + count] for k in range(1 + sum(sides))]
        return ops.concatenate(shifted, axis=3)


def _blocks(x: Any, block: Any, fill: Any, outside: float = 0.0) -> Any:
    """[B, H, T, d] -> [B, H, N, P, d], filled up to N P positions."""
    batch, heads, _, size = ops.shape(x)
    none = (0, 0)
    x = ops.pad(x, (none, none, (0, fill), none), constant_values=outside)
    return ops.reshape(x, (batch, heads, -1, block, size))
