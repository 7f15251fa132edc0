"""Masks of attention as biases, against NumPy."""

import numpy as np

from t2t_keras.model.layers.masks import MASKED, with_masks


def test_a_bias_and_both_masks_exclude_positions():
    """The bias that a layer is given and the masks that Keras passes."""
    rng = np.random.default_rng(0)
    attention_mask = rng.random((2, 3, 4)) < 0.5
    has_token = rng.random((2, 4)) < 0.5
    given = np.where(rng.random((2, 1, 1, 4)) < 0.5, np.float32(MASKED), 0)
    allowed = attention_mask & has_token[:, None] & (given[:, 0] == 0)
    bias = with_masks(given, attention_mask, None, has_token).numpy()
    np.testing.assert_array_equal(bias == 0, allowed[:, None])
    assert bias[bias != 0].max() <= MASKED
    assert (with_masks(given, None) == given).all()
    assert with_masks(None, None, None) is None
