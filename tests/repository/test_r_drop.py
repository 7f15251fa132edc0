"""The example of R-Drop: its loss in NumPy, from the logits of two dropout masks."""

from pathlib import Path

import numpy as np
import pytest
from helpers.model_checks import ids, pad, small_model
from helpers.numpy_transformer import softmax

from t2t_keras import UserError, registry
from t2t_keras.model.layers import fold_in
from t2t_keras.usr_dir import load_usr_dir

FOLDER = Path(__file__).parents[2] / "examples" / "r_drop"
SOURCE = pad([ids(5), ids(3, seed=1)], 5)
TARGET = pad([ids(2), ids(6, seed=2)], 6)
SEED = np.array([3, 4], np.int32)


@pytest.fixture(scope="module", autouse=True)
def example():
    load_usr_dir(FOLDER)


def losses(model):
    return [float(x) for x in model.training_losses(SOURCE, TARGET, SEED)]


def test_loss_is_the_mean_of_both_passes_and_their_divergence():
    model = small_model(model="r_drop", r_drop_alpha=3.0, label_smoothing=0.0)
    seeds = SEED, np.array(fold_in(SEED, 1))
    p, q = [
        softmax(np.array(model(SOURCE, TARGET, seed), np.float64)) for seed in seeds
    ]
    assert abs(p - q).max() > 0.01
    nll = 0.0
    divergence = 0.0
    for row, column in np.argwhere(TARGET > 0):
        p_here, q_here = p[row, column], q[row, column]
        label = TARGET[row, column]
        nll -= np.log(p_here[label]) / 2 + np.log(q_here[label]) / 2
        divergence += (p_here * np.log(p_here / q_here)).sum()
        divergence += (q_here * np.log(q_here / p_here)).sum()
    expected = nll + 3 / 4 * divergence, nll
    np.testing.assert_allclose(losses(model), expected, rtol=1e-5)


def test_without_dropout_it_is_the_usual_loss():
    expected = losses(small_model(dropout=0.0))
    actual = losses(small_model(model="r_drop", dropout=0.0))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_guided_alignment_is_refused():
    with pytest.raises(UserError, match="r_drop has no guided_alignment; leave it out"):
        registry.hparams("r_drop_tiny").override(guided_alignment=0.05)
