"""The learning rate: the paper's formula, and tensor2tensor's tables of it."""

import json

import numpy as np
import pytest
from reference import reference

from t2t_keras.hparam import HParams
from t2t_keras.training.schedule import learning_rate


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


def test_the_peak_is_at_the_end_of_the_warm_up():
    hparams = HParams(warmup_steps=50)
    rates = [learning_rate(hparams, step) for step in range(1, 200)]
    assert np.argmax(rates) + 1 == 50


def test_the_factor_multiplies():
    doubled = HParams(learning_rate=2.0)
    for step in (1, 4000, 9999):
        expected = 2 * learning_rate(HParams(), step)
        np.testing.assert_allclose(learning_rate(doubled, step), expected)


@pytest.mark.parametrize(
    ("name", "factor", "first"),
    [
        # Two that count updates from 1, as the paper does.
        ("transformer_base_v1", 1.0, 1),
        ("transformer_base_v2", 2.0, 1),
        # Later ones count from 0: their first update has rate 0.
        ("transformer_base", 2.0, 0),
        ("transformer_big", 2.0, 0),
        ("transformer_tiny", 2.0, 0),
        ("transformer_parsing_base", 2.0, 0),
    ],
)
def test_equals_what_tensor2tensor_computed(name, factor, first):
    tables = json.loads(reference("t2t/oracle/misc/lr_schedules.json").read_text())
    table = tables[name]
    hparams = HParams(
        d_model=table["hidden"], warmup_steps=table["warmup"], learning_rate=factor
    )
    for step, expected in zip(tables["_steps"], table["values"], strict=True):
        if step + first == 0:
            assert expected == 0
            continue
        actual = learning_rate(hparams, step + first)
        np.testing.assert_allclose(actual, expected, rtol=1e-5)
