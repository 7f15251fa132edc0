"""Micro-batches divide a batch as replicas do: the same gradient, less memory."""

import subprocess
import sys
from pathlib import Path

import pytest
from one_step import HPARAMS, Setup, assert_close, unequal_batch
from small_run import trainer, weights

from t2t_keras import UserError


@pytest.fixture(scope="module")
def big_batch():
    """The gradients of 13 pairs at once."""
    return Setup(1).gradients(*unequal_batch(1))


@pytest.mark.parametrize(("replicas", "micro_batches"), [(1, 2), (1, 8), (2, 4)])
def test_gradients_are_those_of_the_big_batch(big_batch, replicas, micro_batches):
    """8 parts of 13 pairs are 16 rows: the last part is padding only."""
    setup = Setup(replicas, micro_batches=micro_batches)
    assert_close(setup.gradients(*unequal_batch(1)), big_batch, relative=1e-5)


def test_counts_are_those_of_the_big_batch():
    source, target = unequal_batch(3)
    setup = Setup(2, micro_batches=4)
    result = setup.step.update(setup.batch(source, target), 0, 0.0, is_trial=True)
    assert float(result.source_tokens) == (source != 0).sum()
    assert float(result.target_tokens) == (target != 0).sum()
    assert float(result.positions) == 2 * 16 * 12


@pytest.mark.slow
def test_dropout_belongs_to_the_part_not_to_the_replica():
    """So that a run of four GPUs goes on with one."""
    hparams = HPARAMS.override(dropout=0.5, attention_dropout=0.3)
    setups = [Setup(4, hparams), Setup(2, hparams, 2), Setup(1, hparams, 4)]
    expected, *others = [setup.gradients(*unequal_batch(2)) for setup in setups]
    for other in others:
        assert_close(other, expected, relative=1e-5)
    with pytest.raises(AssertionError):
        assert_close(
            Setup(1, hparams, 2).gradients(*unequal_batch(2)), expected, relative=1e-2
        )


@pytest.mark.slow
def test_a_run_goes_on_with_other_replicas_but_the_same_parts(data_dir, tmp_path):
    options = {"parts": 2, "dropout": 0.3}
    for name, replicas in (("a", 2), ("b", 1)):
        path = tmp_path / name
        trainer(data_dir, path, train_steps=2, replicas=2, **options).train()
        trainer(data_dir, path, train_steps=4, replicas=replicas, **options).train()
    assert_close(weights(tmp_path / "b"), weights(tmp_path / "a"), relative=1e-5)


def test_replicas_that_cannot_share_the_parts_are_refused(data_dir, tmp_path):
    with pytest.raises(UserError, match="into 2 parts, which 3 replicas cannot share"):
        trainer(data_dir, tmp_path, replicas=3, parts=2)


PEAK = """
import re, sys
import numpy as np
from one_step import HPARAMS, Setup
hparams = HPARAMS.override(num_layers=2, d_model=64, d_ff=256, num_heads=4)
setup = Setup(1, hparams, micro_batches=int(sys.argv[1]))
batch = setup.batch(*np.full((2, 512, 32), 5))
setup.step.update(batch, 0, 0.0, is_trial=True)
print(re.search("VmHWM: *\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


@pytest.mark.slow
def test_memory_is_that_of_a_micro_batch():
    tests = {"cwd": Path(__file__).parent, "text": True}
    whole, parts = (
        int(subprocess.check_output([sys.executable, "-c", PEAK, str(count)], **tests))
        for count in (1, 8)
    )
    floor = 600_000  # KB, of TensorFlow itself
    assert parts - floor < (whole - floor) / 3, (whole, parts)
