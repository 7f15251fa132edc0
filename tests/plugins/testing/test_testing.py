"""The guarantees of every registered model."""

from pathlib import Path

import pytest
from helpers.model_checks import small_model
from helpers.numpy_transformer import randomise

from t2t_keras import HParams
from t2t_keras.model import build_model
from t2t_keras.model.transformer import Transformer
from t2t_keras.testing import (
    _check_independence,
    _check_packing,
    _check_steps,
    check_model,
)
from t2t_keras.usr_dir import load_usr_dir

SIZES = {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 4, "d_k": 4, "d_v": 4}
MODELS = (
    "transformer",
    "modern_transformer",
    "average_attention",
    "relative_positions",
    "r_drop",
)
EXAMPLES = Path(__file__).parents[3] / "examples"


def check(name: str, train: bool) -> None:
    if name != "transformer":
        load_usr_dir(EXAMPLES / name)
    hparams = HParams(norm="pre").override(model=name, **SIZES)
    check_model(randomise(build_model(hparams, 31)), train)


@pytest.mark.parametrize(
    "name", [MODELS[0], *(pytest.param(x, marks=pytest.mark.slow) for x in MODELS[1:])]
)
def test_model_keeps_the_guarantees(name, capsys):
    check(name, train=False)
    *guarantees, verdict = "".join(capsys.readouterr()).splitlines()
    assert len(guarantees) == 5 and all(x.startswith("ok  ") for x in guarantees)
    assert verdict.startswith(f"{name} keeps the guarantees; the last three")


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "post", "attention_window": 1},
        {"norm": "pre", "attention_window": 50, "d_k": 3, "d_v": 5},
        # The last learned position is repeated.
        {"position": "learned", "attention": "unscaled"},
        {"attention": "additive"},
        *(
            pytest.param(options | {"norm": "pre"}, marks=pytest.mark.slow)
            for options in (
                {"position": "learned"},
                {"attention_window": 4},
                {"attention": "additive"},
            )
        ),
        {
            **{"model": "extended_transformer", "position": "halves"},
            **{"attention_bias": True, "output_bias": True},
        },
        {
            **{"model": "extended_transformer", "position": "t2t"},
            **{"attention_window": 2, "d_k": 3, "d_v": 5},
        },
        {"model": "next_word_transformer", "num_brackets": 9},
    ],
    ids=str,
)
def test_variants_keep_the_guarantees_of_decoding(options):
    rates = {"dropout": 0.1, "attention_dropout": 0.3, "ffn_dropout": 0.2}
    # That caches are those of their layers is checked with two layers above.
    sizes = {"num_layers": 1, "max_positions": 4}
    model = small_model(**sizes | rates | options)
    _check_independence(model)
    _check_packing(model)
    _check_steps(model)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_model_keeps_the_guarantees_in_training(name, capsys):
    check(name, train=True)
    *guarantees, verdict = "".join(capsys.readouterr()).splitlines()
    assert len(guarantees) == 8 and all(x.startswith("ok  ") for x in guarantees)
    assert verdict == f"{name} keeps the guarantees"


class Leaking(Transformer):
    """Sees later tokens in training."""

    def make_self_attention(self, causal):
        return super().make_self_attention(causal=False)


class Unsegmented(Transformer):
    """Counts positions over a whole row."""

    def source_input(self, x, positions=None):
        return super().source_input(x)


class Forgetful(Transformer):
    """Does not reorder the cache with the beams."""

    def reorder_cache(self, cache, parents):
        return cache


class Stepless(Transformer):
    """Cannot decode."""

    def decode_step(self, ids, step, cache):
        raise TypeError("no cache for\nme")


@pytest.mark.parametrize(
    "cls, message",
    [
        (Stepless, "^decoding step by step: the model fails: TypeError: no cache for$"),
        (Leaking, "depend on no later token"),
        (Unsegmented, "packed rows must give the logits of rows with one pair: add"),
        (Forgetful, "teacher forcing at each step"),
    ],
)
def test_a_guarantee_that_does_not_hold_is_named(cls, message):
    with pytest.raises(AssertionError, match=message):
        check_model(randomise(cls(HParams(**SIZES | {"num_layers": 1}), 31)))
