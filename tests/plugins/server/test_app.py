"""The server: its JSON, limits and errors, connections, and shutdown."""

import base64
import contextlib
import json
import logging
import runpy
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")
import httpx
from helpers.decoding_models import LINES
from helpers.errors import refused
from helpers.stub_server import (
    OPTIONS,
    Stub,
    ask,
    error_of,
    predict,
    queued,
    serving,
)
from helpers.waiting import wait_until

from t2t_keras.display import current_words
from t2t_keras.errors import UserError
from t2t_keras.plugins.server import app
from t2t_keras.plugins.server.app import make_app
from t2t_keras.plugins.server.http import Server, few_warnings
from t2t_keras.plugins.server.requests import Limits
from t2t_keras.plugins.server.served_model import ServedModel
from t2t_keras.plugins.server.versions import FixedModel

TEXTS = [line for line in LINES if line.strip()]
LONG = "long " * 200


@pytest.fixture(scope="module")
def client(translator):
    """A server of a run."""
    limits = {"max_characters": 500, "timeout_seconds": 300}
    with serving(ServedModel(translator), "run", **limits) as (client, _, _):
        yield client


# Requests and answers.


def test_columns(client, translator):
    def outputs(signature, inputs):
        answer = predict(client, "run", {"signature_name": signature, "inputs": inputs})
        assert answer.status_code == 200, answer.text
        return answer.json()["outputs"]

    options = {"n_best": 3, "beam_size": 5, "alpha": 1.0, "min_length": 2}
    columns = outputs("translate", {"texts": TEXTS} | options)
    assert columns.keys() == {"texts", "scores", "is_truncated"}
    best = translator.n_best(TEXTS, **options)
    for texts, scores, expected in zip(
        columns["texts"], columns["scores"], best, strict=True
    ):
        assert texts == [output.text for output in expected]
        expected_scores = [output.score for output in expected]
        assert scores == pytest.approx(expected_scores, abs=1e-4)
    blank = outputs("translate", {"texts": ["\u200b", "\0"]})
    assert (blank["texts"], blank["scores"]) == ([[""], [""]], [[0.0], [0.0]])
    assert outputs("serving_default", TEXTS[:1])["texts"]  # the only input, by itself
    assert outputs("serving_default", []) == {}


def test_rows_have_their_own_options(client, translator):
    glossaries = [[["house", "Haus"], ["", ""]], [["book", "x y"]]]
    columns = {"texts": [TEXTS[0], TEXTS[2]], "glossary": glossaries}
    columns |= {"forbidden": [["the", "", "old house"], ["zq"]], "beam_size": [3, 4]}
    rows = [{"texts": text} for text in columns["texts"]]
    for name in ("glossary", "forbidden", "beam_size"):
        for row, value in zip(rows, columns[name], strict=True):
            row[name] = value
    body = {"signature_name": "translate", "instances": rows}
    predictions = predict(client, "run", body).json()["predictions"]
    body = {"signature_name": "translate", "inputs": columns | {"beam_size": 4}}
    texts = predict(client, "run", body).json()["outputs"]["texts"]
    for text, beam_size, output in (
        *zip(
            columns["texts"], (3, 4), [row["texts"] for row in predictions], strict=True
        ),
        *zip(columns["texts"], (4, 4), texts, strict=True),
    ):
        options = {"glossary": {"house": "Haus"}, "forbidden": ["the", "old house"]}
        if text == TEXTS[2]:
            options = {"glossary": {"book": "x y"}, "forbidden": ["zq"]}
        assert output == translator.translate([text], beam_size=beam_size, **options)


def test_what_curl_sends_and_base_64(client, translator):
    text = "a dog runs ."
    encoded = {"b64": base64.b64encode(text.encode()).decode()}
    for instances in ([text], [{"texts": text}], [encoded], [{"texts": encoded}]):
        answer = client.post(
            "/v1/models/run:predict",
            content=json.dumps({"instances": instances}),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        (prediction,) = answer.json()["predictions"]
        assert prediction["texts"] == translator.translate([text])


def test_the_example_of_a_rest_client(client, translator):
    """A client of TensorFlow Serving gets its answers."""
    file = Path(__file__).parents[3] / "examples" / "serve_rest.py"
    example = runpy.run_path(str(file))
    request = example["request"]("http://server/v1/models/run", TEXTS[:2], **OPTIONS)
    answer = client.post(request.selector, content=request.data)
    expected = translator.n_best(TEXTS[:2], 2)
    for translation, best in zip(
        example["outputs"](answer.content), expected, strict=True
    ):
        assert [x for x, _ in translation] == [x.text for x in best]


def translate(**inputs):
    return {"signature_name": "translate", "inputs": {"texts": ["a"]} | inputs}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"instances": ["a" * 501]}, "more than 500 characters"),
        (translate(beam_size=2, n_best=3), "more than beam_size 2"),
        (translate(beam_size=99), "beam_size 99 is more than 32"),
        (
            translate(forbidden=[["a" * 1001]]),
            "phrases have more than 1,000 characters",
        ),
    ],
)
def test_bad_requests(client, body, message):
    answer = predict(client, "run", body)
    assert answer.status_code == 400, answer.text
    assert message in error_of(answer)


def test_requests_that_are_too_large_or_ask_for_no_model(client):
    for body, message in (
        ({"instances": ["a"] * 1025}, "1,025 sentences; at most 1,024"),
        (translate(texts=["a" * 500] * 64, beam_size=32), "times beam"),
        (translate(texts=["a"] * 64, forbidden=[["a" * 999]]), "times beam"),
    ):
        answer = predict(client, "run", body)
        assert answer.status_code == 413
        assert message in error_of(answer)
    for name in ("none", "%ED%A0%80"):
        answer = predict(client, name, {"instances": ["a"]})
        assert answer.status_code == 404
        assert "Servable not found" in error_of(answer)
        assert error_of(answer).endswith("; the models are: run")


def test_threads_hold_up_the_event_loop_only_shortly():
    interval = sys.getswitchinterval()
    with serving(Stub()):
        assert sys.getswitchinterval() <= 0.001
    assert sys.getswitchinterval() == interval


def test_other_endpoints():
    with serving(Stub()) as (client, _, _):
        stub = {"version": 1, "languages": None, "missing": {}}
        assert client.get("/v1/models").json() == {
            "models": ["stub"],
            "split_sentences": ["stub"],
            "details": {"stub": stub},
        }
        for path in ("/", "/style.css", "/page.css", "/page.js", "/sentence.js"):
            answer = client.get(path)
            assert answer.status_code == 200
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert client.get("/none").status_code == 404
        ask(client, "a")
        text = client.get("/metrics").text
    for line in (
        't2t_requests_total{endpoint="predict",status="200"} 1.0',
        't2t_requests_total{endpoint="none",status="404"} 1.0',
        't2t_request_seconds_count{endpoint="predict"} 1.0',
        't2t_batch_sentences_count{model="stub",version="1"} 1.0',
        't2t_queue_sentences{model="stub",version="1"} 0.0',
    ):
        assert line in text.splitlines()


def test_other_methods_and_paths_are_refused():
    predict_path = "/v1/models/stub:predict"
    with serving(Stub()) as (client, _, _):
        for path in (predict_path, "/v1/models/stub/versions/1:predict"):
            for method in ("GET", "HEAD", "PUT"):
                answer = client.request(method, path)
                assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
            assert error_of(answer) == f"{path} takes POST, not PUT"
        status_path = "/v1/models/stub"
        for path in ("/", "/health", "/metrics", "/v1/models", status_path):
            answer = client.post(path, content="{}")
            assert answer.status_code == 405
            assert answer.headers["Allow"] == "GET, HEAD"
            assert error_of(answer) == f"{path} takes GET or HEAD, not POST"
        for path in ("/v1/models/stub:classify", f"/v1/models/a/versions/{'9' * 5000}"):
            for method in ("GET", "POST"):
                answer = client.request(method, path)
                assert answer.status_code == 404
                assert error_of(answer) == f"there is no {path[:200]}"


# Batching, limits and failures.


@contextlib.contextmanager
def busy(**limits):
    """A server of a stub that waits; yields the stub, a client and what asks."""
    stub = Stub()
    with serving(stub, **limits) as (client, _, _), ThreadPoolExecutor(40) as pool:
        stub.may_run.clear()
        pool.submit(ask, client, "first")
        wait_until(lambda: stub.begun == ["first"])
        yield stub, client, lambda *args, **kw: pool.submit(ask, client, *args, **kw)


def test_one_bad_text_fails_alone():
    with busy() as (stub, client, submit):
        answers = [submit(text) for text in ("good", "poison", "crash", "fine")]
        wait_until(lambda: queued(client) == 4)
        stub.may_run.set()
        good, poison, crash, fine = (answer.result() for answer in answers)
    assert good.status_code == fine.status_code == 200
    assert (poison.status_code, error_of(poison)) == (400, "this one is bad")
    assert crash.status_code == 500
    assert error_of(crash) == "the server failed; its log tells why"


def test_abandoned_requests_are_not_run():
    stub = Stub()
    body = json.dumps({"instances": ["gone"]})
    head = "POST /v1/models/stub:predict HTTP/1.1\r\nHost: x\r\nContent-Length: "
    server = serving(stub, timeout_seconds=2)
    executor = ThreadPoolExecutor(8)
    with server as (client, port, _), executor as pool:
        stub.may_run.clear()
        long = pool.submit(ask, client, *[LONG] * 64)
        wait_until(lambda: stub.begun)
        first_request = pool.submit(ask, client, "first")
        wait_until(lambda: "first" in stub.begun)
        begun = len(stub.begun)
        for sent in (body, body[:-1]):  # the second leaves in the middle of its body
            with socket.create_connection(("127.0.0.1", port)) as leaving:
                leaving.sendall(f"{head}{len(body)}\r\n\r\n{sent}".encode())
                time.sleep(0.05)
        line = 't2t_requests_total{endpoint="predict",status="499"} 2.0'
        wait_until(lambda: line in client.get("/metrics").text)
        late = pool.submit(ask, client, "late")
        for answer in (long, first_request, late):
            assert answer.result().status_code == 504
            assert error_of(answer.result()) == "no answer within 2 seconds"
        stub.may_run.set()
        assert ask(client, "now").status_code == 200
        assert ask(client, LONG).status_code == 200
    assert stub.begun[begun:] == ["now", LONG]  # and not the rest of the long request


def test_bodies_are_limited():
    path = "/v1/models/stub:predict"
    with serving(Stub(), max_body_bytes=1000, timeout_seconds=1) as (client, port, _):
        body = json.dumps({"instances": ["a" * 981]})
        assert len(body) == 1000
        assert client.post(path, content=body).status_code == 200
        for content in (body + " ", iter([body.encode(), b" "])):  # the latter: chunked
            answer = client.post(path, content=content)
            assert answer.status_code == 413
            assert error_of(answer) == "the body has more than 1,000 bytes"
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode())
            slow.sendall(b"Content-Length: 9\r\n\r\n{")
            assert received(slow).startswith(b"HTTP/1.1 408")  # and it is closed
        # Many clients read an answer only after they have sent the whole body.
        with pytest.raises(urllib.error.HTTPError, match="413"):
            urllib.request.urlopen(f"{client.base_url}{path}", b" " * 10_000_000)


@contextlib.contextmanager
def clients(port, count, data):
    """Clients that send something, and never read."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(data)
        yield


def received(client):
    """What the server sends until it closes the connection."""
    client.settimeout(60)
    parts = []
    while part := client.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def test_unfinished_bodies_have_a_limit_in_all():
    path = "/v1/models/stub:predict"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n"
    part = head.encode() + b" " * 9_000
    with serving(Stub(), max_unfinished_bytes=20_000) as (client, port, _):
        with clients(port, 2, part):
            # The body is larger than what the clients have left.
            wait_until(lambda: ask(client, "a" * 3_000).status_code == 503)
            answer = ask(client, "a" * 3_000)
            assert (
                error_of(answer) == "there are too many large requests; try again later"
            )
            assert ask(client, "a").status_code == 200
        wait_until(lambda: ask(client, "a" * 3_000).status_code == 200)
        assert client.post(path, content=" " * 20_001).status_code == 503


def test_connections_beyond_the_limit_are_refused():
    with serving(Stub(), max_connections=5) as (client, port, _):
        with clients(port, 4, b""):
            assert ask(client, "a").status_code == 200
            with clients(port, 1, b""):
                wait_until(lambda: client.get("/health").status_code == 503)
        wait_until(lambda: client.get("/health").status_code == 200)


def test_a_request_with_two_ends_is_refused():
    """A proxy might take the other one, and see another request in the rest."""
    head = b"POST /v1/models/stub:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"
    hidden = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    request = head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + hidden
    with (
        serving(Stub()) as (_, port, _),
        socket.create_connection(("127.0.0.1", port)) as client,
    ):
        client.sendall(request)
        answer = received(client)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_what_is_not_http_after_an_answer_leaves_one_line(capfd):
    head = b"GET /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    with few_warnings(), serving(Stub()) as (client, port, _):
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port)) as mixed:
                mixed.sendall(head + b"1\r\n{\r\n")
                while b"}" not in (part := mixed.recv(1 << 16)):
                    assert part
                mixed.sendall(b"nonsense\r\n")
                assert received(mixed) == b""
        assert client.get("/health").status_code == 200
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("a connection was closed: LocalProtocolError(")
    assert logging.getLogger("t2t_keras").propagate


def test_others_are_answered_while_a_large_request_is_parsed(monkeypatch):
    begun = threading.Event()
    may_go_on = threading.Event()
    parse_json = app.parse_json

    def slow_parse(body, max_values):
        if len(body) > 5000:
            begun.set()
            assert may_go_on.wait(60)
        return parse_json(body, max_values)

    monkeypatch.setattr(app, "parse_json", slow_parse)
    many_values = {"instances": [""] * 900}  # in few bytes
    long = {"instances": ["a" * 4000] * 5}
    for body in (many_values, long):
        begun.clear()
        may_go_on.clear()
        content = json.dumps(body).ljust(5001)
        with serving(Stub()) as (client, _, _), ThreadPoolExecutor(1) as pool:
            path = "/v1/models/stub:predict"
            answer = pool.submit(client.post, path, content=content)
            assert begun.wait(60)
            assert client.get("/health").status_code == 200
            assert ask(client, "b").status_code == 200
            may_go_on.set()
            assert answer.result().status_code == 200


def test_a_full_queue_refuses_before_parsing(monkeypatch):
    with busy(max_queue=1) as (stub, client, submit):
        waiting = submit("waits")
        wait_until(lambda: queued(client) == 1)
        with monkeypatch.context() as patch:
            patch.setattr(app, "parse_json", None)
            answer = ask(client, "late")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert error_of(answer) == "the queue is full; try again later"
        stub.may_run.set()
        assert waiting.result().status_code == 200


# Connections.


def test_other_hosts_and_sites_are_refused():
    allowed_hosts = {
        "127.0.0.1",
        "localhost:8501",
        "LOCALHOST",
        "t2t.localhost",
        "[::1]:8501",
    }
    allowed_hosts |= {"10.1.2.3:80", "translate.example.org:443"}
    unknown = {"evil.example:8501", "127.0.0.1.evil.example", "[127.0.0.1"}
    unknown |= {"evillocalhost", "10.evil", "1.2.3.4a"}
    unknown |= {"evil.example@localhost", "localhost/evil", "localhost:80:80"}
    with serving(Stub(), hosts=["translate.example.org"]) as (client, port, _):
        own_host = f"127.0.0.1:{port}"

        def status(host, origin=None):
            headers = {"Host": host, "Content-Type": "text/plain"}
            headers |= {"Origin": origin} if origin else {}
            body = b'{"instances": ["a"]}'
            path = "/v1/models/stub:predict"
            return client.post(path, content=body, headers=headers).status_code

        assert {status(host) for host in allowed_hosts} == {200}
        assert {status(host) for host in unknown} == {421}
        for origin in (f"http://{own_host}", "https://translate.example.org"):
            assert status(own_host, origin) == 200
        for origin in ("http://evil.example", "null", f"http://localhost:{port}", "["):
            assert status(own_host, origin) == 403
    with serving(Stub()) as (client, _, _):
        assert client.get("/health", headers={"Host": "any"}).status_code == 200


def test_while_a_model_loads():
    may_load = threading.Event()

    def load():
        may_load.wait()
        return Stub()

    address = socket.create_server(("127.0.0.1", 0))
    server = Server(make_app({"stub": FixedModel(load)}, Limits()))
    ready = threading.Event()
    server.service.manager.on_ready = ready.set
    url = f"http://127.0.0.1:{address.getsockname()[1]}"
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=url) as client:
        done = pool.submit(server.run, [address])
        assert client.get("/health").json() == {"status": "loading"}
        answer = ask(client, "a")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert "loading" in error_of(answer)
        assert current_words() == "loading stub" and not ready.is_set()
        may_load.set()
        wait_until(lambda: client.get("/health").status_code == 200)
        assert ready.wait(60) and current_words() == ""
        assert ask(client, "a").status_code == 200
        server.should_exit = True
        done.result()


def test_a_model_that_cannot_be_loaded_ends_the_server():
    def load():
        raise UserError("it is damaged")

    address = socket.create_server(("127.0.0.1", 0))
    refused(
        "it is damaged",
        Server(make_app({"stub": FixedModel(load)}, Limits())).run,
        [address],
    )


def test_shutdown_answers_what_waits():
    stub = Stub()
    with serving(stub) as (client, _, server), ThreadPoolExecutor(8) as pool:
        stub.may_run.clear()
        waiting = [pool.submit(ask, client, f"{i}") for i in range(5)]
        wait_until(lambda: len(stub.begun) + queued(client) == 5)
        with httpx.Client(base_url=client.base_url) as open_client:
            answer = open_client.get("/health")
            assert answer.status_code == 200
            assert "connection" not in answer.headers
            server.service.manager.stop()
            answer = open_client.get("/health")
            assert (answer.status_code, answer.json()) == (503, {"status": "stopping"})
            answer = ask(open_client, "late")
            assert answer.status_code == 503
            assert error_of(answer) == "the server is shutting down"
            server.handle_exit(signal.SIGTERM, None)
            stub.may_run.set()
            answers = [x.result() for x in waiting]
            # Clients learn that they must not send another request in the connection.
            pairs = {(x.status_code, x.headers["connection"]) for x in answers}
            assert pairs == {(200, "close")}


def test_what_is_not_answered_in_time_at_shutdown_gets_an_error():
    stub = Stub()
    with serving(stub) as (client, _, server), ThreadPoolExecutor(1) as pool:
        server.config.timeout_graceful_shutdown = 0
        stub.may_run.clear()
        waiting = pool.submit(ask, client, "a")
        wait_until(lambda: stub.begun)
        server.handle_exit(signal.SIGTERM, None)
        answer = waiting.result()
        assert answer.status_code == 503
        assert error_of(answer) == "the server is stopping"


def test_a_shutdown_is_not_held_up_by_clients_that_read_nothing():
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 900
    with contextlib.ExitStack() as stack:
        with serving(Stub(), timeout_seconds=0.5) as (_, port, _):
            stack.enter_context(clients(port, 3, request))
            start = time.monotonic()
        assert time.monotonic() - start < 20
