"""A network is there if a host accepts a connection."""

import socket

import pytest

from t2t_keras.data.network import is_reachable


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http", "https", "ftp", "all"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


@pytest.fixture
def closed_port():
    with socket.socket() as bound:  # no other program gets the port
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_one_host_that_accepts_a_connection_suffices(closed_port):
    closed = f"http://127.0.0.1:{closed_port}/a.tgz"
    with socket.create_server(("127.0.0.1", 0)) as server:
        opened = f"https://127.0.0.1:{server.getsockname()[1]}/b.tgz"
        assert is_reachable([closed, opened])
    assert not is_reachable([closed, opened])
    assert not is_reachable([closed, f"http://{'x' * 70}.invalid/", "no address"])
    assert not is_reachable([])


def test_a_proxy_may_reach_any_host(closed_port, monkeypatch):
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{closed_port}")
    assert is_reachable([f"http://127.0.0.1:{closed_port}/"])
