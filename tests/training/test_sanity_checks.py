"""A model that mixes the pairs of packed rows is not trained on them."""

import numpy as np
import pytest
from helpers.errors import refused
from helpers.model_checks import small_model
from helpers.small_run import trainer

from t2t_keras.model.transformer import Transformer
from t2t_keras.training.sanity_checks import packed_and_single_logits, require_packing


def without_positions(self, x, positions=None):
    return x + self.positions(np.arange(x.shape[1]))


def without_segments(self, bias, shifted, packing=None):
    return np.zeros_like(bias)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_of_packed_rows_match_separate_rows(dtype):
    model = small_model(share_embeddings=False).with_compute_dtype(dtype)
    require_packing(model)
    comparisons = list(packed_and_single_logits(model))
    assert sorted(len(packed) for packed, _ in comparisons) == [1, 3, 4]
    for packed, single in comparisons:
        limit = 1e-5 if dtype == "float32" else 0.05 * np.std(single)
        np.testing.assert_allclose(packed, single, rtol=0, atol=limit)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_loss_that_mixes_pairs_is_refused(monkeypatch, dtype):
    model = small_model(dropout=0.1).with_compute_dtype(dtype)
    require_packing(model)
    of_rows = Transformer.training_losses

    def without_packing(self, source, target, seed, packing=None):
        return of_rows(self, source, target, seed)

    monkeypatch.setattr(Transformer, "training_losses", without_packing)
    message = "`training_losses` of model 'transformer' mixes the pairs of packed rows"
    refused(message, require_packing, model)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("method", "function"),
    [
        ("source_input", without_positions),
        ("cross_attention_bias", without_segments),
    ],
)
def test_a_model_that_mixes_pairs_is_refused(monkeypatch, dtype, method, function):
    model = small_model().with_compute_dtype(dtype)
    monkeypatch.setattr(Transformer, method, function)
    message = "model 'transformer' mixes the pairs of packed rows: set the hyper-param"
    refused(message, require_packing, model)


def test_a_new_run_is_refused_before_it_trains(monkeypatch, tmp_path, data_dir):
    monkeypatch.setattr(Transformer, "source_input", lambda self, x: x)
    message = r"fails with packed rows \(.*\): set the hyper-parameter bucketing=static"
    refused(message, trainer, data_dir, tmp_path / "run", bucketing="packed")
    trainer(data_dir, tmp_path / "run", bucketing="static")
