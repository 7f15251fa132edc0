"""Layer normalization in 16 bits."""

import numpy as np
import pytest
from helpers.small_layers import normal

from t2t_keras.model.backend import Execution, executed_by
from t2t_keras.model.layers import LayerNorm


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "mixed_float16", "bfloat16", "float32"])
def test_large_numbers_are_normalized_in_float32(dtype, is_fused):
    """The square of 300 is beyond float16."""
    x = (normal(2, 5, 16) * 300 + 5).astype(np.float16)
    wide = x.astype(np.float64)
    mean = wide.mean(-1, keepdims=True)
    expected = (wide - mean) / wide.std(-1, keepdims=True)
    with executed_by(Execution(is_fused=is_fused)):
        actual = LayerNorm(16, dtype=dtype)(x)
    atol = 0.02 if dtype == "bfloat16" else 0.002
    np.testing.assert_allclose(np.array(actual, np.float64), expected, atol=atol)
