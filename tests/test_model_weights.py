"""Which weights a model has, and how many: written out from the paper's sections."""

import itertools

from shapes import without_values

from t2t_keras.hparam import HParams
from t2t_keras.model.transformer import Transformer
from t2t_keras.training.checkpoint import weight_name

BASE = HParams()


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
