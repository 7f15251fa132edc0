"""The matrix products in a step, counted from shapes alone.

All other operations in a Transformer (softmax, layer normalization, dropout, the
optimizer) are passes over memory, whose FLOPs are not counted. Attention includes
masked products; with a window, it is to all keys in the blocks. The letters in shapes
are as in `t2t_keras.model.layers`.
"""

import dataclasses
from collections.abc import Iterable

from t2t_keras import HParams
from t2t_keras.plugins.reports.model_cost import keys_per_query


@dataclasses.dataclass(frozen=True)
class Product:
    """`count` times, `batch` products [m, k] x [k, n] in one operation.

    The flags say which operand is stored transposed: [k, m] or [n, k].
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
        """The FLOPs of all products; a multiplication and an addition are two."""
        return 2 * self.count * self.batch * self.m * self.k * self.n

    def gradients(self) -> tuple["Product", "Product"]:
        """Returns the products of the backward pass: with respect to A, and to B."""
        count, batch, m, k, n = self.count, self.batch, self.m, self.k, self.n
        if self.transpose_b:  # C = A B^T: dA = dC B, dB = dC^T A
            return (
                Product(count, batch, m, n, k),
                Product(count, batch, n, m, k, transpose_a=True),
            )
        return (  # C = A B: dA = dC B^T, dB = A^T dC
            Product(count, batch, m, n, k, transpose_b=True),
            Product(count, batch, k, m, n, transpose_a=True),
        )


def total_flops(products: Iterable[Product]) -> int:
    """Returns the operations of all products together."""
    return sum(product.flops for product in products)


def training(
    hparams: HParams, vocab_size: int, batch: int, source: int, target: int
) -> list[Product]:
    """Returns the products of a training step: forward, and twice that backward.

    Args:
        hparams: the model's hyper-parameters.
        vocab_size: vocabulary size V of the softmax.
        batch: batch size B, in pairs of sentences.
        source: source length S.
        target: target length T.
    """
    count, rows = hparams.decoder_layers, batch * target
    seen = keys_per_query(hparams, target, bidirectional=False)
    forward = [
        *_encoding(hparams, batch, source),
        *_self_attention(hparams, count, batch, target, seen),
        _memory_projection(hparams, batch * source),
        *_cross_attention(hparams, count, batch, target, source),
        *_position_wise(hparams, count, rows),
        Product(1, 1, rows, hparams.d_model, vocab_size),
    ]
    return [product for one in forward for product in (one, *one.gradients())]


def decoding(
    hparams: HParams, vocab_size: int, batch: int, source: int, beam: int, steps: int
) -> list[Product]:
    """Returns the products of a beam search of so many steps.

    Self-attention sees one position more at each step; it is counted at the middle.

    Args:
        hparams: the model's hyper-parameters.
        vocab_size: vocabulary size V of the softmax.
        batch: batch size B, in sentences.
        source: source length S.
        beam: beam size K.
        steps: number of steps T.
    """
    count, rows = hparams.decoder_layers * steps, batch * beam
    past = (steps + 1) // 2
    if hparams.attention_window:
        past = min(past, hparams.attention_window)
    return [
        *_encoding(hparams, batch, source),
        _memory_projection(hparams, batch * source),
        *_self_attention(hparams, count, rows, 1, past),
        *_cross_attention(hparams, count, batch, beam, source),
        *_position_wise(hparams, count, rows),
        Product(steps, 1, rows, hparams.d_model, vocab_size),
    ]


def step_weights(hparams: HParams, vocab_size: int) -> int:
    """Returns the number of weights that each decoding step multiplies by."""
    d_model, heads = hparams.d_model, hparams.num_heads
    projections = 3 * hparams.key_size + 3 * hparams.value_size  # q k v o, and q o
    layer = d_model * (heads * projections + 2 * hparams.d_ff)
    return hparams.decoder_layers * layer + vocab_size * d_model


def _encoding(hparams: HParams, batch: int, source: int) -> list[Product]:
    """Returns the products of the encoder's forward pass."""
    count = hparams.num_layers
    seen = keys_per_query(hparams, source, bidirectional=True)
    return [
        *_self_attention(hparams, count, batch, source, seen),
        *_position_wise(hparams, count, batch * source),
    ]


def _self_attention(
    hparams: HParams, count: int, batch: int, queries: int, keys: int
) -> list[Product]:
    """Returns the products of self-attention; q, k, v are one product."""
    heads, d_k, d_v = hparams.num_heads, hparams.key_size, hparams.value_size
    rows = batch * queries
    return [
        Product(count, 1, rows, hparams.d_model, heads * (2 * d_k + d_v)),
        *_heads(hparams, count, batch, queries, keys),
    ]


def _cross_attention(
    hparams: HParams, count: int, batch: int, queries: int, keys: int
) -> list[Product]:
    """Returns the products of cross-attention, without the keys and values."""
    width = hparams.num_heads * hparams.key_size
    return [
        Product(count, 1, batch * queries, hparams.d_model, width),
        *_heads(hparams, count, batch, queries, keys),
    ]


def _memory_projection(hparams: HParams, rows: int) -> Product:
    """Returns the products for the source's keys and values in all decoder layers."""
    width = hparams.num_heads * (hparams.key_size + hparams.value_size)
    return Product(hparams.decoder_layers, 1, rows, hparams.d_model, width)


def _heads(
    hparams: HParams, count: int, batch: int, queries: int, keys: int
) -> list[Product]:
    """Returns Q K^T, the weighted sum of the values, and the output projection."""
    heads, d_k, d_v = hparams.num_heads, hparams.key_size, hparams.value_size
    return [
        Product(count, batch * heads, queries, d_k, keys, transpose_b=True),
        Product(count, batch * heads, queries, keys, d_v),
        Product(count, 1, batch * queries, heads * d_v, hparams.d_model),
    ]


def _position_wise(hparams: HParams, count: int, rows: int) -> list[Product]:
    """Returns the products of the feed-forward network."""
    return [
        Product(count, 1, rows, hparams.d_model, hparams.d_ff),
        Product(count, 1, rows, hparams.d_ff, hparams.d_model),
    ]
