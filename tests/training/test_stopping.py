"""What ends training early: signals and time."""

import concurrent.futures
import os
import pty
import signal
import sys

import pytest

from t2t_keras.processes import LAUNCHED, worker_pool
from t2t_keras.training.stopping import Stopping


@pytest.fixture
def arrived():
    """Signals that reached the earlier handlers."""
    arrived = []
    previous = {
        signal_number: signal.signal(
            signal_number, lambda signal_number, frame: arrived.append(signal_number)
        )
        for signal_number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    }
    yield arrived
    for signal_number, handler in previous.items():
        signal.signal(signal_number, handler)


def test_the_first_signal_is_a_request_and_the_second_one_is_not(arrived, capfd):
    with Stopping() as stopping:
        assert stopping.reason is None
        signal.raise_signal(signal.SIGTERM)
        assert (stopping.reason, stopping.signal) == ("SIGTERM", signal.SIGTERM)
        assert arrived == []
        assert capfd.readouterr().err.startswith("SIGTERM: saving after this step")
        signal.raise_signal(signal.SIGINT)
        assert arrived == [signal.SIGINT]
    signal.raise_signal(signal.SIGTERM)
    assert arrived == [signal.SIGINT, signal.SIGTERM]


def test_a_terminal_that_closes_asks_once(arrived, capfd):
    """The shell and the kernel both send SIGHUP, one after the other."""
    with Stopping() as stopping:
        for _ in range(3):
            signal.raise_signal(signal.SIGHUP)
        assert (stopping.reason, stopping.signal) == ("SIGHUP", signal.SIGHUP)
        assert capfd.readouterr().err.count("SIGHUP: saving after this step") == 1
        assert arrived == []
        signal.raise_signal(signal.SIGTERM)
        assert arrived == [signal.SIGTERM]
    signal.raise_signal(signal.SIGHUP)
    assert arrived == [signal.SIGTERM, signal.SIGHUP]


def test_nohup_keeps_working(arrived):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Stopping() as stopping:
        signal.raise_signal(signal.SIGHUP)
        assert stopping.reason is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


CLOSED_TERMINAL = """
import json, os, signal, sys
from t2t_keras.training.stopping import Stopping
with Stopping() as stopping:
    print("ready", flush=True)
    while not stopping.reason:
        signal.pause()
    print("to standard output", flush=True)
    print("to standard error", file=sys.stderr, flush=True)
with open(sys.argv[1], "w") as file:
    file.write(stopping.reason)
"""


def test_a_closed_terminal_does_not_keep_from_saving(tmp_path):
    saved = tmp_path / "saved"
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", CLOSED_TERMINAL, str(saved)])
    assert os.read(terminal, 5) == b"ready"
    os.close(terminal)  # sends SIGHUP
    assert os.waitpid(pid, 0)[1] == 0
    assert saved.read_text() == "SIGHUP"


def test_where_a_launcher_passes_signals_on_all_are_one_request(
    arrived, capfd, monkeypatch
):
    monkeypatch.setenv(LAUNCHED, "1")
    with Stopping() as stopping:
        signal.raise_signal(signal.SIGTERM)
        with stopping.interruptible():
            signal.raise_signal(signal.SIGINT)
        assert (stopping.reason, stopping.signal) == ("SIGTERM", signal.SIGTERM)
        assert capfd.readouterr().err.count("saving after this step") == 1
    assert arrived == []
    signal.raise_signal(signal.SIGTERM)
    assert arrived == [signal.SIGTERM]


def test_a_signal_cuts_short_what_may_be(arrived):
    reached = []
    with Stopping() as stopping:
        with stopping.interruptible():
            reached.append("begun")
            signal.raise_signal(signal.SIGINT)
            reached.append("not this")
        reached.append("gone on")
        assert stopping.reason == "SIGINT"
    assert reached == ["begun", "gone on"]


def test_time(monkeypatch):
    clock = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: clock)
    stopping = Stopping(max_minutes=2)
    endless = Stopping()
    clock += 119
    assert stopping.reason is None
    clock += 1
    assert stopping.reason == "max_minutes"
    assert stopping.signal is None
    assert endless.reason is None


def test_in_another_thread_signals_do_what_they_did():
    def reason():
        with Stopping() as stopping:
            return stopping.reason

    with concurrent.futures.ThreadPoolExecutor() as pool:
        assert pool.submit(reason).result() is None


def test_a_terminals_signals_do_not_reach_workers():
    """Not even before a worker's first call: it would print a traceback."""
    ours = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with worker_pool(1) as pool:
        blocked = pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, ()).result()
    assert blocked >= {signal.SIGINT, signal.SIGHUP}
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == ours
