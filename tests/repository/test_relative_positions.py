"""The example of relative positions, against its equation in NumPy."""

from pathlib import Path

import numpy as np
import pytest
from helpers.errors import refused
from helpers.model_checks import small_model
from helpers.numpy_transformer import softmax

from t2t_keras import HParams
from t2t_keras.model.layers import padding_bias
from t2t_keras.usr_dir import load_usr_dir

FOLDER = Path(__file__).parents[2] / "examples" / "relative_positions"
LIMIT = 2


@pytest.fixture(scope="module")
def model():
    load_usr_dir(FOLDER)
    return small_model(model="relative_positions", max_distance=LIMIT, num_layers=1)


def by_loops(layer, x, allowed):
    """softmax(q_i . (k_j + a[clip(j - i)]) / sqrt(d)) v_j of x [T, D], projected."""
    width = layer.num_heads * layer.key_size
    query, key, value = np.split(x @ np.array(layer.projection.kernel), 3, axis=1)
    vectors = np.array(layer.vectors)
    heads = []
    for start in range(0, width, layer.key_size):
        columns = slice(start, start + layer.key_size)
        scores = np.full((len(x), len(x)), -np.inf)
        for i, j in np.argwhere(allowed):
            vector = vectors[np.clip(j - i, -LIMIT, LIMIT) + LIMIT]
            product = query[i, columns] @ (key[j, columns] + vector)
            scores[i, j] = product / np.sqrt(layer.key_size)
        heads.append(softmax(scores) @ value[:, columns])
    return np.concatenate(heads, axis=1) @ np.array(layer.output_projection.kernel)


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_attention_is_the_equation(model, stack):
    (block,) = getattr(model, stack).layers
    layer = block.self_attention
    x = np.random.default_rng(0).normal(size=(1, 7, 8)).astype(np.float32)
    allowed = np.tri(7, dtype=bool)
    bias = None
    if stack == "encoder":
        allowed = np.tile(np.arange(7) < 5, (7, 1))  # two positions are padding
        bias = padding_bias(np.arange(7)[None] >= 5)
    actual = layer.compute_attention(x, bias).output[0]
    expected = by_loops(layer, x[0].astype(np.float64), allowed)
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.usefixtures("model")
def test_what_it_does_not_have_is_refused():
    for name, value in (("attention_window", 4), ("attention", "additive")):
        changes = {"model": "relative_positions", name: value}
        refused("has no attention_window and no", HParams().override, **changes)
