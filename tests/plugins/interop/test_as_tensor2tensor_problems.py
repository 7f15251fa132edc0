"""A usr_dir written for tensor2tensor: its problems and hparam sets."""

import gc
import io
import json
import random
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers.command_line import run_json
from helpers.errors import refused
from helpers.file_server import FileServer
from helpers.reference import reference

from t2t_keras import registry
from t2t_keras.cli import main
from t2t_keras.data.datagen import generate
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.plugins.interop import shim
from t2t_keras.plugins.interop.shim.files import dataset_pairs
from t2t_keras.plugins.interop.shim.ported_problem import port_problem
from t2t_keras.plugins.interop.t2t.t2t_sets import SETS
from t2t_keras.text.tokenizer import load_tokenizer
from t2t_keras.usr_dir import load_usr_dir

import t2t_keras.plugins.interop.as_tensor2tensor  # noqa: F401, isort: skip

from tensor2tensor.data_generators import (  # isort: skip
    generator_utils,
    text_encoder,
    text_problems,
    translate,
)
from tensor2tensor.layers import common_hparams  # isort: skip
from tensor2tensor.models import transformer  # isort: skip
from tensor2tensor.utils import metrics  # isort: skip

AS_TENSOR2TENSOR = "t2t_keras.plugins.interop.as_tensor2tensor"
WORDS = [("red dog", "roter hund"), ("big cat", "grosse katze"), ("dog", "hund")]


@pytest.fixture(autouse=True)
def own_registry(registrations, monkeypatch):
    """Undoes what a test registers, imports and prints once."""
    finders = [x for x in sys.meta_path if type(x).__module__ != AS_TENSOR2TENSOR]
    monkeypatch.setattr(sys, "meta_path", finders)
    monkeypatch.delitem(sys.modules, AS_TENSOR2TENSOR, raising=False)
    for name in [name for name in sys.modules if name.startswith("tensor2tensor")]:
        monkeypatch.delitem(sys.modules, name)
    shim.say_once.cache_clear()
    modules = set(sys.modules)
    yield
    for name in set(sys.modules) - modules:
        if not name.startswith("t2t_keras."):
            del sys.modules[name]
    sys.modules.pop(AS_TENSOR2TENSOR, None)


class Pairs(text_problems.Text2TextProblem):
    """Words.

    More words.
    """

    def generate_samples(self, data_dir, tmp_dir, dataset_split):
        for source, target in WORDS:
            yield {"inputs": source, "targets": target}


def ported(cls):
    """A problem under the name that the registry would give it."""
    cls.name = registry.snake_case(cls.__name__)
    return port_problem(cls()).replace(name=cls.name)


def made(cls, directory):
    """The data of a problem: its manifest, and the ids of its training examples."""
    manifest = generate(ported(cls), directory, workers=1)
    index = RecordIndex.open(directory, cls.name, "train")
    pairs = read_pairs(index, range(len(index)))
    return manifest, sorted(tuple(map(tuple, pair)) for pair in pairs)


def tokenizers(directory, manifest):
    files = manifest.vocab_files
    return [load_tokenizer(directory / files[side]) for side in ("source", "target")]


# The imports.


USR_FILE = '''
from __future__ import absolute_import
import t2t_keras.plugins.interop.as_tensor2tensor
import tensor2tensor.models
from tensor2tensor import problems
from tensor2tensor.data_generators import problem
from tensor2tensor.data_generators import text_problems, text_encoder
from tensor2tensor.data_generators.translate import TranslateProblem
from tensor2tensor.layers import common_attention as attention
from tensor2tensor.models import lstm, transformer
from tensor2tensor.utils import registry, t2t_model

EOS = text_encoder.EOS_ID


@registry.register_problem
class CountingLines(text_problems.Text2TextProblem):
    """Numbers, and the next ones."""

    @property
    def approx_vocab_size(self):
        return 60

    @property
    def is_generate_per_split(self):
        return False

    @property
    def dataset_splits(self):
        return [{
            "split": problem.DatasetSplit.TRAIN,
            "shards": 3,
        }, {
            "split": problem.DatasetSplit.EVAL,
            "shards": 1,
        }]

    def generate_samples(self, data_dir, tmp_dir, dataset_split):
        del data_dir, tmp_dir
        assert dataset_split == problem.DatasetSplit.TRAIN
        for i in range(40):
            yield {"inputs": "from %d on" % i, "targets": "%d %d" % (i + 1, i + 2)}


@registry.register_problem("other_name")
class TargetsOnly(text_problems.Text2SelfProblem):
    def generate_samples(self, data_dir, tmp_dir, dataset_split):
        yield {"targets": "x"}


@registry.register_hparams
def mine():
    """A narrow base."""
    hparams = transformer.transformer_base()
    hparams.hidden_size = 256
    if hasattr(hparams, "my_own"):
        hparams.hidden_size = getattr(hparams, "my_other", 1)
    return hparams


@registry.register_hparams
def of_another_model():
    return lstm.lstm_seq2seq()


@registry.register_model
class MyTransformer(transformer.Transformer):
    def body(self, features):
        return attention.add_timing_signal_1d(features)
'''


def usr_dir(tmp_path, text=USR_FILE):
    directory = tmp_path / "usr"
    directory.mkdir()
    (directory / "my_t2t_file.py").write_text(text)
    return directory


def test_a_file_of_tensor2tensors(tmp_path, capfd):
    directory = usr_dir(tmp_path)
    data_dir = tmp_path / "data"
    command = ("--usr_dir", directory, "--problem", "counting_lines")
    result = run_json(capfd, "datagen", *command, "--data_dir", data_dir)
    assert result["examples"] == {"train": 30, "dev": 10}
    sources = (data_dir / "counting_lines-dev.sources").read_text().splitlines()
    assert sources == [f"from {i} on" for i in range(3, 40, 4)]

    listed = run_json(capfd, "list", "--usr_dir", directory)
    assert listed["problems"]["counting_lines"] == "Numbers, and the next ones."
    assert "language modelling" in listed["problems"]["other_name"]
    assert "do not run here" in listed["models"]["my_transformer"]
    assert listed["hparams_sets"]["mine"] == "A narrow base."

    expected = registry.hparams("transformer_base").override(d_model=256)
    assert registry.hparams("mine") == expected
    message = refused("not exist here", registry.hparams, "of_another_model")
    assert "models.lstm.lstm_seq2seq" in message
    refused("do not run here", registry.model, "my_transformer")
    refused("do not run here", expected.override, model="my_transformer")


def test_without_a_change_the_user_is_told_what_to_write(tmp_path):
    directory = usr_dir(tmp_path, USR_FILE.replace(f"import {AS_TENSOR2TENSOR}", ""))
    message = refused("No module named 'tensor2tensor'", load_usr_dir, directory)
    assert f"import {AS_TENSOR2TENSOR}" in message


def test_unusable_problems_are_listed_with_their_errors(tmp_path):
    text = """
import t2t_keras.plugins.interop.as_tensor2tensor
from tensor2tensor.data_generators import lm1b, text_problems, translate_ende
from tensor2tensor.utils import registry

@registry.register_problem
class NoSamples(text_problems.Text2TextProblem):
    def source_data_files(self, split):
        return [["http://x.example/a.tgz", ("a.en", "a.de")]]

@registry.register_problem
class Derived(lm1b.LanguagemodelLm1b32k):
    pass

@registry.register_problem
class NoData(translate_ende.TranslateEndeWmt8k):
    pass

@registry.register_problem
class Fails(text_problems.Text2TextProblem):
    def __init__(self, *args):
        raise KeyError("corpus")

@registry.register_problem
class Foreign:
    pass

@registry.register_problem
class TRANSLATION32k(text_problems.Text2TextProblem):
    def generate_samples(self, data_dir, tmp_dir, dataset_split):
        yield {"inputs": "a", "targets": "b"}
"""
    load_usr_dir(usr_dir(tmp_path, text))
    listed = registry.list_problems()
    for name, message in {
        "no_samples": "derive it from translate.TranslateProblem",
        "derived": "lm1b.LanguagemodelLm1b32k, which does not exist here",
        "no_data": "define source_data_files or generate_samples",
        "fails": "KeyError: 'corpus'",
        "foreign": "must derive from text_problems.Text2TextProblem",
    }.items():
        assert "cannot be used" in listed[name] and message in listed[name]
        refused(message, registry.problem, name)
    assert listed["translatio_n32k"] == ""  # tensor2tensor's name
    assert registry.problem("translatio_n32k").name == "translatio_n32k"


SETS_FILE = '''
import t2t_keras.plugins.interop.as_tensor2tensor
from tensor2tensor.models import transformer
from tensor2tensor.models.research import universal_transformer
from tensor2tensor.utils import registry

@registry.register_hparams
def of_no_set():
    """Eight steps for one update."""
    return transformer.transformer_base_multistep8()

@registry.register_hparams
def of_no_function():
    """A recurrent one."""
    hparams = transformer.transformer_base()
    return universal_transformer.update_hparams_for_universal_transformer(hparams)

@registry.register_hparams
def of_no_value():
    """With another attention."""
    hparams = transformer.transformer_base()
    hparams.self_attention_type = "dot_product_relative"
    return hparams

@registry.register_hparams
def of_nothing():
    """Its function returns nothing."""

@registry.register_hparams
def usable():
    """A usable set."""
    print("made")
    hparams = transformer.transformer_base()
    hparams.learning_rate = 0.05
    return hparams

@registry.register_ranged_hparams
def refused_range(rhp):
    """A range."""
    rhp.set_discrete("attention_key_channels", [64, 128])
'''


def test_unusable_sets_are_listed_with_their_errors(tmp_path, capfd):
    """In a process of its own, since listing must not import TensorFlow."""
    directory = str(usr_dir(tmp_path, SETS_FILE))
    code = f"""
import sys
from t2t_keras.cli import main
main(["list", "--usr_dir", {directory!r}, "--json"])
main(["list", "--usr_dir", {directory!r}])
assert not {{"tensorflow", "keras"}} & sys.modules.keys()
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    first, _, table = result.stdout.partition("\n")
    listed = json.loads(first)
    for name, message in {
        "of_no_set": "my_t2t_file.py:10: 'of_no_set': tensor2tensor's hparam set "
        "'transformer_base_multistep8' does not exist here",
        "of_no_function": "models.research.universal_transformer."
        "update_hparams_for_universal_transformer of tensor2tensor does not exist",
        "of_no_value": "self_attention_type",
        "of_nothing": "'of_nothing': it must return hyper-parameters, not NoneType",
    }.items():
        summary = listed["hparams_sets"][name]
        assert summary.startswith("cannot be used: ") and message in summary
        assert f"{name} " in table and summary in table
        with pytest.raises(AssertionError, match=re.escape(message)):
            run_json(capfd, "list", name, "--usr_dir", directory)
    assert listed["hparams_sets"]["usable"] == "A usable set."
    assert "cannot be used: " in listed["ranges"]["refused_range"]
    # Neither what it prints nor a remark on it stands in the list.
    assert "made" not in table and "learning_rate" not in result.stderr
    assert main(["list", "usable", "--usr_dir", directory]) == 0
    assert "learning_rate has no effect" in capfd.readouterr().err


def test_flags_of_an_unusable_problem(tmp_path, capfd):
    """The error has the reason, and does not call the flag unknown."""
    directory = usr_dir(tmp_path)
    command = ("--usr_dir", directory, "--problem", "other_name", "--tmp_dir", "tmp")
    with pytest.raises(AssertionError, match="language modelling"):
        run_json(capfd, "datagen", *command, "--data_dir", tmp_path / "data")


# Hyper-parameters.


def test_the_values_of_its_sets():
    """Those that tensor2tensor itself wrote into hparams.json."""
    sets = json.loads(reference("t2t/oracle/misc/hparams.json").read_text())
    converted = [name for name in sets if name in SETS]
    assert "transformer_base" in converted and len(converted) > 5
    for name in converted:
        for key, value in getattr(transformer, name)().values().items():
            if key not in ("learning_rate", "max_length"):
                assert sets[name].get(key, value) == value, (name, key)


@pytest.mark.parametrize(
    "name", [name for name in sorted(SETS) if "description" in SETS[name]]
)
def test_an_unchanged_set_is_the_registered_one(name):
    assert getattr(transformer, name)().converted("x") == registry.hparams(name)


def converted(**changes):
    hparams = transformer.transformer_base()
    for name, value in changes.items():
        setattr(hparams, name, value)
    return hparams.converted("mine")


def test_changes_have_its_meaning(capsys):
    base = registry.hparams("transformer_base")
    hparams = transformer.transformer_base()
    hparams.filter_size //= 2
    hparams.num_encoder_layers = 3
    hparams.optimizer = "Adafactor"
    hparams.layer_preprocess_sequence = "none"
    hparams.layer_postprocess_sequence = "dan"
    hparams.attention_key_channels = 128
    changed = hparams.converted("mine")
    # attention_key_channels is the sum over heads.
    assert changed == base.override(
        d_ff=1024,
        num_layers=3,
        num_decoder_layers=6,
        optimizer="adafactor",
        norm="post",
        d_k=16,
    )
    assert converted(batch_size=1024) == base.override(batch_tokens=1024)
    assert "batch_size 1024 counted tokens on each GPU" in capsys.readouterr().err


def test_hparams_without_effect_are_reported(capsys):
    assert converted(learning_rate=0.05, max_length=99) == converted()
    warnings = capsys.readouterr().err
    assert "learning_rate has no effect: the learning_rate_schedule reads" in warnings
    assert "max_length has no effect: use `t2t datagen --max_length`" in warnings


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hiden_size", 1, "'hiden_size' is not .* did you mean 'hidden_size'"),
        ("self_attention_type", "dot_product_relative", "self_attention_type"),
        ("shared_embedding", True, "shared_embedding, which .* does not exist here"),
        ("layer_preprocess_sequence", "dn", "layer_preprocess_sequence 'dn'"),
        ("num_heads", 7, "not divisible by num_heads"),
    ],
)
def test_other_models_are_refused(name, value, message):
    refused(message, converted, **{name: value})


RANGES_FILE = '''
import t2t_keras.plugins.interop.as_tensor2tensor
from tensor2tensor.layers import common_hparams
from tensor2tensor.models import transformer
from tensor2tensor.utils import registry


@registry.register_ranged_hparams
def my_range(rhp):
    """Wider than base's."""
    assert isinstance(rhp, common_hparams.RangedHParams)
    transformer.transformer_base_range(rhp)
    rhp.set_float("learning_rate", 0.05, 0.25, scale=rhp.LOG_SCALE)
    rhp.set_float("initializer_gain", 0.5, 2.0)
    rhp.set_float("weight_decay", 0.0, 1e-4)
    rhp.set_discrete("hidden_size", [256, 512], scale=rhp.LOG_SCALE)
    rhp.set_int("num_encoder_layers", 2, 6)
    rhp.set_categorical("activation_dtype", ["float32", "bfloat16"])


@registry.register_ranged_hparams("refused")
def with_channels(rhp):
    rhp.set_discrete("attention_key_channels", [64, 128])
'''


def test_ranges_have_our_names(tmp_path, capfd):
    directory = str(usr_dir(tmp_path, RANGES_FILE))
    assert main(["list", "my_range", "--usr_dir", directory, "--json"]) == 0
    output = capfd.readouterr()
    fields = json.loads(output.out)["ranges_of_fields"]
    shown = {name: row["range"] for name, row in fields.items()}
    assert shown == {
        "learning_rate": "0.3 to 3, log scale",  # the schedule ignores tensor2tensor's
        "warmup_steps": "1000, 2000, 4000, 8000, 16000",
        "adam_beta1": "0.85 to 0.95",
        "adam_beta2": "0.97 to 0.99",
        "d_model": "256, 512",
        "num_layers": "2 to 6",
        "compute_dtype": "float32, bfloat16",
    }
    ranged = registry.ranged_hparams("my_range")
    assert ranged.resolve(registry.hparams("transformer_base")) == ranged.ranges
    refused(
        "attention_key_channels is .* here, use d_k", registry.ranged_hparams, "refused"
    )
    for name in ("learning_rate", "initializer_gain", "weight_decay"):
        assert f"the range of {name} is left out" in output.err


def test_what_is_added_and_what_is_missing():
    hparams = transformer.transformer_base()
    refused("add_hparam: 'my_own' is not", hparams.add_hparam, "my_own", 1)
    refused("add_hparam: 'hidden_size' exists", hparams.add_hparam, "hidden_size", 1)
    refused("'my_own' is not", getattr, hparams, "my_own")
    hparams.parse("hidden_size=64,use_target_space_embedding=false")
    assert (hparams.hidden_size, hparams.use_target_space_embedding) == (64, False)
    basic = common_hparams.basic_params1()
    basic.add_hparam("filter_size", 2048)
    refused("has no 'relu_dropout'", basic.converted, "mine")
    refused("transformer_relative' does not exist", transformer.transformer_relative)


def test_its_names_in_python():
    base = registry.hparams("transformer_base")
    assert base.override(hidden_size=256) == base.override(d_model=256)
    message = "hidden_size and d_model are the same; leave out one"
    refused(message, base.override, hidden_size=1, d_model=1)


# Samples.


def test_a_problem_in_our_terms():
    class Each(Pairs):
        def generate_samples(self, data_dir, tmp_dir, dataset_split):
            yield {"inputs": dataset_split, "targets": b"bytes"}

    problem = ported(Pairs)
    assert problem.summary == "Words."
    assert (problem.tokenizer, problem.vocab_size) == ("t2t_subword", 32768)
    problem = ported(Each)
    pairs = [next(problem.pairs(split)) for split in ("train", "dev")]
    assert pairs == [("train", "bytes"), ("eval", "bytes")]


def test_the_directories_of_samples(tmp_path, capfd):
    text = """
import os
import t2t_keras.plugins.interop.as_tensor2tensor
from tensor2tensor.data_generators import text_problems
from tensor2tensor.utils import registry

@registry.register_problem
class Beside(text_problems.Text2TextProblem):
    def generate_samples(self, data_dir, tmp_dir, dataset_split):
        return text_problems.text2text_txt_iterator(
            os.path.join(data_dir, "a.en"), os.path.join(tmp_dir, "a.de"))
"""
    for name in ("data", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "a.en").write_text("a dog\na cat\n")
    command = ("datagen", "--usr_dir", usr_dir(tmp_path, text), "--problem", "beside")
    command += ("--data_dir", tmp_path / "data", "--tmp_dir", tmp_path / "tmp")
    (tmp_path / "tmp" / "a.de").write_text("ein hund\n")
    with pytest.raises(
        AssertionError, match=r"a\.de has only 1 line and .*a\.en has 2"
    ):
        run_json(capfd, *command)
    (tmp_path / "tmp" / "a.de").write_text("ein hund\neine katze\n")
    assert run_json(capfd, *command)["examples"] == {"train": 2, "dev": 2}
    # The temporary samples vanish with the problem, which a cycle may keep alive.
    gc.collect()
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["a.de"]


def test_drawn_samples_are_dealt_out_once(tmp_path):
    """`generate_samples` shuffles: no sample is in both dev and train."""
    calls = []

    class Drawn(text_problems.Text2TextProblem):
        is_generate_per_split = False
        dataset_splits = (
            {"split": "train", "shards": 2},
            {"split": "eval", "shards": 1},
            {"split": "test", "shards": 1},
        )

        def generate_samples(self, data_dir, tmp_dir, dataset_split):
            calls.append(dataset_split)
            for i in random.sample(range(40), 40):
                yield {"inputs": f"{i}", "targets": f"{i}"}

    problem = ported(Drawn)
    by_split = {s: list(problem.pairs(s)) for s in ("dev", "train", "test", "dev")}
    assert {s: len(pairs) for s, pairs in by_split.items()} == {
        "dev": 10,
        "train": 20,
        "test": 10,
    }
    assert len({pair for pairs in by_split.values() for pair in pairs}) == 40
    assert calls == ["train"]
    converted_again = ported(Drawn)
    assert (
        list(converted_again.pairs("dev")) == by_split["dev"]
    )  # by the seed of tensor2tensor


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"targets": "x"}, "sample 1 has no 'inputs', only 'targets'"),
        ({"inputs": "x", "label": 1}, "sample 1 has no 'targets'"),
        ({"inputs": "x", "targets": 3}, "sample 1: 'targets' must be a text, not 3"),
        ({"inputs": "x", "targets": [0.5]}, "sample 1: 'targets' must be a text, not"),
        (("x", "y"), "sample 1 must have 'inputs' and 'targets'"),
    ],
)
def test_samples_of_another_form(sample, message):
    class Other(Pairs):
        def generate_samples(self, data_dir, tmp_dir, dataset_split):
            yield sample

    refused(f"problem 'other': {message}", list, ported(Other).pairs("train"))


def test_an_error_in_samples_names_the_line_and_the_directories():
    class Faulty(Pairs):
        def generate_samples(self, data_dir, tmp_dir, dataset_split):
            yield {"inputs": Path(data_dir, "no_such_file").read_text(), "targets": ""}

    message = refused("", list, ported(Faulty).pairs("train"))
    assert (
        "test_as_tensor2tensor_problems.py:" in message
        and "FileNotFoundError" in message
    )
    assert "(data_dir is " in message


# Members.


@pytest.mark.parametrize(
    ("member", "value", "message"),
    [
        ("generate_data", lambda *_: None, "it defines generate_data"),
        ("has_inputs", False, "has_inputs is false"),
        ("vocab_type", "words", "vocab_type must be one of"),
        ("approx_vocab_size", lambda self: 9, "must be a number.*@property"),
        ("dataset_splits", [{"split": "x", "shards": 1}], "dataset_splits must"),
        (
            "preprocess_example",
            lambda self, example, *_: {**example, "inputs": [1]},
            "it defines preprocess_example",
        ),
        (
            "example_reading_spec",
            lambda self: ({"inputs": 0, "targets": 0, "context": 0}, None),
            "it defines example_reading_spec",
        ),
    ],
)
def test_members_that_cannot_be_honoured_are_refused(member, value, message):
    refused(message, port_problem, type("Refused", (Pairs,), {member: value})())


def test_members_without_effect_are_reported(tmp_path, capsys):
    class Said(Pairs):
        packed_length = 256

        def eval_metrics(self):
            return [metrics.Metrics.ACC]

        def example_reading_spec(self):
            return super().example_reading_spec()

        def preprocess_example(self, example, mode, hparams):
            return super().preprocess_example(example, mode, hparams)

        def max_length(self, model_hparams):
            return model_hparams.max_length // 2

    assert ported(Said).max_length == 128
    made(Said, tmp_path)
    warnings = capsys.readouterr().err
    assert "packed_length has no effect: rows are packed in training" in warnings
    assert "eval_metrics has no effect" in warnings
    assert "example_reading_spec" not in warnings


# Vocabularies.


def test_tokens_with_and_without_an_unknown_one(tmp_path):
    class Tokens(Pairs):
        vocab_type = text_problems.VocabType.TOKEN
        vocab_filename = "words.txt"

    tokens = ["<pad>", "<EOS>", "red", "dog", "roter", "hund", "grosse", "katze", "big"]
    (tmp_path / "words.txt").write_text("\n".join(tokens) + "\n")
    problem = ported(Tokens)
    message = refused("lacks the token 'cat'", generate, problem, tmp_path, workers=1)
    assert "train sample 2" in message

    class Replaced(Tokens):
        oov_token = "<OOV>"

    manifest, pairs = made(Replaced, tmp_path)
    tokenizer, same = tokenizers(tmp_path, manifest)
    assert tokenizer.pieces == ["<pad>", "<EOS>", "<OOV>", *tokens[2:]]
    assert same.pieces == tokenizer.pieces
    texts = [
        (tokenizer.decode(source), tokenizer.decode(target)) for source, target in pairs
    ]
    assert ("big <OOV>", "grosse katze") in texts
    # Once more is as good as once.
    assert made(Replaced, tmp_path)[0] == manifest


def test_a_vocabulary_of_bytes(tmp_path):
    class Characters(Pairs):
        vocab_type = text_problems.VocabType.CHARACTER

    manifest, pairs = made(Characters, tmp_path)
    assert manifest.tokenizer == "t2t_bytes" and manifest.vocab_size == 258
    # tensor2tensor's ByteTextEncoder: the byte plus 2, then EOS.
    expected = ([102, 113, 105, 1], [106, 119, 112, 102, 1])
    assert tuple(map(tuple, expected)) in pairs


def test_reserved_tokens_and_the_text_of_the_vocabulary(tmp_path):
    class Reserved(Pairs):
        additional_reserved_tokens = ("<TITLE>", "dog")
        targeted_vocab_size = 40

    manifest, pairs = made(Reserved, tmp_path)
    assert manifest.vocab_size == 40
    tokenizer, _ = tokenizers(tmp_path, manifest)
    assert tokenizer.encode("<TITLE> dog") == [2, 3, 1]
    assert (3, 1) in [source for source, _ in pairs]

    class OfText(Reserved):
        def generate_text_for_vocab(self, data_dir, tmp_dir):
            yield "zzz"

    manifest, _ = made(OfText, tmp_path)
    tokenizer, _ = tokenizers(tmp_path, manifest)
    sized = ported(OfText).replace(vocab_size=9)
    refused("--vocab_size has no effect", generate, sized, tmp_path / "x", workers=1)
    assert "z" in tokenizer.alphabet and "k" not in tokenizer.alphabet
    assert tokenizer.encode("<TITLE> dog") == [2, 3, 1]


def test_a_vocabulary_file_that_is_there(tmp_path):
    """Also that of another problem."""
    manifest, _ = made(Pairs, tmp_path)

    class Named(Pairs):
        vocab_filename = manifest.vocab_files["source"]

    class Sharing(Pairs):
        @property
        def use_vocab_from_other_problem(self):
            return Pairs()

    for cls in (Named, Sharing):
        problem_again, _ = made(cls, tmp_path)
        assert problem_again.vocab_sha256 == manifest.vocab_sha256


def test_encoders_of_each_side(tmp_path):
    class TwoSides(Pairs):
        def feature_encoders(self, data_dir):
            return {
                "inputs": text_encoder.TokenTextEncoder(f"{data_dir}/en"),
                "targets": text_encoder.TokenTextEncoder(
                    None, vocab_list=["hund", "katze"], replace_oov="UNK"
                ),
            }

    (tmp_path / "en").write_text("red\ndog\nbig\ncat\n")
    manifest, _ = made(TwoSides, tmp_path)
    source, target = tokenizers(tmp_path, manifest)
    assert source.pieces == ["<pad>", "<EOS>", "<UNK>", "red", "dog", "big", "cat"]
    assert target.pieces == ["<pad>", "<EOS>", "UNK", "hund", "katze"]
    assert not manifest.shared_vocab


def test_encoders_of_users_are_refused(tmp_path):
    class Derived(text_encoder.TextEncoder):
        def encode(self, s):
            return [7]

    class Changed(text_encoder.ByteTextEncoder):
        def encode(self, s):
            return super().encode(s.lower())

    class Foreign:
        vocab_size = 300

        def encode(self, s):
            return [byte + 3 for byte in s.encode()]

        def decode(self, ids, strip_extraneous=False):
            return bytes(i - 3 for i in ids).decode()

    for encoder in (Derived(), Changed(), Foreign()):

        class OfOwn(Pairs):
            def get_or_create_vocab(self, data_dir, tmp_dir, force_get=False):
                return encoder  # noqa: B023

        class BothOwn(Pairs):
            def feature_encoders(self, data_dir):
                return {"inputs": encoder, "targets": encoder}  # noqa: B023

        expected = f"': its encoder {type(encoder).__name__} has no tokenizer here; use"
        # Also where tensor2tensor's file of an earlier run is there.
        for cls in (OfOwn, BothOwn, BothOwn):
            message = f"problem '{registry.snake_case(cls.__name__)}{expected}"
            refused(message, generate, ported(cls), tmp_path, workers=1)


def test_encoded_samples_decode_to_texts(tmp_path):
    class Encoded(Pairs):
        def generate_encoded_samples(self, data_dir, tmp_dir, dataset_split):
            samples = self.generate_samples(data_dir, tmp_dir, dataset_split)
            vocab = text_encoder.TokenTextEncoder(
                None, vocab_list=["dog", "hund"], replace_oov="<UNK>"
            )
            return text_problems.text2text_generate_encoded(samples, vocab, vocab)

    manifest, pairs = made(Encoded, tmp_path)
    assert (tmp_path / "encoded-dev.sources").read_text() == "red dog\nbig cat\ndog\n"
    assert pairs[0] == ((2, 2, 1), (2, 2, 1))
    assert manifest.tokenizer == "t2t_tokens"

    class Older(text_problems.Text2TextProblem):
        """As until tensor2tensor 1.3: ids instead of texts."""

        is_character_level = True

        def generator(self, data_dir, tmp_dir, train):
            yield {"inputs": [102, 113, 105, 1], "targets": [35 + train, 1]}

    older = ported(Older)
    pairs = [next(older.pairs(split)) for split in ("train", "dev")]
    assert pairs == [("dog", '"'), ("dog", "!")]


def test_ids_without_a_text_are_refused(tmp_path):
    class Shifted(Pairs):
        def generate_encoded_samples(self, data_dir, tmp_dir, dataset_split):
            encoder = text_encoder.ByteTextEncoder()
            yield {"inputs": [*encoder.encode("dog"), 1], "targets": [202, 1]}

        def feature_encoders(self, data_dir):
            encoder = text_encoder.ByteTextEncoder()
            return {"inputs": encoder, "targets": encoder}

    problem = ported(Shifted)
    refused(
        "'targets' has ids that are not those of a text", list, problem.pairs("dev")
    )


def test_a_download_that_ends_early(tmp_path):
    content = bytes(900_000)
    with FileServer({"/a.txt": content}) as server:
        server.ignores_ranges = True
        server.breaks = [300_000]
        arguments = (str(tmp_path), "a.txt", f"{server.address}/a.txt")
        message = "cannot download .*: the connection was closed too early"
        refused(message, generator_utils.maybe_download, *arguments)
        assert not list(tmp_path.glob("a.txt"))
        path = generator_utils.maybe_download(*arguments)
    assert path == str(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_bytes() == content


def test_columns_of_a_file(tmp_path):
    path = tmp_path / "pairs.tsv"
    path.write_text("a dog\tein hund \nno tab\n")
    samples = text_problems.text2text_txt_tab_iterator(str(path))
    assert list(samples) == [{"inputs": "a dog", "targets": "ein hund"}]
    dataset = ["x.tgz", ("tsv", 1, 0, "*.tsv")]
    pairs = dataset_pairs(str(tmp_path), dataset)
    assert list(pairs) == [("ein hund", "a dog")]


# Archives.


def archive(path, members):
    """Writes an archive of texts by name."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as zipped:
            for name, text in members.items():
                zipped.writestr(name, text)
        return
    with tarfile.open(path, "w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))


@pytest.mark.parametrize("suffix", [".tgz", ".zip", None])
def test_files_of_archives(tmp_path, suffix):
    members = {"x/a.en": "a dog\n\na cat\n", "x/a.de": "ein hund\nleer\neine katze\n"}
    if suffix:
        archive(tmp_path / f"corpus{suffix}", members)
    else:
        (tmp_path / "x").mkdir()
        for name, text in members.items():
            (tmp_path / name).write_text(text)

    class TranslateX(translate.TranslateProblem):
        def source_data_files(self, dataset_split):
            url = f"http://localhost/corpus{suffix or '.tgz'}"
            return [[url, ("x/a.en", "x/a.de")]]

    problem = ported(TranslateX)
    problem = problem.with_flags(problem.flags(tmp_dir=str(tmp_path)))
    pairs = [("a dog", "ein hund"), ("a cat", "eine katze")]
    assert list(problem.pairs("train")) == pairs
    texts = TranslateX().generate_text_for_vocab("", str(tmp_path))
    assert list(texts) == ["a dog", "", "a cat", "ein hund", "leer", "eine katze"]


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (["no/such.tgz", ("a", "b")], "there is no .*a, and no archive"),
        (["corpus.rar", ("a", "b")], "corpus.rar is not an archive"),
        (["http://localhost:9/c.tgz", ("a", "b")], "cannot download http://localhost"),
        (["c.tgz", ("tmx", "c.tmx")], "is not .address"),
        (["c.tgz"], "is not .address, .file, file"),
        (["c.tgz", ("tsv", 0, 1, "c*.tsv")], "unpack c.tgz into"),
        (["corpus.tgz", ("a", "no_such")], "has no member no_such"),
        (["corpus.tgz", ("a", "c")], "has only 1 line and"),
    ],
)
def test_archives_that_cannot_be_read(tmp_path, dataset, message):
    archive(tmp_path / "corpus.tgz", {"a": "1\n2\n", "b": "1\n2\n", "c": "1\n"})
    compiled = translate.compile_data
    refused(message, compiled, str(tmp_path), [dataset], "compiled")
    assert not list(tmp_path.glob("compiled*"))
