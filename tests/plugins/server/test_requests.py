"""The JSON of requests: what is refused, how values are counted, compressed bodies."""

import contextlib
import gzip
import json
import math

import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")
from helpers.errors import refused
from helpers.stub_server import Stub, error_of, serving

from t2t_keras.errors import UserError
from t2t_keras.plugins.server.requests import PredictRequest, TooLarge, parse_json

BODY = json.dumps({"instances": ["a dog"]}).encode()
COMPRESSED = gzip.compress(BODY)


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
        (columns(beam_size="8"), "beam_size must be a number, not the string '8'"),
        (columns(beam_size="9" * 400), "not the string '9{79}$"),
        (columns(beam_size=[1, 2]), "beam_size must have a value for each of the 1"),
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


@pytest.fixture(scope="module")
def post():
    """Asks a server for a prediction with a coding and a body."""
    with serving(Stub(), max_body_bytes=1000) as (client, _, _):

        def post(encoding, body):
            headers = {"Content-Encoding": encoding}
            path = "/v1/models/stub:predict"
            return client.post(path, content=body, headers=headers)

        yield post


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", COMPRESSED),
        ("X-GZip", gzip.compress(BODY[:9]) + gzip.compress(BODY[9:])),
        ("identity", BODY),
        ("gzip", gzip.compress(BODY.ljust(1000))),
    ],
    ids=["gzip", "two_members", "identity", "largest"],
)
def test_compressed_bodies_are_answered(encoding, body, post):
    answer = post(encoding, body)
    assert answer.status_code == 200
    assert answer.json() == {"predictions": [{"texts": ["A DOG"]}]}


@pytest.mark.parametrize(
    ("encoding", "body", "status", "message"),
    [
        ("gzip", BODY, 400, "the body is not gzip: "),
        ("gzip", COMPRESSED[:-1], 400, "the body is not gzip: "),
        ("gzip", COMPRESSED + b"x", 400, "the body is not gzip: "),
        ("gzip", gzip.compress(b"{"), 400, "the body is not JSON: "),
        ("gzip", gzip.compress(BODY.ljust(1001)), 413, "the decompressed body has mo"),
        ("gzip", gzip.compress(bytes(900_000)), 413, "the decompressed body has more"),
        ("br", BODY, 415, "Content-Encoding 'br' is not supported; send the body with"),
        ("gzip, gzip", BODY, 415, "Content-Encoding 'gzip, gzip' is not supported"),
    ],
    ids=[
        "not_gzip",
        "cut",
        "bytes_after_the_end",
        "not_json",
        "too_long",
        "bomb",
        "other_coding",
        "two_codings",
    ],
)
def test_other_bodies_are_refused(encoding, body, status, message, post):
    answer = post(encoding, body)
    assert answer.status_code == status
    assert error_of(answer).startswith(message)
    accepted = "gzip, identity" if status == 415 else None
    assert answer.headers.get("Accept-Encoding") == accepted
