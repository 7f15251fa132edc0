"""Names of tensor2tensor that do not exist here, and the modules in which they are."""

import copy
import functools
import importlib
import operator

import pytest
from helpers.errors import refused

import t2t_keras.plugins.interop.as_tensor2tensor  # noqa: F401, isort: skip

from tensor2tensor import data_generators, layers, models  # isort: skip
from tensor2tensor.data_generators import (  # isort: skip
    generator_utils,
    problem,
    text_encoder,
    text_problems,
    translate,
    translate_envi,
    translate_enzh,
)
from tensor2tensor.layers import common_layers, modalities  # isort: skip
from tensor2tensor.models import transformer  # isort: skip
from tensor2tensor.models.research import universal_transformer  # isort: skip
from tensor2tensor.utils import metrics, registry  # isort: skip

from t2t_keras.plugins.interop.shim.ported_problem import port_problem

NAMES = [
    problem.SpaceID.EN_TOK,
    problem.no_such,
    common_layers.shape_list,
    translate_envi.EOS,
    transformer.Transformer,
    universal_transformer.update_hparams,
    type("Derived", (text_encoder.ImageEncoder,), {}),
]

USES = {
    "called": lambda x: x(1, key=2),
    "equal": lambda x: x == "train",
    "unequal": lambda x: x != "train",
    "equal, second": lambda x: "train" == x,  # noqa: SIM300
    "in a list": lambda x: "train" in ["dev", x],
    "less": lambda x: x < 3,
    "in a condition": lambda x: 1 if x else 2,
    "key": lambda x: {"train": 1}.get(x),
    "length": len,
    "unpacked": lambda x: [*x],
    "reversed": reversed,
    "next": next,
    "contains": lambda x: "train" in x,
    "subscript": lambda x: x[0],
    "assigned": lambda x: operator.setitem(x, 0, 1),
    "str": str,
    "repr": repr,
    "f-string": lambda x: f"{x}",
    "int": int,
    "float": float,
    "index": lambda x: [1, 2][x],
    "sum": lambda x: x + 1,
    "sum, second": lambda x: 1 + x,
    "added": lambda x: operator.iadd(x, 1),
    "remainder": lambda x: x % 2,
    "union": lambda x: x | {1},
    "negative": operator.neg,
    "absolute": abs,
    "rounded": round,
    "instance": lambda x: isinstance("train", x),
    "subclass": lambda x: issubclass(str, x),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_what_is_missing_refuses_every_use(use):
    for name in NAMES:
        refused("of tensor2tensor does not exist here", use, name)


def test_the_sentence_has_the_name():
    message = refused("", lambda: problem.SpaceID.EN_TOK == 3)
    assert message.startswith("data_generators.problem.SpaceID.EN_TOK of tensor2tensor")
    message = refused("", bool, universal_transformer.update_hparams)
    assert message.startswith("models.research.universal_transformer.update_hparams of")


def test_what_is_missing_can_be_named_and_stored():
    stored = [problem.SpaceID.EN_TOK, (common_layers.shape_list,)]
    assert len(copy.copy(stored)) == 2

    class Holder:
        space = problem.SpaceID.EN_TOK

        def space_id(self, default=problem.SpaceID.GENERIC):
            return default

    class Derived(transformer.Transformer):
        def body(self, features):
            return super().body(features)

    partial = functools.partial(common_layers.shape_list, 1)
    Derived.name = "derived"
    # Python compares these by identity.
    assert Holder().space_id() is not None and Holder.space is not Derived
    assert Derived.name == "derived" and callable(partial.func)
    refused("Transformer of tensor2tensor", Derived)


@pytest.mark.parametrize(
    "module",
    [
        *(generator_utils, problem, text_encoder, text_problems, translate),
        *(translate_envi, translate_enzh),
    ],
)
def test_modules_of_data_have_what_they_import(module):
    assert module.problem is problem
    assert module.text_encoder is text_encoder
    assert module.text_problems is text_problems
    assert module.generator_utils is generator_utils
    assert module.translate is translate
    assert module.registry is registry
    assert module.metrics is metrics and module.modalities is modalities
    name = f"{data_generators.__name__}.translate_enmk"
    assert importlib.import_module(name).problem is problem


def test_other_modules_have_their_own_names():
    message = refused("", bool, common_layers.problem)
    assert message.startswith("layers.common_layers.problem of")
    assert registry.problem is not problem
    for module in (layers, models):
        assert not hasattr(module, "problem")


def test_splits_by_the_name_in_a_module_of_tensor2tensor():
    """As published usr_dirs have it: each split reads its own files."""

    class TranslateFruit(translate_envi.TranslateEnviIwslt32k):
        name = "translate_fruit"

        def generate_samples(self, data_dir, tmp_dir, dataset_split):
            split = translate_envi.problem.DatasetSplit
            names = {split.TRAIN: "train", split.EVAL: "dev", split.TEST: "test"}
            is_train = dataset_split == translate_envi.problem.DatasetSplit.TRAIN
            for number in range(20 if is_train else 3):
                text = f"{names[dataset_split]} {number}"
                yield {"inputs": text, "targets": text}

    ported = port_problem(TranslateFruit())
    pairs = {split: list(ported.pairs(split)) for split in ("train", "dev")}
    assert {split: len(found) for split, found in pairs.items()} == {
        "train": 20,
        "dev": 3,
    }
    assert pairs["dev"][0] == ("dev 0", "dev 0")


def test_a_split_that_is_missing_is_an_error_not_the_other_split():
    class TranslateFruit(translate_envi.TranslateEnviIwslt32k):
        name = "translate_fruit"

        def generate_samples(self, data_dir, tmp_dir, dataset_split):
            is_train = dataset_split == common_layers.DatasetSplit.TRAIN
            yield {"inputs": f"{is_train}", "targets": ""}

    ported = port_problem(TranslateFruit())
    message = refused("problem 'translate_fruit'", list, ported.pairs("train"))
    assert "layers.common_layers.DatasetSplit.TRAIN of tensor2tensor" in message
