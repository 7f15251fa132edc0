"""Which weights a model has, and how many: written out from the paper's sections."""

import itertools

import pytest
from shapes import without_values

from t2t_keras.hparam import HParams
from t2t_keras.model.transformer import Transformer
from t2t_keras.training.checkpoint import weight_name

BASE = HParams()
BIG = HParams(d_model=1024, d_ff=4096, num_heads=16)
PARSING = HParams(num_layers=4, d_model=1024)


def parameter_count(hparams, vocab):
    """Matrices and vectors of 3.1 to 3.4, written out; one shared vocabulary."""
    d, f = hparams.d_model, hparams.d_ff
    queries = keys = d * hparams.num_heads * hparams.key_size
    values = output = d * hparams.num_heads * hparams.value_size
    attention = queries + keys + values + output  # no biases
    feed_forward = (d * f + f) + (f * d + d)
    norm = 2 * d
    encoder_layer = (attention + norm) + (feed_forward + norm)
    decoder_layer = 2 * (attention + norm) + (feed_forward + norm)
    last_norms = 2 * norm if hparams.norm == "pre" else 0
    embedding = vocab * d  # also the pre-softmax linear map, which has no bias
    if hparams.position == "learned":
        embedding += hparams.max_positions * d
    return hparams.num_layers * (encoder_layer + decoder_layer) + last_norms + embedding


def count(hparams, vocab):
    """The model's own count, of shapes without numbers."""
    with without_values():
        return Transformer(hparams, vocab).count_params()


def test_weights_of_the_base_model_are_the_papers_and_no_others():
    """Names and shapes, exhaustively: no bias in attention, none before the softmax."""
    d, f, pieces = 512, 2048, 37_000
    norm = {"gamma": (d,), "beta": (d,)}
    of_sublayer = {
        "self_attention": {
            "query_key_value/kernel": (d, 3 * d),
            "output/kernel": (d, d),
        },
        "cross_attention": {
            "query/kernel": (d, d),
            "key_value/kernel": (d, 2 * d),
            "output/kernel": (d, d),
        },
        "feed_forward": {
            "inner/kernel": (d, f),
            "inner/bias": (f,),
            "outer/kernel": (f, d),
            "outer/bias": (d,),
        },
    }
    in_layer = {
        "encoder": ("self_attention", "feed_forward"),
        "decoder": ("self_attention", "cross_attention", "feed_forward"),
    }
    expected = {"model/embedding/table": (pieces, d)}
    for stack, sublayers in in_layer.items():
        for layer, sublayer in itertools.product(range(6), sublayers):
            path = f"model/{stack}/layer_{layer}/{sublayer}"
            for name, shape in of_sublayer[sublayer].items():
                expected[f"{path}/{name}"] = shape
            for name, shape in norm.items():
                expected[f"{path}_residual/norm/{name}"] = shape
    with without_values():
        base = Transformer(BASE, pieces)
    assert not base.non_trainable_variables
    assert {weight_name(base, w): tuple(w.shape) for w in base.weights} == expected


def test_the_base_model_has_63_million_parameters():
    """Section 5.1: about 37,000 pieces. Table 3 says 65 million."""
    assert parameter_count(BASE, 37_000) == 63_045_632
    assert count(BASE, 37_000) == 63_045_632


@pytest.mark.parametrize(
    ("hparams", "vocab", "expected"),
    [(BIG, 37_000, 214_171_648), (PARSING, 16_000, 100_335_616)],
    ids=["big", "parsing"],
)
def test_big_and_parsing_have_the_parameters_of_the_formula(hparams, vocab, expected):
    assert parameter_count(hparams, vocab) == expected
    assert count(hparams, vocab) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"},
        {"num_heads": 16, "d_k": 16, "d_v": 64},
        {"position": "learned", "max_positions": 300},
        {"num_layers": 2, "d_ff": 1024},
    ],
    ids=str,
)
def test_variants_have_the_parameters_of_the_formula(changes):
    hparams = HParams(**{"d_model": 64, "d_ff": 128} | changes)
    assert count(hparams, 100) == parameter_count(hparams, 100)
