"""The learning rate: the paper's formula, and tensor2tensor's tables of it."""

import json

import numpy as np
import pytest
from reference import reference

from t2t_keras.hparam import PAPER_SCHEDULE, HParams
from t2t_keras.option import UserError
from t2t_keras.training.optimizer import learning_rate


def test_closed_forms():
    base = HParams()
    # At the end of the warm-up both branches meet: d^-0.5 w^-0.5.
    np.testing.assert_allclose(learning_rate(base, 4000), (512 * 4000) ** -0.5)
    np.testing.assert_allclose(learning_rate(base, 1), 512**-0.5 * 4000**-1.5)
    # Linear before, one over the root after.
    ratio = learning_rate(base, 2000) / learning_rate(base, 500)
    np.testing.assert_allclose(ratio, 4)
    ratio = learning_rate(base, 100_000) / learning_rate(base, 25_000)
    np.testing.assert_allclose(ratio, 0.5)


def test_constant_with_warm_up():
    hparams = HParams(
        schedule="constant*linear_warmup", learning_rate=3e-4, warmup_steps=10
    )
    rates = [learning_rate(hparams, step) for step in (1, 5, 10, 11, 10_000)]
    np.testing.assert_allclose(rates, [3e-5, 1.5e-4, 3e-4, 3e-4, 3e-4])


def test_constant():
    hparams = HParams(schedule="constant", learning_rate=0.25)
    assert {learning_rate(hparams, step) for step in (1, 4000, 9999)} == {0.25}


def test_a_factor_that_does_not_exist():
    with pytest.raises(UserError, match="schedule has no factor 'cosine'; it is a"):
        HParams().parse("schedule=constant*cosine")


# tensor2tensor's tables, and whether it counted updates from 0 or 1. The sets that say
# "legacy" count from 1, as the paper does; of a product the first update has rate 0.
PAPER = "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"
NO_WIDTH = "constant*linear_warmup*rsqrt_decay"
NORMALISED = "constant*linear_warmup*rsqrt_normalized_decay"


@pytest.mark.parametrize(
    ("name", "rate", "schedule", "first"),
    [
        ("transformer_base_v1", 1.0, PAPER_SCHEDULE, 1),
        ("transformer_base_v2", 2.0, PAPER_SCHEDULE, 1),
        ("transformer_base", 2.0, PAPER, 0),
        ("transformer_big", 2.0, PAPER, 0),
        ("transformer_tiny", 2.0, PAPER, 0),
        ("transformer_parsing_base", 2.0, PAPER, 0),
        ("transformer_base_single_gpu", 0.1, NO_WIDTH, 0),
        (f"{NO_WIDTH},const=0.1,w=4000", 0.1, NO_WIDTH, 0),
        (f"{NORMALISED},const=0.001,w=4000", 0.001, NORMALISED, 0),
        ("base_adafactor(warmup=10000)", 1.0, "rsqrt_decay", 0),
    ],
)
def test_equals_what_tensor2tensor_computed(name, rate, schedule, first):
    tables = json.loads(reference("t2t/oracle/misc/lr_schedules.json").read_text())
    table = tables[name]
    hparams = HParams(
        d_model=table["hidden"],
        warmup_steps=table["warmup"],
        learning_rate=rate,
        schedule=schedule,
    )
    for step, expected in zip(tables["_steps"], table["values"], strict=True):
        if step + first:  # ours count from 1
            actual = learning_rate(hparams, step + first)
            np.testing.assert_allclose(actual, expected, rtol=1e-5)
