"""Runs and exports as signatures, with phrases and numbers as inputs, by row."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from helpers.decoding_models import LINES, SHORT
from tensorflow.python.eager import context

from t2t_keras.plugins.server.served_model import ServedModel, Unwanted

TEXTS = [line for line in LINES if line.strip()]
GLOSSARIES = [
    {"dog": "Hund"},
    {"dog": "x y", "the": "z"},
    {"old river": "alter Fluss", "a": "ein"},
    {"café": "Kaffee", "cat": "Katze"},
]
FORBIDDEN = [("x",), ("the",), ("a", "the old", "—"), ("dog runs", "e")]


def phrases(i):
    """The phrases of the i-th request."""
    return {"glossary": GLOSSARIES[i], "forbidden": FORBIDDEN[i]}


@pytest.fixture(scope="module")
def translate(served):
    """The signature of an export, as a function of columns to arrays."""
    options = served.signatures["options"]()

    def call(texts, **changes):
        inputs = {k: tf.constant(v, options[k].dtype) for k, v in changes.items()}
        inputs = {"texts": tf.constant(texts)} | options | inputs
        outputs = served.signatures["translate"](**inputs)
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    return call


def assert_row(texts, scores, expected):
    """Texts and scores of a row are the expected hypotheses, and then nothing."""
    count = len(expected)
    assert [text.decode() for text in texts[:count]] == [x.text for x in expected]
    np.testing.assert_allclose(scores[:count], [x.score for x in expected], atol=1e-4)
    assert set(texts[count:]) <= {b""}
    assert np.isneginf(scores[count:]).all()


@pytest.fixture(params=["run", "export"], scope="module")
def model(request, translator):
    """What the server asks, with the defaults of the server."""
    if request.param == "run":
        return ServedModel(translator, n_best=2, **SHORT)
    return ServedModel(request.getfixturevalue("exported"), n_best=2)


def test_other_phrases_cost_no_trace(model, translator):
    """Four requests trace no more functions than the first one."""
    rows = [{"texts": text} for text in TEXTS]
    functions = set()
    outputs = []
    for glossary, forbidden in zip(GLOSSARIES, FORBIDDEN, strict=True):
        phrase_options = {"glossary": glossary, "forbidden": forbidden}
        best = translator.n_best(TEXTS, 2, **phrase_options, **SHORT)
        predictions = model.predict("translate", rows, phrase_options)
        functions.add(len(context.context().list_function_names()))
        outputs.append([[*row["texts"]] for row in predictions])
        for texts, expected in zip(outputs[-1], best, strict=True):
            assert texts == [output.text for output in expected]
    assert len(functions) == 1
    assert outputs[0] != outputs[1]


def test_every_signature(model, translator):
    texts = [*TEXTS, ""]
    beams = {"beam_size": 5, "n_best": 3, "alpha": 1.0, "min_length": 2}
    rows = [{"texts": text} for text in texts]
    for signature, options in (("translate", beams), ("serving_default", {})):
        predictions = model.predict(signature, rows, options)
        best = translator.n_best(texts, **{"n_best": 2} | options, **SHORT)
        for row, output in zip(predictions, best, strict=True):
            outputs = [text.encode() for text in row["texts"]]
            assert len(outputs) == options.get("n_best", 2)
            assert_row(outputs, np.array(row["scores"]), output)
    pairs = [
        {"texts": x, "targets": y} for x, y in zip(texts, texts[::-1], strict=True)
    ]
    scores = translator.score(texts, texts[::-1], **SHORT)
    for predictions, score in zip(
        model.predict("score", pairs, {}), scores, strict=True
    ):
        assert (predictions["tokens"], predictions["ids"]) == (score.tokens, score.ids)
        log_probs = [predictions["log_prob"], *predictions["token_log_probs"]]
        assert log_probs == pytest.approx(
            [score.log_prob, *score.token_log_probs], abs=1e-3
        )
    (defaults,) = model.predict("options", [{}], {})
    assert (defaults["n_best"], defaults["min_length"]) == (2, 0)
    assert (defaults["glossary"], defaults["forbidden"]) == ([(("", ""),)], [("",)])


def test_truncation_is_reported(model, translator):
    pairs = [{"texts": x, "targets": "a"} for x in ("a .", "the old dog reads . " * 24)]

    def truncated(model, signature):
        rows = pairs
        if signature != "score":
            rows = [{"texts": pair["texts"]} for pair in pairs]
        return [x["is_truncated"] for x in model.predict(signature, rows, {})]

    # What is too long is split; but a pair is never split.
    assert truncated(model, "translate") == [False, False]
    assert truncated(model, "score") == [False, True]
    cut = ServedModel(translator, max_source_length=50, truncate=True)
    assert truncated(cut, "translate") == truncated(cut, "score") == [False, True]
    pairs = [{"texts": x["targets"], "targets": x["texts"]} for x in pairs]
    assert truncated(model, "score") == truncated(cut, "score") == [False, True]


def test_decoding_stops_once_no_client_waits(translator):
    asked = []

    def is_wanted():
        asked.append(None)
        return len(asked) < 2

    model = ServedModel(translator)
    rows = [{"texts": text} for text in TEXTS * 3]
    with pytest.raises(Unwanted):
        model.predict("translate", rows, {}, is_wanted)
    assert len(asked) == 2


def test_requests_are_batched_as_tensorflow_serving_does(translate):
    """With `--enable_batching`: rows are concatenated, padded to a size, and split."""
    requests = []
    for i in range(4):
        texts = TEXTS[i : i + 1 + i % 2]
        phrase_options = phrases(i)
        # `pad_variable_length_inputs` fills the axes that differ with empty strings.
        pairs = [*phrase_options["glossary"].items()]
        bans = [*phrase_options["forbidden"]]
        values = {"beam_size": 4 + i % 2, "n_best": 1 + i % 3, "alpha": 0.5 * i}
        values["glossary"] = pairs + [("", "")] * (2 - len(pairs))
        values["forbidden"] = bans + [""] * (3 - len(bans))
        requests.append((texts, {k: [v] * len(texts) for k, v in values.items()}))
    texts = []
    columns = collections.defaultdict(list)
    for request_texts, options in requests:
        texts += request_texts
        for name, values in options.items():
            columns[name] += values
    columns["min_length"] = [0] * len(texts)
    for column in (texts, *columns.values()):
        column += [column[-1]] * (8 - len(column))
    translations = translate(texts, **columns)
    assert translations["texts"].shape == (8, 3)
    row = 0
    for texts, options in requests:
        unbatched = translate(texts, **options)
        n = options["n_best"][0]
        for values, scores in zip(unbatched["texts"], unbatched["scores"], strict=True):
            assert translations["texts"][row].tolist() == [*values, *[b""] * (3 - n)]
            np.testing.assert_allclose(
                translations["scores"][row, :n], scores, atol=1e-4
            )
            assert np.isneginf(translations["scores"][row, n:]).all()
            row += 1
    assert row == 6


def test_options_of_another_number_of_rows_are_refused(translate):
    for name, value in (
        ("alpha", [0.1, 0.2]),
        ("beam_size", [4] * 4),
        ("forbidden", [["a"]] * 2),
        ("glossary", [[["a", "b"]]] * 2),
    ):
        message = f"{name} must have one value, or one for each row"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            translate(TEXTS[:3], **{name: value})
    no_texts = tf.zeros([0], tf.string)
    assert translate(no_texts, beam_size=[], alpha=[0.5])["texts"].size == 0
