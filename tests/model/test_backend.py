"""The model on other backends of Keras."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.backend_program import results
from helpers.errors import refused

PROGRAM = Path(__file__).parents[1] / "helpers" / "backend_program.py"


@pytest.fixture(scope="module")
def expected():
    return results()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_results_are_tensorflows(backend, expected, tmp_path):
    """PyTorch is not tested for decoding and the losses of the trainer."""
    pytest.importorskip(backend, reason="needs the extra [backends]")
    subprocess.run(
        [sys.executable, PROGRAM, tmp_path / "found.npz"],
        env=os.environ | {"KERAS_BACKEND": backend},
        check=True,
    )
    actual = np.load(tmp_path / "found.npz")
    names = set(expected)
    if backend == "torch":
        names = {x for x in names if "decoded" not in x and "training_gr" not in x}
    assert set(actual) == names
    for name in actual:
        if "drop" not in name:
            atol = 1e-4 if "gradient" in name or name == "fit" else 1e-5
            np.testing.assert_allclose(
                actual[name], expected[name], atol=atol, err_msg=name
            )
    assert actual["fit"][-1] < actual["fit"][0] - 0.1
    assert np.isfinite(actual["fit with dropout"]).all()
    difference = np.abs(actual["dropped"] - actual["dropped again"])
    assert difference.max() > 0.1


def test_rooms_that_need_tensorflow_say_so(monkeypatch, tmp_path):
    import keras

    from t2t_keras import load

    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    refused("set KERAS_BACKEND=tensorflow", load, tmp_path)
