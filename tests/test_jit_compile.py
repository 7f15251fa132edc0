"""Training compiled by XLA: the same masks, losses and gradients as without it."""

import numpy as np
import pytest
import tensorflow as tf
from one_step import HPARAMS, Setup, assert_close, unequal_batch

from t2t_keras.hparam import HParams
from t2t_keras.model.layers import Dropout, random_bits
from t2t_keras.option import UserError

COMPILED = HPARAMS.override(
    dropout=0.1,
    attention_dropout=0.2,
    ffn_dropout=0.1,
    bucketing="static",
    jit_compile=True,
)


def numpy_bits(seed, rows, columns):
    """`random_bits` on Python's integers, which do not overflow."""

    def mixed(x):
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            x = ((x ^ (x >> shift)) * factor) % 2**32
        return x ^ (x >> 16)

    key = mixed((seed[0] + 0x9E3779B9) % 2**32)
    other = mixed((seed[1] + key + 0x9E3779B9) % 2**32)
    by_row = [mixed((n + key) % 2**32) for n in range(rows)]
    by_column = [mixed((n + other) % 2**32) for n in range(columns)]
    return [[mixed((r + c) % 2**32) for c in by_column] for r in by_row]


def test_random_bits_are_the_hash_with_and_without_xla():
    seed = [123456789, 2**32 - 5]
    expected = numpy_bits(seed, 7, 11)
    for is_compiled in (False, True):
        bits = tf.function(lambda s: random_bits(s, 7, 11), jit_compile=is_compiled)
        found = bits(tf.constant(seed, tf.uint32))
        np.testing.assert_array_equal(found, np.array(expected, np.uint32))


def test_dropout_from_the_hash_drops_its_share_and_keeps_the_mean():
    layer = Dropout(0.1, name="some_dropout")
    layer.build(None)
    seed = tf.constant([3, 4], tf.uint32)
    dropped = layer(tf.ones([50, 20, 101]), seed=seed).numpy()
    assert set(np.unique(dropped)) == {0.0, np.float32(1 / 0.9)}
    deviation = np.sqrt(0.1 * 0.9 / dropped.size)
    assert abs((dropped == 0).mean() - 0.1) < 5 * deviation
    other = Dropout(0.1, name="other_dropout")
    other.build(None)
    both = (other(tf.ones([50, 20, 101]), seed=seed).numpy() == 0) & (dropped == 0)
    assert abs(both.mean() - 0.01) < 5 * np.sqrt(0.01 * 0.99 / dropped.size)


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_gradients_are_those_of_the_uncompiled_step(replicas):
    setup, batch = Setup(replicas, COMPILED), unequal_batch(1)
    compiled = setup.gradients(*batch)
    setup.step._forward_backward = setup.step.forward_backward
    plain = setup.gradients(*batch)
    assert_close(compiled, plain, relative=1e-5)
    setup.step._seed += 1  # the masks did matter
    with pytest.raises(AssertionError):
        assert_close(setup.gradients(*batch), plain, relative=1e-2)


def test_other_batches_than_static_ones_are_refused():
    with pytest.raises(UserError, match="jit_compile needs bucketing 'static', not"):
        HParams(jit_compile=True)
