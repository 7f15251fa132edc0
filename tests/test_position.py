"""Positional encodings: closed forms."""

import keras
import numpy as np
import pytest
from numpy_transformer import sinusoids as numpy_sinusoids

from t2t_keras.model.layers import LearnedPositions, sinusoids


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_are_the_formula(d_model):
    actual = sinusoids(np.arange(50), d_model).numpy()
    np.testing.assert_allclose(actual, numpy_sinusoids(50, d_model), atol=1e-5)


def test_wavelengths_are_a_geometric_progression():
    """Of the pairs of sine and cosine: measured as the angle from 0 to position 1."""
    encoding = np.asarray(sinusoids(np.arange(2), 512), np.float64)
    angles = np.arctan2(encoding[1, 0::2], encoding[1, 1::2])
    wavelengths = 2 * np.pi / angles
    ratio = 10_000 ** (2 / 512)
    np.testing.assert_allclose(wavelengths[1:] / wavelengths[:-1], ratio, rtol=1e-3)
    np.testing.assert_allclose(wavelengths[0], 2 * np.pi, rtol=1e-5)
    last = 10_000 * 2 * np.pi / ratio
    np.testing.assert_allclose(wavelengths[-1], last, rtol=1e-3)


@pytest.mark.parametrize("offset", [1, 7])
def test_an_offset_is_a_rotation_of_every_pair(offset):
    """PE(pos + k) is a linear function of PE(pos), the same for all pos (3.5)."""
    d_model = 16
    table = sinusoids(np.arange(40), d_model).numpy().reshape(40, d_model // 2, 2)
    rates = 10000.0 ** (-2 * np.arange(d_model // 2) / d_model)
    cos, sin = np.cos(offset * rates), np.sin(offset * rates)
    rotation = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], 1)
    rotated = np.einsum("irc,tic->tir", rotation, table)
    np.testing.assert_allclose(rotated[:-offset], table[offset:], atol=1e-5)


def test_learned_positions_look_up_and_repeat_the_last_row():
    keras.utils.set_random_seed(0)
    layer = LearnedPositions(100, 64)
    layer.build(None)
    table = layer.table.numpy()
    np.testing.assert_allclose(table.std(), 64**-0.5, rtol=0.05)
    actual = layer(np.array([3, 0, 99, 100, 5000])).numpy()
    np.testing.assert_array_equal(actual, table[[3, 0, 99, 99, 99]])
