"""Every row of the paper's Table 3: its settings and its size."""

import re

import keras
import pytest

from t2t_keras import registry
from t2t_keras.model.transformer import Transformer
from t2t_keras.plugins.reports.costs import flops_per_token

PIECES = 37_000  # section 5.1: "about"

# As printed: N, d_model, d_ff, h, d_k, d_v, P_drop, label smoothing, steps / 1000
# and parameters / 10^6, which are blank where they are base's.
TABLE = {
    "base": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 65),
    "base_a_heads_1": (6, 512, 2048, 1, 512, 512, 0.1, 0.1, 100, 65),
    "base_a_heads_4": (6, 512, 2048, 4, 128, 128, 0.1, 0.1, 100, 65),
    "base_a_heads_16": (6, 512, 2048, 16, 32, 32, 0.1, 0.1, 100, 65),
    "base_a_heads_32": (6, 512, 2048, 32, 16, 16, 0.1, 0.1, 100, 65),
    "base_b_keys_16": (6, 512, 2048, 8, 16, 64, 0.1, 0.1, 100, 58),
    "base_b_keys_32": (6, 512, 2048, 8, 32, 64, 0.1, 0.1, 100, 60),
    "base_c_layers_2": (2, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 36),
    "base_c_layers_4": (4, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 50),
    "base_c_layers_8": (8, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 80),
    "base_c_width_256": (6, 256, 2048, 8, 32, 32, 0.1, 0.1, 100, 28),
    "base_c_width_1024": (6, 1024, 2048, 8, 128, 128, 0.1, 0.1, 100, 168),
    "base_c_inner_1024": (6, 512, 1024, 8, 64, 64, 0.1, 0.1, 100, 53),
    "base_c_inner_4096": (6, 512, 4096, 8, 64, 64, 0.1, 0.1, 100, 90),
    "base_d_dropout_00": (6, 512, 2048, 8, 64, 64, 0.0, 0.1, 100, 65),
    "base_d_dropout_02": (6, 512, 2048, 8, 64, 64, 0.2, 0.1, 100, 65),
    "base_d_smoothing_00": (6, 512, 2048, 8, 64, 64, 0.1, 0.0, 100, 65),
    "base_d_smoothing_02": (6, 512, 2048, 8, 64, 64, 0.1, 0.2, 100, 65),
    "base_e_learned_positions": (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100, 65),
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, 0.1, 300, 213),
}


def test_every_row_is_registered_and_nothing_else():
    rows = {name for name in registry.list_hparams() if re.match("base_[a-e]_", name)}
    assert rows == set(TABLE) - {"base", "big"}


@pytest.mark.parametrize("name", TABLE)
def test_settings_are_the_rows(name):
    hparams = registry.hparams(name)
    assert (
        *(hparams.num_layers, hparams.d_model, hparams.d_ff, hparams.num_heads),
        *(hparams.key_size, hparams.value_size, hparams.dropout),
        *(hparams.label_smoothing, hparams.train_steps // 1000),
    ) == TABLE[name][:9]
    learned = name == "base_e_learned_positions"
    assert hparams.position == ("learned" if learned else "sinusoidal")
    row = ("num_layers", "d_model", "d_ff", "num_heads", "d_k", "dropout")
    row += ("label_smoothing", "train_steps", "position")
    assert registry.hparams("base").difference(hparams).keys() <= set(row)


@pytest.mark.parametrize("name", TABLE)
def test_parameters_match_the_formula_and_nearly_the_paper(name):
    n, d, f, h, k, v, *_, millions = TABLE[name]
    attention = h * (d * k + d * k + d * v + v * d)
    feed_forward = d * f + f + f * d + d
    # An encoder layer has 1 attention and 2 norms, a decoder layer 2 and 3.
    expected = n * (3 * attention + 2 * feed_forward + 5 * 2 * d) + PIECES * d
    without_positions = expected
    if name == "base_e_learned_positions":
        expected += 1024 * d
    with keras.StatelessScope(initialize_variables=False):  # takes no memory
        num_params = Transformer(registry.hparams(name), PIECES).count_params()
    # Otherwise the next scope that ends would give the weights values.
    keras.utils.clear_session()
    assert num_params == expected
    assert without_positions == pytest.approx(millions * 1e6, rel=0.07)
    missing_share = 1 - without_positions / (millions * 1e6)
    if name == "big":
        assert -0.006 < missing_share < 0
    else:
        assert 0.019 < missing_share < (0.066 if name == "base_c_layers_2" else 0.051)


def test_big_for_french_has_less_dropout():
    big = registry.hparams("big")
    french = registry.hparams("big_enfr")
    assert big.difference(french) == {"dropout": (0.3, 0.1)}


def test_heads_and_their_width_keep_the_computation_constant():
    """Rows A: "keeping the amount of computation constant" (6.2; 3.2.2)."""
    names = ["base", *(f"base_a_heads_{h}" for h in (1, 4, 16, 32))]
    flops = {
        flops_per_token(registry.hparams(name), 37_000, 25)["forward"] for name in names
    }
    assert len(flops) == 1
