"""The matrix products of a step and their FLOPs, counted from shapes alone.

The other operations of a Transformer (softmax, layer normalization, dropout, the
optimizer) are passes over memory, whose FLOPs are not counted. Masked products of
attention count; with a window, each query meets all keys in its blocks. The letters
in shapes are as in `t2t_keras.model.layers`.
"""

import dataclasses
from collections.abc import Iterable

from t2t_keras import HParams
from t2t_keras.plugins.reports.costs import keys_per_query


@dataclasses.dataclass(frozen=True)
class MatMul:
    """An operation that multiplies [m, k] by [k, n] `batch` times, run `count` times.

    The flags say which operand is stored transposed, as [k, m] or [n, k].
    """

    count: int
    batch: int
    m: int
    k: int
    n: int
    transpose_a: bool = False
    transpose_b: bool = False

    @property
    def flops(self) -> int:
        """FLOPs of all products; a multiplication and an addition are two."""
        return 2 * self.count * self.batch * self.m * self.k * self.n

    def gradients(self) -> tuple["MatMul", "MatMul"]:
        """Returns the products of the backward pass: with respect to A, and to B."""
        count, batch, m, k, n, *_ = dataclasses.astuple(self)
        if self.transpose_b:  # C = A B^T: dA = dC B, dB = dC^T A
            return (
                MatMul(count, batch, m, n, k),
                MatMul(count, batch, n, m, k, transpose_a=True),
            )
        return (  # C = A B: dA = dC B^T, dB = A^T dC
            MatMul(count, batch, m, n, k, transpose_b=True),
            MatMul(count, batch, k, m, n, transpose_a=True),
        )


def total_flops(matmuls: Iterable[MatMul]) -> int:
    """Returns the FLOPs of all products together."""
    return sum(matmul.flops for matmul in matmuls)


def training_matmuls(
    hparams: HParams, vocab_size: int, batch: int, source: int, target: int
) -> list[MatMul]:
    """Returns the products of a training step, forward and backward.

    Args:
        hparams: the model's hyper-parameters.
        vocab_size: vocabulary size V of the softmax.
        batch: batch size B, in pairs of sentences.
        source: source length S.
        target: target length T.
    """
    count = hparams.decoder_layers
    rows = batch * target
    seen = keys_per_query(hparams, target, bidirectional=False)
    forward = [
        *_encoding(hparams, batch, source),
        *_self_attention(hparams, count, batch, target, seen),
        _encoder_output_projection(hparams, batch * source),
        *_cross_attention(hparams, count, batch, target, source),
        *_position_wise(hparams, count, rows),
        MatMul(1, 1, rows, hparams.d_model, vocab_size),
    ]
    matmuls = []
    for matmul in forward:
        matmuls += [matmul, *matmul.gradients()]
    return matmuls


def decoding_matmuls(
    hparams: HParams, vocab_size: int, batch: int, source: int, beam: int, steps: int
) -> list[MatMul]:
    """Returns the products of a beam search.

    Self-attention sees one more position at each step; its products are counted for the
    step in the middle.

    Args:
        hparams: the model's hyper-parameters.
        vocab_size: vocabulary size V of the softmax.
        batch: batch size B, in sentences.
        source: source length S.
        beam: beam size K.
        steps: number of steps T.
    """
    count = hparams.decoder_layers * steps
    rows = batch * beam
    past = (steps + 1) // 2
    if hparams.attention_window:
        past = min(past, hparams.attention_window)
    return [
        *_encoding(hparams, batch, source),
        _encoder_output_projection(hparams, batch * source),
        *_self_attention(hparams, count, rows, 1, past),
        *_cross_attention(hparams, count, batch, beam, source),
        *_position_wise(hparams, count, rows),
        MatMul(steps, 1, rows, hparams.d_model, vocab_size),
    ]


def step_weights(hparams: HParams, vocab_size: int) -> int:
    """Returns the number of weights that each decoding step multiplies by."""
    d_model = hparams.d_model
    projections = 3 * hparams.key_size + 3 * hparams.value_size  # q k v o, and q o
    layer = d_model * (hparams.num_heads * projections + 2 * hparams.d_ff)
    return hparams.decoder_layers * layer + vocab_size * d_model


def _encoding(hparams: HParams, batch: int, source: int) -> list[MatMul]:
    """Returns the products of the encoder's forward pass."""
    count = hparams.num_layers
    seen = keys_per_query(hparams, source, bidirectional=True)
    return [
        *_self_attention(hparams, count, batch, source, seen),
        *_position_wise(hparams, count, batch * source),
    ]


def _self_attention(
    hparams: HParams, count: int, batch: int, queries: int, keys: int
) -> list[MatMul]:
    """Returns the products of self-attention; q, k, v are one product."""
    width = hparams.num_heads * (2 * hparams.key_size + hparams.value_size)
    return [
        MatMul(count, 1, batch * queries, hparams.d_model, width),
        *_heads(hparams, count, batch, queries, keys),
    ]


def _cross_attention(
    hparams: HParams, count: int, batch: int, queries: int, keys: int
) -> list[MatMul]:
    """Returns the products of cross-attention, without the keys and values."""
    width = hparams.num_heads * hparams.key_size
    return [
        MatMul(count, 1, batch * queries, hparams.d_model, width),
        *_heads(hparams, count, batch, queries, keys),
    ]


def _encoder_output_projection(hparams: HParams, rows: int) -> MatMul:
    """Returns the products for the source's keys and values in all decoder layers."""
    width = hparams.num_heads * (hparams.key_size + hparams.value_size)
    return MatMul(hparams.decoder_layers, 1, rows, hparams.d_model, width)


def _heads(
    hparams: HParams, count: int, batch: int, queries: int, keys: int
) -> list[MatMul]:
    """Returns Q K^T, the weighted sum of the values, and the output projection."""
    heads = hparams.num_heads
    d_v = hparams.value_size
    return [
        MatMul(count, batch * heads, queries, hparams.key_size, keys, transpose_b=True),
        MatMul(count, batch * heads, queries, keys, d_v),
        MatMul(count, 1, batch * queries, heads * d_v, hparams.d_model),
    ]


def _position_wise(hparams: HParams, count: int, rows: int) -> list[MatMul]:
    """Returns the products of the feed-forward network."""
    return [
        MatMul(count, 1, rows, hparams.d_model, hparams.d_ff),
        MatMul(count, 1, rows, hparams.d_ff, hparams.d_model),
    ]
