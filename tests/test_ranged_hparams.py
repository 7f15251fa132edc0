"""Ranges of hyper-parameters: their values, and what is refused."""

import numpy as np
import pytest
from helpers.errors import refused

from t2t_keras import HParams, register_ranged_hparams, registry
from t2t_keras.ranged_hparams import Choices, Interval, RangedHParams


def test_scales_match_tensor2tensor():
    """Vizier's: equal parts of [0, 1] are equal ratios to 0, or to low + high."""
    positions = np.linspace(0, 1, 5)
    log = [Interval(0.01, 100.0, "log").value_at(x) for x in positions]
    np.testing.assert_allclose(log, [0.01, 0.1, 1, 10, 100])
    reverse = [Interval(0.01, 100.0, "reverse_log").value_at(x) for x in positions]
    np.testing.assert_allclose(reverse, 100.01 - np.array(log)[::-1])
    integers = Interval(1, 5, is_integer=True)
    assert [integers.value_at(x) for x in (0, 0.5, 1)] == [1, 3, 5]
    assert [Choices((7, "x")).value_at(x) for x in (0, 0.49, 0.5, 1)] == [
        7,
        7,
        "x",
        "x",
    ]


def ranges(*calls: tuple) -> RangedHParams:
    ranged = RangedHParams()
    for method, *arguments in calls:
        getattr(ranged, method)(*arguments)
    return ranged


def test_ranges_of_a_set_have_our_names_and_the_last_one_counts():
    ranged = ranges(
        ("set_float", "learning_rate", 1, 2),
        ("set_discrete", "hidden_size", [256, 512]),
        ("set_categorical", "norm", ["pre", "post"]),
        ("set_int", "learning_rate", 1, 3),
    )
    assert ranged.resolve(HParams()) == {
        "learning_rate": Interval(1, 3, is_integer=True),
        "d_model": Choices((256, 512)),
        "norm": Choices(("pre", "post")),
    }
    assert str(Interval(0.3, 3, "log")) == "0.3 to 3, log scale"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            ("set_float", "dropuot", 0, 0.1),
            "no option 'dropuot'; did you mean 'dropout'",
        ),
        (("set_float", "dropout", 0, 1), "dropout must be at least 0 and below 1"),
        (("set_float", "dropout", 0.2, 0.1), "dropout: the range from 0.2 to 0.1"),
        (("set_float", "dropout", 0, 0.1, "log"), "log scale must begin above 0"),
        (("set_float", "dropout", 0.1, 0.2, 2), "the scale must be one of linear"),
        (("set_float", "dropout", "0", 1), "dropout: '0' is not a finite number"),
        (("set_float", "num_layers", 2, 4), "num_layers is an integer: use set_int"),
        (("set_int", "num_layers", 1.5, 4), "num_layers: 1.5 is not an integer"),
        (("set_discrete", "num_heads", []), "num_heads: a list of values is needed"),
        (("set_categorical", "norm", "pre"), "norm: a list of values is needed"),
        (("set_categorical", "norm", ["pre", None]), "None is neither a text nor"),
        (("set_categorical", "norm", ["pre", "mid"]), "norm must be one of post, pre"),
        (("set_float", "weight_decay", 0.1, 0.2), "impossible, such as hparams: weigh"),
        (("set_discrete", "num_heads", [7, 9]), "impossible, such as hparams: d_model"),
    ],
)
def test_ranges_that_a_set_cannot_have(call, message):
    refused(message, lambda: ranges(call).resolve(HParams()))


def test_no_range_and_two_of_one_field():
    refused("there is no range", RangedHParams().resolve, HParams())
    calls = ("set_int", "d_ff", 1, 2), ("set_int", "filter_size", 1, 2)
    refused("'d_ff' has two ranges", ranges(*calls).resolve, HParams())


@pytest.mark.usefixtures("registrations")
def test_registered_ranges():
    names = registry.list_ranged_hparams()
    assert names["small_data_range"].startswith("Up to 150,000 pairs")
    for name, start in (
        ("small_data_range", "small_data"),
        ("transformer_base_range",) * 2,
    ):
        hparams = registry.hparams(start.removesuffix("_range"))
        assert registry.ranged_hparams(name).resolve(hparams)
    refused("ranges: there is no 'tiny'", registry.ranged_hparams, "tiny")

    @register_ranged_hparams
    def wide(rhp):
        """Any width."""
        rhp.set_int("d_model", 8, 1024, scale=rhp.LOG_SCALE)

    assert registry.list_ranged_hparams()["wide"] == "Any width."
    assert registry.ranged_hparams("wide").ranges == {
        "d_model": Interval(8, 1024, "log", is_integer=True)
    }
