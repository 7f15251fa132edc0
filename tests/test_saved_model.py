import collections
import fcntl
import itertools
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from decoding_models import LINES, NOT_TEXTS, transformer
from tensorflow.core.protobuf import saved_model_pb2

import t2t_keras
from t2t_keras.decoding.constraint import BannedTokens
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.translator import Translator
from t2t_keras.export.client import ExportedTranslator
from t2t_keras.export.saved_model import export_saved_model
from t2t_keras.option import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.sentence_piece import SentencePieceTokenizer, train_sentence_piece

TEXTS = [*LINES, "the old dog reads . " * 30, "\u2028\x85 \x1c", "\u200b"]
TARGETS = [*TEXTS[1:], "a book"]

# Run in a process that imports TensorFlow and TensorFlow Text and nothing else.
CLIENT = """
import json, sys
import tensorflow as tf
import tensorflow_text

path, texts, targets, ids = json.load(sys.stdin)
served = tf.saved_model.load(path)

def call(name, **inputs):
    outputs = served.signatures[name](**inputs)
    return {name: tensor.numpy().tolist() for name, tensor in outputs.items()}

def strings(outputs):
    texts = [[text.decode() for text in row] for row in outputs["texts"]]
    return {"texts": texts, "scores": outputs["scores"]}

beams = {"beam_size": 6, "n_best": 5, "alpha": 1.0}
beams = {name: tf.constant(value) for name, value in beams.items()}
beams = served.signatures["options"]() | beams
try:
    call("translate", texts=tf.constant(["a"]), **beams | {"beam_size": tf.constant(2)})
    refusal = ""
except tf.errors.InvalidArgumentError as error:
    refusal = str(error)
print(json.dumps({
    "default": strings(call("serving_default", texts=tf.constant(texts))),
    "single": [strings(call("serving_default", texts=tf.constant([t]))) for t in texts],
    "truncated": call("serving_default", texts=tf.constant(texts))["is_truncated"],
    "none": strings(call("serving_default", texts=tf.constant([], tf.string))),
    "translate": strings(call("translate", texts=tf.constant(texts), **beams)),
    "ids": call("translate_ids", ids=tf.constant(ids)),
    "score": call("score", texts=tf.constant(texts), targets=tf.constant(targets)),
    "refusal": refusal,
    "modules": [name for name in ("t2t_keras", "sentencepiece") if name in sys.modules],
}))
"""


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.spm"
    train_sentence_piece(LINES * 2, path, 340)
    tokenizer = SentencePieceTokenizer(path)
    model = transformer(tokenizer.vocab_size, d_model=64, d_ff=256)
    problem = Problem(summary="", extra_length=6)
    return Translator(problem, model, tokenizer, tokenizer)


@pytest.fixture(scope="module")
def export(translator, tmp_path_factory):
    """The exported model's directory and size."""
    path = tmp_path_factory.mktemp("export") / "model" / "1"
    return path, export_saved_model(translator, path, n_best=3, max_source_length=50)


@pytest.fixture(scope="module")
def signatures(export):
    """The model's signatures in this process."""
    served = tf.saved_model.load(str(export[0]))  # holds the weights
    yield served.signatures


@pytest.fixture(scope="module")
def served(translator, export):
    """What the model answers in another process."""
    rows = [translator.source_tokenizer.encode(text) for text in LINES[:2]]
    ids = [[*row, *[0] * (40 - len(row))] for row in rows]
    process = subprocess.run(
        [sys.executable, "-c", CLIENT],
        input=json.dumps([str(export[0]), TEXTS, TARGETS, ids]),
        capture_output=True,
        text=True,
        check=False,
        cwd=export[0],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def assert_same(answer, expected):
    """One sentence's texts and scores are those of `Translator.n_best`."""
    texts, scores = answer
    assert texts[: len(expected)] == [output.text for output in expected]
    np.testing.assert_allclose(
        scores[: len(expected)], [output.score for output in expected], atol=1e-4
    )
    assert set(texts[len(expected) :]) <= {""}
    assert np.isneginf(scores[len(expected) :]).all()


def test_equals_in_process(translator, served):
    expected = translator.n_best(TEXTS, 3, max_source_length=50)
    answers = zip(served["default"]["texts"], served["default"]["scores"], strict=True)
    for answer, alone, outputs in zip(answers, served["single"], expected, strict=True):
        assert_same(answer, outputs)
        assert_same((alone["texts"][0], alone["scores"][0]), outputs)
    assert len(expected) == len(TEXTS)
    assert served["none"] == {"texts": [], "scores": []}
    tokens = [len(translator.source_tokenizer.encode(text)) for text in TEXTS]
    assert served["truncated"] == [False] * len(TEXTS)  # but split
    assert served["score"]["is_truncated"] == [count > 50 for count in tokens]
    assert served["score"]["is_truncated"].count(True) == 1
    assert served["modules"] == []


def test_beam_size_is_an_input(translator, served):
    options = {"beam_size": 6, "alpha": 1.0, "max_source_length": 50}
    expected = translator.n_best(TEXTS, 5, **options)
    answers = zip(
        served["translate"]["texts"], served["translate"]["scores"], strict=True
    )
    for answer, outputs in zip(answers, expected, strict=True):
        assert_same(answer, outputs)
    assert "n_best" in served["refusal"]


def test_client_in_python(translator, export, tmp_path):
    client = ExportedTranslator(export[0])
    options = {"n_best": 5, "beam_size": 6, "alpha": 1.0}
    expected = translator.n_best(TEXTS, **options, max_source_length=50)
    for found, outputs in zip(client.n_best(TEXTS, **options), expected, strict=True):
        assert_same([list(column) for column in zip(*found, strict=True)], outputs)
        assert len(found) == len(outputs)
    assert client.n_best([]) == []
    for mistake, message in (
        ({"n_best": 9}, "n_best 9 is more than the beam size, 4"),
        ({"beam_size": 0}, "beam_size must be at least 1"),
        ({"alpha": float("nan")}, "alpha must be a finite number"),
        ({"min_length": -1}, "min_length must be at least 0"),
        (
            {"extra_length": 2},
            "extra_length: an export has it built in .extra_length is",
        ),
    ):
        with pytest.raises(UserError, match=message):
            client.n_best(["a"], **mistake)
    for texts, message in NOT_TEXTS:
        for method in (client.translate, client.n_best):
            with pytest.raises(UserError, match=message):
                method(texts)
        for pair in ((texts, ["a"]), (["a"], texts)):
            with pytest.raises(UserError, match=r"^(sources|targets)"):
                client.score(*pair)
    with pytest.raises(UserError, match="an export cannot force them"):
        client.translate(["a"], ["b"])
    with pytest.raises(UserError, match="1 sources but 2 targets"):
        client.score(["a"], ["b", "c"])
    with pytest.raises(UserError, match=r"has no saved_model\.pb"):
        ExportedTranslator(tmp_path)


def test_min_length_is_an_input(translator, export):
    client = ExportedTranslator(export[0])
    options = {"min_length": 12, "beam_size": 3, "n_best": 1}
    expected = translator.n_best(LINES, **options)
    for found, outputs in zip(client.n_best(LINES, **options), expected, strict=True):
        assert_same([list(column) for column in zip(*found, strict=True)], outputs)
    assert client.translate(LINES) != [best[0].text for best in expected]


def test_requests_may_have_every_option_that_is_a_tensor():
    """But those of sampling, and the one that limits what a request may cost."""
    every = set(DecodingOptions.names("is_tensor")) - {"extra_length"}
    every -= set(DecodingOptions.names("of_sampling"))
    assert set(DecodingOptions.names("is_served")) == every


def test_the_settings_of_an_export(translator, export):
    settings = ExportedTranslator(export[0]).settings
    assert settings.decoding["max_source_length"] == 50
    assert settings.decoding["raw"] is False
    assert not settings.ids_only
    assert set(settings.signatures) == set(
        tf.saved_model.load(str(export[0])).signatures
    )


def test_client_takes_the_place_of_the_translator(translator, export, caplog):
    client = t2t_keras.load(export[0])
    options = {"max_source_length": 50}
    assert client.translate(TEXTS) == translator.translate(TEXTS, **options)
    done = []
    found = client.n_best(TEXTS, 2, advance=done.append)
    assert [len(outputs) for outputs in found] == [
        len(outputs) for outputs in translator.n_best(TEXTS, 2, **options)
    ]
    assert sum(done) == len(TEXTS)
    expected = translator.score(TEXTS, TARGETS, **options)
    for ours, theirs in zip(client.score(TEXTS, TARGETS), expected, strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.log_prob == pytest.approx(theirs.log_prob, rel=1e-5, abs=1e-4)
    with pytest.raises(UserError, match="is an export, which has only one"):
        t2t_keras.load(export[0], "best")

    caplog.clear()
    client.translate(TEXTS)  # the long one is split
    client.score(TEXTS, TARGETS)  # and here it is truncated
    warnings = [record.getMessage() for record in caplog.records]
    assert len(warnings) == 1
    number = TEXTS.index(max(TEXTS, key=len)) + 1
    assert warnings[0].startswith(f"input {number} is longer than the export allows")


def test_client_of_an_export_without_is_truncated(tmp_path):
    """As it was written before that output was."""

    class Old(tf.Module):
        @tf.function(
            input_signature=[
                tf.TensorSpec([None], tf.string, "texts"),
                tf.TensorSpec([], tf.int32, "beam_size"),
                tf.TensorSpec([], tf.int32, "n_best"),
                tf.TensorSpec([], tf.float32, "alpha"),
            ]
        )
        def translate(self, texts, beam_size, n_best, alpha):
            scores = tf.fill([tf.size(texts), 1], alpha)
            return {"texts": tf.strings.upper(texts)[:, None], "scores": scores}

        @tf.function(input_signature=[])
        def options(self):
            beam = {"beam_size": tf.constant(4), "n_best": tf.constant(1)}
            return beam | {"alpha": tf.constant(0.5)}

    old = Old()
    signatures = {"translate": old.translate, "options": old.options}
    tf.saved_model.save(old, str(tmp_path), signatures=signatures)
    assert t2t_keras.load(tmp_path).n_best(["a"]) == [[("A", 0.5)]]


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("translate", {"beam_size": 0}, "beam_size must be at least 1"),
        ("translate", {"n_best": 0}, "n_best must be at least 1"),
        ("translate", {"n_best": 5}, "n_best must be at most beam_size"),
        ("translate", {"min_length": -1}, "min_length must be at least 0"),
        ("translate", {"alpha": float("nan")}, "alpha must be a finite number"),
        ("translate", {"alpha": float("-inf")}, "alpha must be a finite number"),
        ("score", {"targets": ["a", "b"]}, "must be of equal length"),
        ("translate_ids", {"ids": [[5, -1, 1]]}, "ids must be from 0 to"),
        ("translate_ids", {"ids": [[5, 10**6, 1]]}, "ids must be from 0 to"),
        ("translate_ids", {"ids": [[5, 1], [5, 6]]}, "each row of ids must end in 1"),
        ("translate_ids", {"ids": [[5, 0, 1]]}, "may only follow the last token"),
    ],
)
def test_impossible_inputs(name, inputs, message, signatures):
    texts = {"texts": ["a"]}
    possible = {
        "translate": texts
        | {"beam_size": 4, "n_best": 1, "alpha": 0.6, "min_length": 0},
        "score": texts | {"targets": ["b"]},
        "translate_ids": {"ids": [[5, 1, 0], [0, 0, 0]]},
    }[name]
    tensors = {key: tf.constant(value) for key, value in possible.items()}
    signatures[name](**tensors)
    tensors |= {key: tf.constant(value) for key, value in inputs.items()}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signatures[name](**tensors)


def test_ids_without_a_column(signatures):
    found = signatures["translate_ids"](ids=tf.zeros([2, 0], tf.int32))
    assert found["lengths"].numpy().tolist() == [[0] * 3] * 2


@pytest.mark.slow
def test_what_a_killed_export_left_is_removed(translator, tmp_path):
    target = tmp_path / "ende"
    left = tmp_path / ".ende.incomplete"
    (left / "new" / "variables").mkdir(parents=True)
    (left / "new" / "saved_model.pb").write_text("half")
    with open(left / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="another process is writing"):
            export_saved_model(translator, target)
    assert [entry.name for entry in tmp_path.iterdir()] == [".ende.incomplete"]
    export_saved_model(translator, target)
    assert [entry.name for entry in tmp_path.iterdir()] == ["ende"]
    assert (target / "saved_model.pb").read_bytes() != b"half"


# Prints the types of operations that TensorFlow itself does not have.
OPERATIONS = """
import sys
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

with open(sys.argv[1] + "/saved_model.pb", "rb") as file:
    (graph,) = saved_model_pb2.SavedModel.FromString(file.read()).meta_graphs
library = graph.graph_def.library.function
types = {node.op for node in graph.graph_def.node}
types |= {node.op for function in library for node in function.node_def}
types -= {function.signature.name for function in library}
print(*sorted(t for t in types if op_def_registry.get(t) is None))
"""


def lacking(path):
    """The operations of an export that TensorFlow without TensorFlow Text lacks."""
    process = subprocess.run(
        [sys.executable, "-c", OPERATIONS, path],
        check=True,
        capture_output=True,
        text=True,
    )
    return process.stdout.split()


def test_operations_of_tensorflow_text(translator, export):
    """docs/serving.md names them."""
    assert lacking(export[0]) == [
        "SentencepieceDetokenizeOp",
        "SentencepieceOp",
        "SentencepieceTokenizeOp",
    ]


@pytest.mark.slow
def test_ids_need_none_of_them(translator, tmp_path):
    export_saved_model(translator, tmp_path / "1", ids_only=True, quantization="int8")
    assert lacking(tmp_path / "1") == []


@pytest.mark.slow
def test_the_command_line_of_tensorflow(translator, export):
    """`saved_model_cli run`, once the operations of TensorFlow Text are there."""
    program = "import tensorflow_text\n"
    program += "from tensorflow.python.tools import saved_model_cli as c; c.main()"
    arguments = ["run", "--dir", export[0], "--tag_set", "serve", "--outdir", "out"]
    arguments += ["--signature_def", "serving_default"]
    arguments += ["--input_exprs", "texts=['a dog runs .', 'a']"]
    subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        capture_output=True,
        cwd=export[0].parent.parent,
    )
    out = export[0].parent.parent / "out"
    texts = np.load(out / "texts.npy", allow_pickle=True)
    expected = translator.n_best(["a dog runs .", "a"], 3)
    assert [[text.decode() for text in row] for row in texts] == [
        [output.text for output in best] for best in expected
    ]


def test_ids(translator, served):
    for row, outputs in enumerate(translator.n_best(LINES[:2], 3)):
        for place, output in enumerate(outputs):
            length = served["ids"]["lengths"][row][place]
            assert tuple(served["ids"]["ids"][row][place][:length]) == output.ids
            assert served["ids"]["scores"][row][place] == pytest.approx(
                output.score, abs=1e-4
            )


def test_scores(translator, served):
    expected = translator.score(TEXTS, TARGETS, max_source_length=50)
    np.testing.assert_allclose(
        served["score"]["log_prob"],
        [s.log_prob for s in expected],
        rtol=1e-5,
        atol=1e-4,
    )
    assert served["score"]["tokens"] == [s.tokens for s in expected]


def test_weights_are_stored_once(translator, export):
    path, size = export
    weights = sum(4 * int(np.prod(w.shape)) for w in translator.model.weights)
    stored = sum(file.stat().st_size for file in (path / "variables").iterdir())
    assert weights <= stored < 1.05 * weights + 20_000
    assert size == sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
    assert [entry.name for entry in path.parent.iterdir()] == ["1"]


def test_functions_are_stored_once(export):
    """Also those that several signatures call; and no gradients are stored."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((export[0] / "saved_model.pb").read_bytes())
    (graph,) = saved.meta_graphs
    functions = [it.signature.name for it in graph.graph_def.library.function]
    counts = collections.Counter(
        re.sub(r"^__inference_|_\d+$", "", f) for f in functions
    )
    for name in (
        "_beam_search",
        "search_ids",
        "score_ids",
        "translate",
        "score",
        "serve",
    ):
        assert counts[name] == 1
    assert not graph.graph_def.library.gradient
    assert not any("grad" in name for name in functions)
    nodes = itertools.chain(*(it.node_def for it in graph.graph_def.library.function))
    # TensorFlow would warn of functions that name gradients when it loads the export.
    assert not any("_gradient_op_type" in node.attr for node in nodes)


@pytest.mark.slow
def test_replaces_an_export_and_nothing_else(translator, export, tmp_path):
    path = tmp_path / "mine"
    path.mkdir()
    (path / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="is not an export; name another dir"):
        export_saved_model(translator, path)
    assert (path / "letter.txt").read_text() == "dear"
    with pytest.raises(UserError, match="sampling"):
        export_saved_model(translator, tmp_path / "new", sampling=True)

    old = export[0]
    banned = BannedTokens(range(200), translator.target_tokenizer.vocab_size)
    options = {"constraint": banned, "beam_size": 1, "extra_length": 1}
    with pytest.raises(UserError, match="give --overwrite to replace it"):
        export_saved_model(translator, old, **options)
    export_saved_model(translator, old, overwrite=True, **options)
    assert [entry.name for entry in old.parent.iterdir()] == ["1"]
    answer = tf.saved_model.load(str(old)).signatures["translate_ids"](
        tf.constant([[5, 1]])
    )
    (expected,) = translator.n_best(["a"], **options)
    assert min(answer["ids"].numpy()[0, 0]) >= 200
    assert len(expected[0].ids) == answer["lengths"].numpy()[0, 0]
