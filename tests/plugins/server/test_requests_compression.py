"""Request bodies that are compressed."""

import gzip
import json

import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")
from helpers.stub_server import Stub, error_of, serving

BODY = json.dumps({"instances": ["a dog"]}).encode()
COMPRESSED = gzip.compress(BODY)


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
