"""Table 1 and Table 2 of the paper."""

import pytest

from t2t_keras.plugins.reports.complexity import layer_complexities
from t2t_keras.plugins.reports.model_cost import training_cost


def test_training_costs_of_table_2():
    assert training_cost(12, 8, 9.5) == pytest.approx(3.3e18, rel=0.01)
    assert training_cost(3.5 * 24, 8, 9.5) == pytest.approx(2.3e19, rel=0.01)


def test_complexities_of_table_1():
    rows = layer_complexities(length=70, d_model=512, kernel=3, window=10)
    assert {name: tuple(row) for name, row in rows.items()} == {
        "self_attention": (70 * 70 * 512, 1, 1),
        "recurrent": (70 * 512 * 512, 70, 70),
        "convolutional": (3 * 70 * 512 * 512, 1, 4),  # 3^3 < 70 <= 3^4
        "separable_convolutional": (3 * 70 * 512 + 70 * 512 * 512, 1, 4),
        "restricted_self_attention": (10 * 70 * 512, 1, 7),
    }
    # "Self-attention layers are faster than recurrent layers when n < d."
    for n in (511, 513):
        rows = layer_complexities(n, 512, 3, 10)
        faster = rows["self_attention"].operations < rows["recurrent"].operations
        assert faster == (n < 512)
    unrestricted = layer_complexities(27, 512, 3, 100)
    assert unrestricted["convolutional"].path == 3  # log_3(27) exactly
    assert unrestricted["restricted_self_attention"] == unrestricted["self_attention"]


def test_a_separable_convolution_over_everything_costs_attention_and_a_layer():
    """With k = n: n^2 d of self-attention, and n d^2 of a point-wise layer (4)."""
    n = 40
    d = 512
    layers = layer_complexities(n, d, n, 10)
    attention = layers["self_attention"].operations
    assert layers["separable_convolutional"].operations == attention + n * d * d
