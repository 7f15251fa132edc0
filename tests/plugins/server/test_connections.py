"""The connections of the server: their limits, half-closed ones, and errors of HTTP."""

import asyncio
import contextlib
import json
import os
import resource
import socket
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")
from helpers.stub_server import Stub, ask, error_of, queued, serving, wait_for

from t2t_keras.plugins.server import app, connections
from t2t_keras.plugins.server.requests import Limits

PATH = "/v1/models/stub:predict"
HEALTH = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = json.dumps({"instances": ["a"]}).encode()
POST = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nContent-Length: ".encode()


@pytest.fixture(autouse=True)
def fast_checks(monkeypatch):
    monkeypatch.setattr(connections, "_SWEEP_SECONDS", 0.02)


@contextlib.contextmanager
def clients(port, count, data, receive_bytes=2048):
    """Clients that send something, and never read."""
    with contextlib.ExitStack() as stack:
        opened = []
        for _ in range(count):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            client.connect(("127.0.0.1", port))
            client.sendall(data)
            opened.append(client)
        yield opened


def is_closed(client):
    """Whether the server has closed a connection, after what it has sent."""
    client.setblocking(False)
    try:
        while client.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def received(client):
    """What the server sends until it closes the connection."""
    client.settimeout(60)
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 16):
            parts.append(part)
    return b"".join(parts)


def opened_connections(server):
    return server.service.connections._open


def test_headers_have_a_time_limit(monkeypatch):
    monkeypatch.setattr(connections, "_HEADER_SECONDS", 0.5)
    with serving(Stub()) as (_, port, _):
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(HEALTH[:-2])
            time.sleep(0.3)
            slow.sendall(b"X: y\r\n")  # more data do not extend it
            start = time.monotonic()
            assert received(slow) == b""
            assert time.monotonic() - start < 0.5
        with socket.create_connection(("127.0.0.1", port)) as idle:
            for _ in range(2):
                idle.sendall(HEALTH)
                while b"}" not in (part := idle.recv(10_000)):
                    assert part
                time.sleep(0.8)  # one that is idle stays longer


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET /health HTTP/1.1\r\n",
        HEALTH,  # and then nothing more
        HEALTH[:-2] + b"Content-Length: 99\r\n\r\n{",  # answered before its end
        POST + b"100000\r\n\r\n{",
        b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 900,  # and never reads
    ],
)
def test_the_oldest_connections_make_room(data):
    with (
        serving(Stub(), max_connections=5) as (client, port, server),
        clients(port, 20, data),
    ):
        for _ in range(3):
            assert client.get("/health", timeout=20).status_code == 200
            assert ask(client, "a").status_code == 200
        assert len(opened_connections(server)) <= 5


def test_requests_with_a_model_are_not_given_up():
    stub = Stub()
    request = POST + b"%d\r\n\r\n" % len(BODY) + BODY
    with serving(stub, max_connections=4) as (client, port, server):
        stub.may_run.clear()
        with clients(port, 4, request) as busy:
            # Three of four connections may be busy, so one is free for others.
            wait_for(lambda: server.service._num_busy == 3)
            answer = ask(client, "late")
            assert answer.status_code == 503
            assert error_of(answer) == "there are too many requests; try again later"
            assert client.get("/health").status_code == 200
            stub.may_run.set()
            starts = []
            for connection in busy:
                with contextlib.suppress(ConnectionError):
                    starts.append(connection.recv(12))
            assert starts.count(b"HTTP/1.1 200") == 3


def test_without_room_the_error_is_json(monkeypatch):
    monkeypatch.setattr(connections.Connections, "add", lambda self, connection: False)
    server = serving(Stub())
    monkeypatch.setattr("helpers.stub_server.wait_for", lambda condition: None)
    with server as (client, _, _):
        answer = client.get("/health")
        assert answer.status_code == 503
        assert "too many connections" in error_of(answer)


def test_descriptors_limit_the_connections(monkeypatch):
    used = len(os.listdir("/dev/fd"))
    limits = (used + connections._SPARE_DESCRIPTORS + 7, 10**6)
    monkeypatch.setattr(resource, "getrlimit", lambda resource_id: limits)
    free = connections.Connections(Limits())._free_descriptors()
    assert 5 <= free <= 8  # other threads may open and close files
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda resource_id: unlimited)
    limits = Limits(max_connections=3)
    assert connections.Connections(limits)._free_descriptors() == 3


@pytest.fixture
def large_answer(monkeypatch):
    """The list of models has 20 MB."""
    answer = app.Response("x" * 20_000_000)

    async def models(self, request):
        return answer

    monkeypatch.setattr(app.Service, "models", models)


def test_an_answer_has_a_time_limit_for_its_client(monkeypatch, large_answer):
    """One that reads nothing is disconnected; one that reads slowly is not."""
    monkeypatch.setattr(connections, "_MIN_READ_BYTES", 10_000)
    request = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with (
        serving(Stub(), timeout_seconds=0.4) as (_, port, server),
        clients(port, 2, request, 1 << 20) as (stalled, slow),
    ):
        count = 0
        slow.settimeout(60)
        while part := slow.recv(1 << 20):
            count += len(part)
            if count < 10_000_000:
                time.sleep(0.02)
        assert count > 20_000_000
        wait_for(lambda: not opened_connections(server))
        assert len(received(stalled)) < 20_000_000


def test_unread_answers_have_a_limit_in_all(large_answer):
    request = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
    with (
        serving(Stub(), max_unread_bytes=50_000_000) as (_, port, server),
        clients(port, 6, request),
    ):
        wait_for(lambda: 0 < sum(x.unread for x in opened_connections(server)) < 5e7)


def test_unfinished_bodies_have_a_limit_in_all():
    part = POST + b"100000\r\n\r\n" + b" " * 50_000
    limits = {"max_unfinished_bytes": 200_000}
    with serving(Stub(), **limits) as (client, port, server):
        with clients(port, 7, part) as slow, contextlib.ExitStack() as stack:
            wait_for(lambda: sum(map(is_closed, slow)) >= 4)
            (newest,) = stack.enter_context(clients(port, 1, part))
            wait_for(lambda: sum(map(is_closed, slow)) >= 5)
            body_sizes = [x.body_bytes for x in opened_connections(server)]
            assert 0 < sum(body_sizes) <= 200_000
            assert not is_closed(newest)  # the oldest ones are closed
            assert ask(client, "a" * 3000).status_code == 200
        wait_for(lambda: server.service.connections._body_bytes == 0)


def test_large_bodies_that_wait_have_a_limit():
    with serving(Stub(), max_unfinished_bytes=20_000) as (client, _, server):
        server.service._unparsed_bytes = 10_000
        body = json.dumps({"instances": ["a" * 4500] * 4})
        assert app._SMALL_BODY < len(body) < 20_000
        answer = client.post(PATH, content=body)
        assert answer.status_code == 503
        assert "too many large requests" in error_of(answer)


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
    request_body = {"instances": [""] * 900}  # few bytes, but many values
    long = {"instances": ["a" * 4000] * 5}
    for body in (request_body, long):
        begun.clear()
        may_go_on.clear()
        text = json.dumps(body).ljust(5001)
        with serving(Stub()) as (client, _, _), ThreadPoolExecutor(1) as pool:
            answer = pool.submit(client.post, PATH, content=text)
            assert begun.wait(60)
            assert client.get("/health").status_code == 200
            assert ask(client, "b").status_code == 200
            may_go_on.set()
            assert answer.result().status_code == 200


def test_a_full_queue_refuses_before_parsing(monkeypatch):
    stub = Stub()
    with serving(stub, max_queue=1) as (client, _, _), ThreadPoolExecutor(2) as pool:
        stub.may_run.clear()
        running = pool.submit(ask, client, "runs")
        wait_for(lambda: stub.begun)
        waiting = pool.submit(ask, client, "waits")
        wait_for(lambda: queued(client) == 1)
        with monkeypatch.context() as patch:
            patch.setattr(app, "parse_json", None)
            answer = ask(client, "late")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert error_of(answer) == "the queue is full; try again later"
        stub.may_run.set()
        assert running.result().status_code == waiting.result().status_code == 200


def test_a_half_closed_client_gets_its_answers():
    stub = Stub()
    request = POST + b"%d\r\n\r\n" % len(BODY) + BODY
    with serving(stub) as (client, port, server):
        stub.may_run.clear()
        with socket.create_connection(("127.0.0.1", port)) as half:
            half.sendall(request)
            half.shutdown(socket.SHUT_WR)
            wait_for(lambda: stub.begun)
            wait_for(lambda: any(x._is_half_closed for x in opened_connections(server)))
            stub.may_run.set()
            answer = received(half)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["predictions"]
        assert answer.count(b"HTTP/1.1") == 1
        with socket.create_connection(("127.0.0.1", port)) as half:
            half.sendall(request * 2 + HEALTH)
            half.shutdown(socket.SHUT_WR)
            assert received(half).count(b"HTTP/1.1 200 OK\r\n") == 3
        for part in (b"", HEALTH[:20], request[:-1]):
            with socket.create_connection(("127.0.0.1", port)) as half:
                half.sendall(part)
                half.shutdown(socket.SHUT_WR)
                assert received(half) == b""
        assert client.get("/health").status_code == 200


def test_a_half_closed_client_gets_errors():
    stub = Stub()
    request = POST + b"%d\r\n\r\n" % len(BODY) + BODY
    with serving(stub, timeout_seconds=0.3) as (_, port, _):
        stub.may_run.clear()
        with socket.create_connection(("127.0.0.1", port)) as half:
            half.sendall(request)
            half.shutdown(socket.SHUT_WR)
            assert received(half).startswith(b"HTTP/1.1 504 ")


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(99),  # TLS
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",  # no host
        b"GET /health HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        POST + b"-5\r\n\r\n",
        POST + b"9" * 400 + b"\r\n\r\n",
        HEALTH[:-2] + b"X : y\r\n\r\n",
        HEALTH[:-2] + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n",
        POST[:-16] + b"Transfer-Encoding: chunked\r\n\r\nz\r\n",
        # Two ends of a body, of which a proxy might take the other.
        POST + b"1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + HEALTH,
    ],
)
def test_errors_of_http_are_json(data):
    with serving(Stub()) as (_, port, _):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(data)
            head, _, body = received(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"content-type: application/json" in head.lower()
        assert list(json.loads(body)) == ["error"]


def test_invalid_http_after_an_answer_has_begun_closes_the_connection(capfd):
    with serving(Stub()) as (client, port, _):
        with socket.create_connection(("127.0.0.1", port)) as mixed:
            chunked = HEALTH[:-2] + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"
            mixed.sendall(chunked)
            while b"}" not in (part := mixed.recv(1 << 16)):
                assert part
            mixed.sendall(b"nonsense\r\n")
            assert received(mixed) == b""
        assert client.get("/health").status_code == 200
    assert "Traceback" not in capfd.readouterr().err


def test_a_refused_client_may_send_the_rest_within_a_limit(monkeypatch):
    monkeypatch.setattr(connections, "_REFUSED_SECONDS", 0.3)
    limits = {"max_body_bytes": 1000, "max_unfinished_bytes": 10_000}
    with serving(Stub(), **limits) as (_, port, _):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"nonsense\r\n\r\n")
            assert b"400" in received(client)  # it has ended its side
            wait_for(lambda: is_sent_in_vain(client))
        with socket.create_connection(("127.0.0.1", port)) as client:
            body = b" " * 1500
            client.sendall(POST + b"1500\r\n\r\n" + body + HEALTH)
            answers = b""
            while answers.count(b"}") < 2:
                answers += client.recv(1 << 16)
            assert b" 413 " in answers and b" 200 " in answers
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(POST + b"9000000\r\n\r\n")
            wait_for(lambda: is_sent_in_vain(client, b" " * 1000))


def test_a_client_that_sends_all_of_a_large_body_reads_why_it_is_refused():
    with serving(Stub(), max_body_bytes=1000) as (_, port, _):
        url = f"http://127.0.0.1:{port}{PATH}"
        with pytest.raises(urllib.error.HTTPError, match="413"):
            urllib.request.urlopen(url, b" " * 10_000_000)


def is_sent_in_vain(client, data=b"x"):
    """Whether the server has reset the connection."""
    try:
        client.sendall(data)
    except OSError:
        return True
    return False


def test_a_burst_of_requests_waits_for_other_clients():
    """Each turn of the event loop begins one of them, for all connections."""

    async def begun_in_each_turn():
        registry = connections.Connections(Limits())
        counts = []

        class Waiting:
            loop = asyncio.get_running_loop()

            def start_next(self):
                counts[-1] += 1

        for _ in range(3):
            registry.defer(Waiting())
        for _ in range(4):
            counts.append(0)
            await asyncio.sleep(0)
        return counts

    assert asyncio.run(begun_in_each_turn()) == [1, 1, 1, 0]


def test_answers_come_in_the_order_of_requests():
    with serving(Stub()) as (_, port, _):
        texts = [f"text {i}" for i in range(20)]
        bodies = [json.dumps({"instances": [text]}).encode() for text in texts]
        parts = [POST + b"%d\r\n\r\n" % len(body) + body for body in bodies]
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"".join(parts))
            client.shutdown(socket.SHUT_WR)
            response = received(client).decode()
    positions = [response.index(f'"{text.upper()}"') for text in texts]
    assert positions == sorted(positions)


def test_a_shutdown_is_not_held_up_by_clients_that_read_nothing():
    request = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 900
    with contextlib.ExitStack() as stack:
        with serving(Stub(), timeout_seconds=0.5) as (_, port, _):
            stack.enter_context(clients(port, 3, request))
            start = time.monotonic()
        assert time.monotonic() - start < 20
