"""What ends training early: signals and time."""

import signal
import threading
from unittest import mock

import pytest

from t2t_keras.training.control import LAUNCHED, Stopping
from t2t_keras.training.trainer import Trainer


@pytest.fixture
def arrived():
    """Signals that came through to the handlers from before."""
    arrived = []
    previous = {
        number: signal.signal(number, lambda number, frame: arrived.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    yield arrived
    for number, handler in previous.items():
        signal.signal(number, handler)


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


def test_a_signal_before_an_evaluation_lets_it_out(arrived):
    """The time until SIGKILL may be short, and the step is not saved yet."""
    trainer, progress = mock.Mock(), mock.MagicMock()
    stopping = Stopping()
    with stopping:
        signal.raise_signal(signal.SIGTERM)
        assert Trainer._evaluate(trainer, 1, progress, stopping) == {}
        assert Trainer._evaluate(trainer, 1, progress, stopping, at_end=True) == {}
    assert not trainer._validation.mock_calls


def test_time(monkeypatch):
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stopping, endless = Stopping(max_minutes=2), Stopping()
    now += 119
    assert stopping.reason is None
    now += 1
    assert stopping.reason == "max_minutes"
    assert stopping.signal is None
    assert endless.reason is None


def test_in_another_thread_signals_do_what_they_did():
    reasons = []

    def work():
        with Stopping() as stopping:
            reasons.append(stopping.reason)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert reasons == [None]
