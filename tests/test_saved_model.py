import json
import os
import subprocess
import sys

import numpy as np
import pytest
from decoding_models import LINES, transformer

from t2t_keras.decoding.constraint import BannedPieces
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem
from t2t_keras.serving.client import ExportedTranslator
from t2t_keras.serving.saved_model import export_saved_model
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
try:
    call("translate", texts=tf.constant(["a"]), **beams | {"beam_size": tf.constant(2)})
    refusal = ""
except tf.errors.InvalidArgumentError as error:
    refusal = str(error)
print(json.dumps({
    "default": strings(call("serving_default", texts=tf.constant(texts))),
    "single": [strings(call("serving_default", texts=tf.constant([t]))) for t in texts],
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
def served(translator, export):
    """What the model answers in a process of its own."""
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
        ({"min_length": 2}, "min_length: an export has it built in; the options are"),
    ):
        with pytest.raises(UserError, match=message):
            client.n_best(["a"], **mistake)
    with pytest.raises(UserError, match=r"has no saved_model\.pb"):
        ExportedTranslator(tmp_path)


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


def test_replaces_an_export_and_nothing_else(translator, export, tmp_path):
    import tensorflow as tf

    path = tmp_path / "mine"
    path.mkdir()
    (path / "letter.txt").write_text("dear")
    with pytest.raises(UserError, match="is not a SavedModel; name another place"):
        export_saved_model(translator, path)
    assert (path / "letter.txt").read_text() == "dear"
    with pytest.raises(UserError, match="sampling"):
        export_saved_model(translator, tmp_path / "new", sampling=True)

    old = export[0]
    banned = BannedPieces(range(200), translator.target_tokenizer.vocab_size)
    options = {"constraint": banned, "beam_size": 1, "extra_length": 1}
    export_saved_model(translator, old, **options)
    assert [entry.name for entry in old.parent.iterdir()] == ["1"]
    answer = tf.saved_model.load(str(old)).signatures["translate_ids"](
        tf.constant([[5, 1]])
    )
    (expected,) = translator.n_best(["a"], **options)
    assert min(answer["ids"].numpy()[0, 0]) >= 200
    assert len(expected[0].ids) == answer["lengths"].numpy()[0, 0]
