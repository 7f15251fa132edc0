"""Training compiled by XLA: the same masks, losses and gradients as without it."""

import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from one_step import HPARAMS, Setup, assert_close, unequal_batch

from t2t_keras.hparam import HParams
from t2t_keras.model.layers import Dropout, random_bits
from t2t_keras.option import UserError
from t2t_keras.training.run_dir import RunDirectory

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


def test_random_bits_look_independent():
    """Every bit is fair, and so is its agreement with neighbours and other seeds."""
    size = 400
    matrices = [
        np.unpackbits(
            random_bits(tf.constant(seed, tf.uint32), size, size).numpy().view(np.uint8)
        ).reshape(size, size, 32)
        for seed in ([0, 0], [0, 1], [1, 0])
    ]
    first = matrices[0]
    pairs = [(first, other) for other in matrices[1:]]
    pairs += [(first[1:], first[:-1]), (first[:, 1:], first[:, :-1])]
    pairs += [(first[1:, 1:], first[:-1, :-1]), (first, first.transpose(1, 0, 2))]
    agreements = [(a == b).mean(axis=(0, 1)) for a, b in pairs[:-1]]
    upper = np.triu_indices(size, 1)  # a matrix agrees with its transpose twice
    agreements.append((pairs[-1][0] == pairs[-1][1])[upper].mean(axis=0))
    for shares in (*agreements, *(m.mean(axis=(0, 1)) for m in matrices)):
        # Six standard deviations of a mean of 79,800 fair bits.
        np.testing.assert_allclose(shares, 0.5, atol=6 * 0.5 / np.sqrt(79_800))


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


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_losses_and_gradients_agree_in_16_bits(dtype):
    setup = Setup(1, COMPILED.override(compute_dtype=dtype))
    batch = setup.batch(*unequal_batch(1))
    compiled = setup.step.update(batch, 0, 0.0, is_trial=True)
    setup.step._forward_backward = setup.step.forward_backward
    plain = tf.function(setup.step._update, autograph=False)(
        batch, tf.constant(0, tf.int64), tf.constant(0.0), tf.constant(True)
    )
    for name in ("loss_sum", "nll_sum", "gradient_norm"):
        found, expected = (float(getattr(it, name)) for it in (compiled, plain))
        assert found == pytest.approx(expected, rel=2e-2), name
    assert float(compiled.target_tokens) == float(plain.target_tokens)


@pytest.mark.slow
def test_padding_changes_nothing():
    hparams = HPARAMS.override(bucketing="static", jit_compile=True)
    setup = Setup(1, hparams)
    source, target = unequal_batch(1)
    expected = setup.gradients(source, target)
    padded = setup.gradients(
        np.pad(source, ((0, 3), (0, 4))), np.pad(target, ((0, 3), (0, 12)))
    )
    assert_close(padded, expected, relative=1e-5)


def test_other_batches_than_static_ones_are_refused():
    with pytest.raises(UserError, match="jit_compile needs bucketing 'static', not"):
        HParams(jit_compile=True)


@pytest.mark.slow
def test_a_training_compiles_once_for_each_shape(data_dir, tmp_path):
    """XLA dumps every module that it compiles."""
    dumps, run = tmp_path / "dumps", tmp_path / "run"
    changes = "num_layers=1,d_model=16,d_ff=32,batch_tokens=512,bucketing=static"
    command = f"""
        train --problem translate_text --hparams_set tiny --train_steps 30
        --hparams {changes},jit_compile=true --data_dir {data_dir} --output_dir {run}
        --eval_sentences 0 --average_last 0
    """
    flags = f"--xla_dump_to={dumps} --xla_dump_hlo_as_text"
    subprocess.run(
        [
            sys.executable,
            "-c",
            "from t2t_keras.cli import main; main()",
            *command.split(),
        ],
        env=os.environ | {"XLA_FLAGS": flags},
        check=True,
    )
    from t2t_keras.data.pipeline import TrainingData

    opened = RunDirectory(run)
    settings = opened.hparams, opened.tokenizers, opened.config.seed
    split = TrainingData.open(opened.problem, data_dir, *settings)
    shapes = {split.plan.shape(split.plan.records(step)) for step in range(30)}
    assert len(shapes) > 1
    modules = {
        path.name.split(".")[0]
        for path in dumps.glob("*forward_backward*before_optimizations.txt")
    }
    assert len(modules) == len(shapes | {split.largest_shape})
