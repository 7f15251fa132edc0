"""The guarantees of every registered model."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
from keras import ops
from numpy_transformer import randomise

from t2t_keras import HParams, registry
from t2t_keras.model import build_model
from t2t_keras.model.layers import SelfAttention
from t2t_keras.model.transformer import Transformer
from t2t_keras.testing import check_model

SIZES = {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 4, "d_k": 4, "d_v": 4}
MODELS = ("transformer", "modern_transformer", "average_attention")
EXAMPLES = Path(__file__).parents[1] / "examples"


def check(name: str, train: bool) -> None:
    if name != "transformer":
        registry.load_usr_dir(EXAMPLES / name)
    hparams = HParams(norm="pre").override(model=name, **SIZES)
    check_model(randomise(build_model(hparams, 31)), train)


@pytest.mark.parametrize("name", MODELS)
def test_model_keeps_the_guarantees(name):
    check(name, train=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_model_keeps_the_guarantees_in_training(name):
    check(name, train=True)


class Leaking(SelfAttention):
    """Sees later tokens in training."""

    def attend(self, x, bias=None, seed=None, cache=None):
        if cache is None and self.causal:
            return *self._attend(*self._project_all(x), bias, seed), None
        return super().attend(x, bias, seed, cache)

    def _project_all(self, x):
        query, key, value = self._project(x)
        return query, [key], [value]


class CountingCache(NamedTuple):
    """A running sum [B, K, D], which stays where it is when beams change places."""

    total: Any

    def select(self, rows, columns):
        return CountingCache(ops.take(self.total, rows, axis=0))

    def reorder(self, parents):
        return self


class Sum(SelfAttention):
    """The cumulative sum of a linear map, in place of attention."""

    def attend(self, x, bias=None, seed=None, cache=None):
        y = self.output_projection(x)
        if not self.causal:
            return super().attend(x, bias, seed, cache)
        weights = ops.zeros((ops.shape(x)[0], self.num_heads, ops.shape(x)[1], 1))
        if cache is None:
            return ops.cumsum(y, axis=1), weights, None
        total = cache.total + y
        return total, weights, CountingCache(total)

    def empty_cache(self, batch_size, num_beams):
        return CountingCache(ops.zeros((batch_size, num_beams, self.d_model)))


@pytest.mark.parametrize(
    "layer, message",
    [(Leaking, "depend on no later token"), (Sum, "teacher forcing at each step")],
)
def test_a_guarantee_that_does_not_hold_is_named(layer, message):
    class Model(Transformer):
        def make_self_attention(self, causal):
            return layer(causal=causal, **self.attention_options("self_attention"))

    model = randomise(Model(HParams(**SIZES), 31))
    with pytest.raises(AssertionError, match=message):
        check_model(model)
