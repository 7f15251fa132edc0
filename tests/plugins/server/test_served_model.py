"""Options of requests: phrases and numbers as inputs of exported graphs, by row."""

import collections
import contextlib
import json
import math

import numpy as np
import pytest
import tensorflow as tf
from helpers.decoding_models import LINES, SHORT
from helpers.errors import refused
from tensorflow.python.eager import context

from t2t_keras.errors import UserError
from t2t_keras.plugins.server.requests import PredictRequest, TooLarge, parse_json
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


def columns(signature="translate", **inputs):
    return {"signature_name": signature, "inputs": {"texts": ["a"]} | inputs}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "either 'instances' or 'inputs'"),
        ({"instances": ["a"], "inputs": []}, "either"),
        ({"instances": []}, "not empty"),
        ({"instances": "a"}, "must be a list"),
        ({"instances": [3]}, r"texts\[0\] must be a string"),
        ({"instances": [{"x": "a"}]}, "has the inputs texts; 'translate' takes"),
        ({"instances": [{"texts": "a", "x": 1}]}, "^row 0: there is no input 'x'; 's"),
        ({"instances": ["a"], "signature_name": "score"}, "^row 0: 'score' has the"),
        ({"instances": [{"b64": "%"}]}, "base 64"),
        ({"instances": ["\ud800"]}, "character 1 is a lone surrogate"),
        ({"instances": ["a"], "signature_name": "\ud800"}, "there are"),
        ({"instances": ["a"], "signature_name": False}, "False is not a signature"),
        ({"instances": ["a"], "signature_name": None}, "None is not a signature"),
        (
            {"instances": ["a"], "beam_size": 8},
            "^'beam_size' is not a key of the body; options belong in the rows",
        ),
        ({"inputs": ["a"], "beem_size": 8}, "'beem_size' is not a key of the body; op"),
        ({"inputs": ["a"], "signature": "translate"}, "did you mean 'signature_name'"),
        ({"inputs": 3}, "inputs must be an object with texts"),
        ({"inputs": {"\ud800": 1}}, "inputs must be an object with texts"),
        (columns(beam=3), "no input 'beam'; 'translate' has the inputs texts, beam_s"),
        (columns(beam_size=1.5), "beam_size must be an integer"),
        (columns(beam_size=True), "beam_size must be an integer, not True"),
        (columns(n_best=False), "n_best must be an integer"),
        (columns(alpha=True), "alpha must be a finite number, not True"),
        (columns(beam_size="8"), "beam_size must be a number, not the string '8'"),
        (columns(beam_size="9" * 400), "not the string '9{79}$"),
        (columns(beam_size=[True]), "beam_size must be an integer"),
        (columns(beam_size=[1, 2]), "beam_size must have a value for each of the 1"),
        (columns(n_best=0), "n_best must be at least 1"),
        (columns(min_length=-1), "min_length must be at least 0"),
        (columns(alpha=math.nan), "alpha must be a finite number"),
        (columns(alpha=10**400), "alpha must be a finite number"),
        (columns(alpha=1e308), "alpha must be at least -10 and at most 10"),
        (columns(glossary=[["a", "b"]]), "give pairs of a source and a target"),
        (columns(forbidden="a"), "forbidden must be a list for each row, or one"),
        (columns(forbidden=[[3]]), "forbidden: give a list of strings"),
        (columns("score", targets=[]), "targets must have a value for each"),
    ],
)
def test_bad_requests(body, message):
    refused(message, PredictRequest.parse, body)


@pytest.mark.parametrize(
    "body",
    [
        {"instances": ["a"] * 4},
        {"signature_name": "options", "instances": [{}] * 4},
        {"inputs": ["a"] * 4},
        columns("score", texts=["a"] * 4, targets=["a"] * 4),
        columns("score", texts=["a"], targets=["a"] * 4),
        # The rows are counted before they are checked.
        {"instances": [3] * 4},
    ],
)
def test_rows_are_counted_before_they_are_checked(body):
    message = "the request has 4 sentences; at most 3 are allowed"
    with pytest.raises(TooLarge, match=message):
        PredictRequest.parse(body, 3)
    with contextlib.suppress(UserError):  # as many as are allowed
        PredictRequest.parse(body, 4)


def count_of_values(value):
    """The number of values in parsed JSON."""
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return 1
    return 1 + sum(map(count_of_values, inner))


@pytest.mark.parametrize(
    "value",
    [
        3,
        "a, [b] {c}",
        ["a,", ',"[', "\\", '\\"', '\\\\",', "[{" * 9],
        {"a,[": [1, 2, {"b": [None]}], '"': "{", "\\": {"c": "ü,€,😀"}},
        [['"' * k + "," * k + "\\" * k for k in range(20)]] * 3,
        [[[[1]]]],
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32-le"])
@pytest.mark.parametrize("is_ascii", [True, False])
def test_values_are_counted_before_they_are_parsed(
    value, encoding, is_ascii, monkeypatch
):
    body = json.dumps(value, ensure_ascii=is_ascii).encode(encoding)
    count = count_of_values(value)
    assert parse_json(body, count) == value
    monkeypatch.setattr(json, "loads", None)  # it is not called
    with pytest.raises(TooLarge, match=f"has {count} values; at most {count - 1} are"):
        parse_json(body, count - 1)


def test_a_key_that_is_given_twice():
    for body in (
        b'{"instances": ["a"], "instances": ["b"]}',
        b'{"inputs": {"texts": ["a"], "\\ud800": 4, "\\ud800": 8}}',
    ):
        refused("is given twice; leave out one$", parse_json, body, 100)


def test_what_is_not_json():
    for body in (b"{", b"\xff", b"[" * 100_000, b"", b'["\\', b'"' * 99):
        refused("the body is not JSON", parse_json, body, 10**6)
