"""The model of imported runs: its equations."""

import itertools

import numpy as np
import pytest
from helpers.errors import refused
from helpers.model_checks import check_equations, check_training_losses, small_model
from helpers.reference import reference

from t2t_keras.hparam import HParams
from t2t_keras.plugins.interop.extended_model import (
    ExtendedTransformer,
    t2t_timing_signal,
)
from t2t_keras.plugins.interop.extended_transformer import ExtendedHParams

NORMS = ("post", "pre")
POSITIONS = ("halves", "t2t")
MARIAN = {
    **{"attention_bias": True, "output_bias": True, "activation": "swish"},
    **{"norm_epsilon": 0.01, "position": "halves"},
}


def model(target_vocab=None, **options):
    return small_model(
        target_vocab=target_vocab, model="extended_transformer", **options
    )


@pytest.mark.parametrize(
    ("options", "target_vocab"),
    [
        *(
            ({"norm": norm, "position": position}, None)
            for norm, position in itertools.product(NORMS, POSITIONS)
        ),
        ({"num_decoder_layers": 1, "norm": "pre"}, None),
        ({"num_layers": 1, "num_decoder_layers": 3}, 11),
        ({"target_space": True}, None),
        ({"target_space": True, "num_decoder_layers": 1}, 11),
        (MARIAN, None),
        (MARIAN | {"norm": "pre", "d_k": 3, "d_v": 5}, 11),
        (MARIAN | {"share_embeddings": False}, 11),
    ],
    ids=str,
)
def test_logits_are_the_equations(options, target_vocab):
    check_equations(model(target_vocab, **options))


@pytest.mark.parametrize("norm", NORMS)
def test_losses_and_gradients_of_training_match_the_logits(norm):
    check_training_losses(model(dropout=0.0, norm=norm, **MARIAN))


@pytest.mark.parametrize(
    ("length", "d_model", "start"), [(40, 64, 0), (300, 512, 0), (5, 8, 7), (3, 2, 0)]
)
def test_timing_signal_is_what_tensor2tensor_computed(length, d_model, start):
    oracle = np.load(reference("t2t/oracle/misc/timing_signal.npz"))
    expected = oracle[f"len{length}_ch{d_model}_start{start}"][0]
    actual = t2t_timing_signal(np.arange(start, start + length), d_model).numpy()
    np.testing.assert_allclose(actual, expected, atol=1e-4 * length / 40)


def test_its_options_are_refused_without_it():
    message = "hparams: 'target_space' needs model=extended_transformer"
    refused(message, HParams().parse, "target_space=true")
    hparams = HParams().parse(
        "use_target_space_embedding=true,model=extended_transformer"
    )
    assert hparams == ExtendedHParams(target_space=True)


def test_the_papers_model_is_its_default():
    """With the same weights the logits are bit for bit the same."""
    plain = small_model()
    extended = model()
    assert isinstance(extended, ExtendedTransformer)
    batch = np.array([[3, 4, 5]], np.int32), np.array([[6, 7]], np.int32)
    np.testing.assert_array_equal(extended(*batch), plain(*batch))
