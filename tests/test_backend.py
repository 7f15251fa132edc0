"""Layers and model run on another backend; the packages above say what they need."""

import pytest
from command_line import python
from errors import refused

PROGRAM = """
import numpy as np
from t2t_keras import UserError, load
from t2t_keras.hparam import HParams
from t2t_keras.model.transformer import Transformer

model = Transformer(HParams(num_layers=1, d_model=8, d_ff=8, num_heads=2), 11)
ids = np.array([[3, 4, 1, 0]])
assert np.isfinite(np.asarray(model(ids, ids))).all()
try:
    load(".")
except UserError as error:
    print(error)
"""


def test_another_backend():
    pytest.importorskip("jax", reason="needs JAX, another backend of Keras")
    assert "set KERAS_BACKEND=tensorflow" in python(PROGRAM, KERAS_BACKEND="jax")


def test_rooms_that_need_tensorflow_say_so(monkeypatch, tmp_path):
    import keras

    from t2t_keras import load

    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    refused("set KERAS_BACKEND=tensorflow", load, tmp_path)
