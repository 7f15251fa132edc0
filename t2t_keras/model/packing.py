"""Packed rows: several pairs in each row of a batch, as tensor2tensor packs them.

Source and target of a pair, its segments, lie in the same row. A token attends to its
own segment only, and positions count from the start of a segment. So a packed row gives
what its pairs give in rows with one pair each, and has less padding.
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

from keras import ops

from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers.masks import segment_bias


class Packing(NamedTuple):
    """Where the pairs of packed rows lie; integers.

    Attributes:
        source_segments: [B, S], the number of the token's pair in the step's whole
            batch, counted from 1; 0 for padding.
        source_positions: [B, S], the position of the token in its segment, from 0.
        target_segments: [B, T], likewise.
        target_positions: [B, T], likewise.
    """

    source_segments: Tensor
    source_positions: Tensor
    target_segments: Tensor
    target_positions: Tensor

    @classmethod
    def from_batch(cls, batch: Mapping[str, Tensor]) -> Self | None:
        """Returns the packing of a batch, or None if each row has one pair."""
        if "source_segments" not in batch:
            return None
        return cls(*(batch[name] for name in cls._fields))

    def source_bias(self) -> Tensor:
        """Returns the bias [B, 1, S, S] of the encoder's self-attention."""
        return segment_bias(self.source_segments, self.source_segments)

    def target_bias(self) -> Tensor:
        """Returns the bias [B, 1, T, T] of the decoder's self-attention."""
        return segment_bias(self.target_segments, self.target_segments)

    def cross_attention_bias(self) -> Tensor:
        """Returns the bias [B, 1, T, S] of attention from target to source."""
        return segment_bias(self.target_segments, self.source_segments)

    def is_first(self) -> Tensor:
        """Returns a mask [B, T] of the first target tokens of segments, and padding."""
        # TensorFlow compares the int32 tensors of a GPU on the host.
        return ops.equal(ops.cast(self.target_positions, "float32"), 0.0)
