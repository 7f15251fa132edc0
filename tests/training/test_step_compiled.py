"""The update compiled by XLA: masks, gradients and weights as without XLA."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers.command_line import python
from helpers.one_step import HPARAMS, Setup, assert_close, unequal_batch

PLAIN = HPARAMS.override(
    **{"dropout": 0.1, "attention_dropout": 0.2, "ffn_dropout": 0.1},
    **{"clip_norm": 0.1, "ema_decay": 0.9, "bucketing": "static"},
)
COMPILED = PLAIN.override(jit_compile=True)


def trained(setup: Setup) -> tuple[dict[str, np.ndarray], list[float]]:
    """The variables after three updates, and the results of the last one."""
    batches = setup.batches(*(unequal_batch(seed) for seed in range(3)))
    for step, batch in enumerate(batches):
        result = setup.step.update(batch, step, 0.01)
    variables = {**setup.weights, **setup.step.variables}
    arrays = {name: v.read_value().numpy() for name, v in variables.items()}
    return arrays, [float(value) for value in result]


@pytest.fixture(scope="module")
def plain():
    return trained(Setup(1, PLAIN, has_adam=True))


@pytest.mark.parametrize(
    ("replicas", "micro_batches"),
    [(1, 1), *(pytest.param(*n, marks=pytest.mark.slow) for n in ((2, 2), (1, 3)))],
)
def test_updates_match_the_uncompiled_step(plain, replicas, micro_batches):
    """Also Adam's and the averages', with clipping, on replicas and micro-batches."""
    setup = Setup(replicas, COMPILED, micro_batches, has_adam=True)
    arrays, results = trained(setup)
    # Adam divides by the root of the squares, which may be very small.
    assert_close(arrays, plain[0], relative=1e-4)
    # Not the positions: 13 rows in parts of equal size have more padding.
    np.testing.assert_allclose(results[:4], plain[1][:4], rtol=1e-5)
    np.testing.assert_allclose(results[5:], plain[1][5:], rtol=1e-4)
    # Both parts were traced once for each replica: any step and rate may follow.
    for part in (setup.step.compiled_loss_and_grads, setup.step.compiled_apply):
        assert part.experimental_get_tracing_count() == replicas


# Prints the names of the gradients that have other bits on two replicas than in two
# micro-batches of one.
DIVIDED = """
import numpy as np
from helpers.one_step import HPARAMS, Setup, unequal_batch

rates = {"dropout": 0.1, "attention_dropout": 0.2, "ffn_dropout": 0.1}
hparams = HPARAMS.override(**rates, bucketing="static", jit_compile=True)
replicas = Setup(2, hparams).gradients(*unequal_batch(1))
micro_batches = Setup(1, hparams, 2).gradients(*unequal_batch(1))
for name, gradient in replicas.items():
    if not np.array_equal(gradient, micro_batches[name]):
        print(name)
"""


@pytest.mark.slow
def test_replicas_are_micro_batches_bit_for_bit():
    """With all of XLA's optimizations, which other tests turn off."""
    tests = str(Path(__file__).parents[1])
    flags = {"XLA_FLAGS": "", "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": tests}
    assert python(DIVIDED, **flags) == ""


def test_xla_gets_no_scatter_and_no_constant_step():
    """A scatter would add rows one by one; each constant step would be compiled."""
    setup = Setup(1, COMPILED)
    (batch,) = setup.batches(unequal_batch(1))
    compiler_ir = setup.step.compiled_loss_and_grads.experimental_get_compiler_ir
    seed = tf.constant([0, 0], tf.int64)
    ids = {name: tf.cast(rows, tf.int64) for name, rows in batch.items()}
    arguments = (ids, seed, tf.constant(1.0), tf.constant(0, tf.uint32))
    program = compiler_ir(*arguments)(stage="hlo")
    assert " scatter(" not in program
    assert program.count(" sort(") == 1  # of the ids
    assert " = s64[2]{0} parameter(" in program
