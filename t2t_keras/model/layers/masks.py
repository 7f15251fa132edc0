"""Masks of attention, as biases that are added to its scores."""

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np
from keras import ops

from t2t_keras.model.backend import Tensor, arange

PAD = 0  # the id of padding

# Added to the scores of illegal positions. It is finite so that a row without any legal
# position (an empty sentence that pads a batch) does not become NaN. The dtype is part
# of it: a user's `floatx` must not decide on that of a bias.
MASKED = np.float32(-1e9)


def padding_bias(is_padding: Tensor) -> Tensor:
    """Returns the bias [B, 1, 1, S] that masks padding; `is_padding` is bool [B, S]."""
    return ops.expand_dims(ops.where(is_padding, MASKED, 0.0), (1, 2))


def causal_bias(length: int | Tensor, bias: Tensor | None = None) -> Tensor:
    """Returns the bias [1, 1, T, T] that masks all later positions, plus another."""
    steps = arange(length)  # [T]
    is_later = steps[None, :] > steps[:, None]  # [T, T]
    causal = ops.expand_dims(ops.where(is_later, MASKED, 0.0), (0, 1))  # [1, 1, T, T]
    return causal if bias is None else causal + bias


def segment_bias(query_segments: Tensor, key_segments: Tensor) -> Tensor:
    """Returns the bias [B, 1, T, S] that masks other segments than the query's.

    The segments are integers [B, T] and [B, S], see `Packing`.
    """
    # TensorFlow compares the int32 tensors of a GPU on the host.
    query = ops.cast(query_segments, "float32")[:, :, None]  # [B, T, 1]
    key = ops.cast(key_segments, "float32")[:, None, :]  # [B, 1, S]
    return ops.expand_dims(ops.where(ops.equal(query, key), 0.0, MASKED), 1)


def bias_positions(bias: Tensor | None, length: int | Tensor) -> Tensor:
    """Returns the positions, int32 [1, T] or in packed rows [B, T], of self-attention.

    The position of a token is the number of earlier tokens that it may attend to.

    Args:
        bias: of `SelfAttention.compute_attention` in training: None, [B, 1, 1, T], or
            in packed rows [B, 1, T, T].
        length: T
    """
    steps = arange(length)  # [T]
    if bias is None or bias.shape[2] == 1:
        return steps[None]
    is_earlier = ops.cast(steps[None, :] < steps[:, None], "float32")  # [T, T]
    is_visible = ops.cast(ops.equal(bias[:, 0], 0.0), "float32")  # [B, T, T]
    return ops.cast(ops.sum(is_visible * is_earlier, axis=-1), "int32")


def masking_bias(attention_mask: Tensor | None, *masks: Tensor | None) -> Tensor | None:
    """Returns the bias [B, 1, T, S] of masks, or None if there is none.

    Args:
        attention_mask: bool [B, T, S], true where one may attend; None: everywhere.
        *masks: bool [B, S], true where there is a token; None: everywhere. Only the
            first one that is not None counts: Keras passes the mask of a layer's input
            as `mask` if that is the only tensor, and otherwise by the input's name.
    """
    mask = next((mask for mask in masks if mask is not None), None)
    is_allowed = None if attention_mask is None else ops.cast(attention_mask, "bool")
    if mask is not None:
        has_token = ops.expand_dims(ops.cast(mask, "bool"), 1)  # [B, 1, S]
        is_allowed = (
            has_token if is_allowed is None else ops.logical_and(is_allowed, has_token)
        )  # [B, T, S]
    if is_allowed is None:
        return None
    return ops.expand_dims(ops.where(is_allowed, 0.0, MASKED), 1)


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
