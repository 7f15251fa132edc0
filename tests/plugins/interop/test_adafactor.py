"""Adafactor's state; its updates are compared with Keras's in test_optimizer."""

import numpy as np
from helpers.optimizer_steps import NAMES, apply, variable

from t2t_keras.hparam import HParams
from t2t_keras.plugins.interop.adafactor import Adafactor


def test_adafactor_keeps_rows_and_columns_and_leaves_rows_without_gradients():
    weights = {NAMES[0]: variable(np.ones((50, 20))), NAMES[1]: variable(np.ones(20))}
    adafactor = Adafactor(weights, HParams())
    assert {k: v.shape.as_list() for k, v in adafactor.variables.items()} == {
        "adafactor/rows/a": [50],
        "adafactor/columns/a": [20],
        "adafactor/v/b": [20],
    }
    gradient = np.full((50, 20), 1e-7)
    gradient[3:] = 0  # tokens that no batch has
    for step in range(1, 5):
        apply(adafactor, [gradient, np.zeros(20)], 0.1, step)
    updated = weights[NAMES[0]].numpy()
    assert (updated[:3] < 1).all()
    np.testing.assert_array_equal(updated[3:], 1)
    np.testing.assert_array_equal(weights[NAMES[1]].numpy(), 1)
