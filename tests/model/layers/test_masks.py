"""Masks of attention as biases; packed rows against rows with one pair each."""

import keras
import numpy as np
import pytest
from helpers.model_checks import gradients, small_model

from t2t_keras.model import Packing
from t2t_keras.model.layers import bias_positions
from t2t_keras.model.layers.masks import MASKED, masking_bias

SEED = np.array([3, 7], np.int32)
RATES = {"dropout": 0.2, "attention_dropout": 0.3, "ffn_dropout": 0.2}


def test_both_masks_exclude_positions():
    """The mask that a layer is given and the one that Keras passes."""
    rng = np.random.default_rng(0)
    attention_mask = rng.random((2, 3, 4)) < 0.5
    has_token = rng.random((2, 4)) < 0.5
    allowed = attention_mask & has_token[:, None]
    bias = masking_bias(attention_mask, None, has_token).numpy()
    np.testing.assert_array_equal(bias == 0, allowed[:, None])
    assert bias[bias != 0].max() <= MASKED
    assert masking_bias(None, None) is None


# Pairs of random ids, in rows with one pair each and packed.


SOURCE_LENGTHS = (3, 5, 1, 4, 2)
TARGET_LENGTHS = (4, 2, 3, 1, 5)
# Which pairs each packed row holds; a pair's segment is one more than its number.
ROWS = ((3, 0, 2), (1,), (4,))
WIDTH = 9  # of packed rows; the last ones are mostly padding


def sentences(lengths, seed, vocab=17):
    """Ids [N, longest], padded with 0."""
    rng = np.random.default_rng(seed)
    ids = rng.integers(2, vocab, (len(lengths), max(lengths)))
    is_token = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return np.where(is_token, ids, 0).astype(np.int32)


def pack_side(ids, lengths):
    """Ids, segments and positions of packed rows, [3, R, WIDTH]."""
    packed = np.zeros((3, len(ROWS), WIDTH), np.int32)
    for row, pairs in enumerate(ROWS):
        tokens = [
            (ids[pair, i], pair + 1, i) for pair in pairs for i in range(lengths[pair])
        ]
        packed[:, row, : len(tokens)] = np.transpose(tokens)
    return packed


def pairs():
    """Source [N, S], target [N, T] and alignment [N, T, S] of all pairs."""
    source = sentences(SOURCE_LENGTHS, 1)
    target = sentences(TARGET_LENGTHS, 2)
    links = np.random.default_rng(3).random((*target.shape, source.shape[1]))
    is_linked = (target[:, :, None] > 0) & (source[:, None] > 0) & (links < 0.6)
    counts = np.maximum(is_linked.sum(2, keepdims=True), 1)
    return source, target, (is_linked / counts).astype(np.float32)


def packed_pairs():
    """The same in packed rows: source, target, alignment and packing."""
    source, target, alignment = pairs()
    sides = [pack_side(source, SOURCE_LENGTHS), pack_side(target, TARGET_LENGTHS)]
    (source, *of_source), (target, *of_target) = sides
    packing = Packing(*of_source, *of_target)
    links = np.zeros((len(ROWS), WIDTH, WIDTH), np.float32)
    for row, t, s in np.ndindex(links.shape):
        pair = packing.target_segments[row, t]
        if pair and pair == packing.source_segments[row, s]:
            t_in_pair = packing.target_positions[row, t]
            s_in_pair = packing.source_positions[row, s]
            links[row, t, s] = alignment[pair - 1, t_in_pair, s_in_pair]
    return source, target, links, packing


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "post", "label_smoothing": 0.0},
        {"norm": "pre", "position": "learned", "max_positions": 4},
        {"norm": "pre", "attention_window": 3},
        {"attention_window": 20, "share_embeddings": False},
        {"guided_alignment": 0.7},
        {"attention": "additive"},
        {"model": "extended_transformer", "position": "t2t", "output_bias": True},
        {"model": "next_word_transformer", "num_brackets": 9, "num_layers": 2},
    ],
    ids=str,
)
def test_losses_and_gradients_match_rows_with_one_pair(options):
    """With dropout, whose masks are therefore the same."""
    network = small_model(**{"num_layers": 1} | RATES | options)
    *batch, alignment = pairs()
    *packed_batch, packed_alignment, packing = packed_pairs()
    if not network.hparams.guided_alignment:
        alignment = packed_alignment = None

    def losses(batch, seed, alignment, packing=None):
        return network.training_losses(
            *batch, seed, alignment=alignment, packing=packing
        )

    expected = gradients(network, lambda: losses(batch, SEED, alignment))
    actual = gradients(
        network, lambda: losses(packed_batch, SEED, packed_alignment, packing)
    )
    for ours, truth in zip(actual, expected, strict=True):
        np.testing.assert_allclose(ours, truth, rtol=1e-5, atol=1e-5 * abs(truth).max())
    without_dropout = losses(batch, None, alignment)[0]
    assert abs(float(without_dropout) - float(expected[0])) > 0.1


def test_biases_and_positions():
    packing = Packing(
        source_segments=np.array([[3, 3, 1, 0]]),
        source_positions=np.array([[0, 1, 0, 0]]),
        target_segments=np.array([[3, 1, 1]]),
        target_positions=np.array([[0, 0, 1]]),
    )
    same = np.array([[[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]])
    np.testing.assert_array_equal(
        packing.cross_attention_bias(), np.where(same, 0, MASKED)[:, None]
    )
    same = np.array([[[1, 0, 0], [0, 1, 1], [0, 1, 1]]])
    bias = packing.target_bias()
    np.testing.assert_array_equal(bias, np.where(same, 0, MASKED)[:, None])
    for positions, expected in (
        (bias_positions(bias, 3), [[0, 0, 1]]),
        (bias_positions(None, 3), [[0, 1, 2]]),
    ):
        np.testing.assert_array_equal(positions, expected)
        assert keras.backend.standardize_dtype(positions.dtype) == "int32"
    np.testing.assert_array_equal(packing.is_first(), [[True, True, False]])


def test_a_batch_has_a_packing_if_it_has_segments():
    assert Packing.from_batch({"source": 1, "target": 2}) is None
    packing = Packing(1, 2, 3, 4)
    assert Packing.from_batch(packing._asdict() | {"source": 0}) == packing
