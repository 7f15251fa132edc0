"""Versions of a model: the server follows the newest one in a folder."""

import contextlib
import gc
import hashlib
import shutil
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")
from helpers.waiting import wait_until
from starlette.testclient import TestClient

from t2t_keras.errors import UserError
from t2t_keras.plugins.server.app import make_app
from t2t_keras.plugins.server.requests import Limits
from t2t_keras.plugins.server.versions import VersionFolder


class Model:
    """A version that answers with its number."""

    divides_batches = False
    defaults = {"beam_size": 4}  # noqa: RUF012

    def __init__(self, version):
        self.number = version
        self.begun = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()

    def predict(self, signature, rows, options, is_wanted=lambda: True):
        if rows != [{"texts": "A test ."}]:
            self.begun.set()
            assert self.may_answer.wait(60)
        if self.number == "crash":
            raise RuntimeError("it crashes\nhere")
        return [{"texts": [self.number]} for _ in rows]


def write(path, content):
    """Writes what looks like an export; returns the path."""
    path.mkdir(parents=True)
    (path / "saved_model.pb").write_text(content)
    digest = hashlib.sha256(content.encode()).hexdigest()
    (path / "SHA256SUMS").write_text(f"{digest}  saved_model.pb\n")
    return path


class Loader:
    """Loads versions, and keeps weak references to them."""

    def __init__(self):
        self.loaded = []

    def __call__(self, path):
        content = (path / "saved_model.pb").read_text()
        if content == "damaged":
            raise UserError(f"{path} is damaged")
        model = Model(content)
        self.loaded.append(weakref.ref(model))
        return model


@contextlib.contextmanager
def following(folder):
    """A server of a folder; yields a client, `poll` and the loader."""
    loader = Loader()
    source = VersionFolder("m", folder, loader)
    app = make_app({"m": source}, Limits())
    with TestClient(app, raise_server_exceptions=False) as client:
        wait_until(lambda: client.get("/health").json()["status"] != "loading")

        def poll():
            with contextlib.suppress(Exception):
                return client.portal.call(app.state.service.manager.poll, "m")

        yield client, poll, loader


def ask(client, path="m"):
    answer = client.post(f"/v1/models/{path}:predict", json={"instances": ["a"]})
    if answer.status_code != 200:
        return answer.status_code, answer.json()["error"]
    return answer.json()["predictions"][0]["texts"][0]


def states(client, path="m"):
    answer = client.get(f"/v1/models/{path}")
    assert answer.status_code == 200
    return {
        status["version"]: status["state"]
        for status in answer.json()["model_version_status"]
    }


def test_the_newest_version_is_served(tmp_path, capfd):
    write(tmp_path / "2", "two")
    write(tmp_path / "10", "ten")
    write(tmp_path / ".11.incomplete", "none")
    write(tmp_path / "notes", "none")
    (tmp_path / "12").write_text("a file")
    with following(tmp_path) as (client, poll, loader):
        assert ask(client) == ask(client, "m/versions/10") == "ten"
        assert client.get("/v1/models/m").json() == {
            "model_version_status": [
                {
                    "version": "10",
                    "state": "AVAILABLE",
                    "status": {"error_code": "OK", "error_message": ""},
                }
            ]
        }
        assert not poll()
        write(tmp_path / "0013", "thirteen")
        assert poll()
        assert ask(client) == ask(client, "m/versions/13") == "thirteen"
        assert states(client) == {"13": "AVAILABLE", "10": "END"}
        assert states(client, "m/versions/10") == {"10": "END"}
        missing = "Servable not found for request: Specific(m, 10); its version is 13"
        assert ask(client, "m/versions/10") == (404, missing)
        # Without the newest one, the newest remaining one is served.
        shutil.rmtree(tmp_path / "0013")
        assert poll()
        assert ask(client) == "ten"
        shutil.rmtree(tmp_path / "10")
        shutil.rmtree(tmp_path / "2")
        assert not poll()
        assert ask(client) == "ten"
        shutil.rmtree(tmp_path)
        assert not poll()
        assert ask(client) == "ten"
        assert len(loader.loaded) == 3
    errors = capfd.readouterr().err.splitlines()
    assert errors == [
        "t2t serve: version 13 of m replaces 10",
        "t2t serve: version 10 of m replaces 13",
    ]


def test_states_of_what_is_not_there(tmp_path):
    write(tmp_path / "1", "one")
    with following(tmp_path) as (client, _, _):
        for path, message in (
            ("x", "Could not find any versions of model x"),
            ("m/versions/7", "Could not find version 7 of model m"),
        ):
            answer = client.get(f"/v1/models/{path}")
            assert (answer.status_code, answer.json()) == (404, {"error": message})


def test_a_broken_version_is_reported_once(tmp_path, capfd):
    write(tmp_path / "1", "one")
    with following(tmp_path) as (client, poll, loader):
        for version, content in ((2, "damaged"), (3, "crash")):
            write(tmp_path / f"{version}", content)
            for _ in range(3):
                assert not poll()
            assert ask(client) == "one"
            assert states(client)[f"{version}"] == "END"
        failed = client.get("/v1/models/m/versions/3").json()["model_version_status"]
        status = {"error_code": "UNKNOWN", "error_message": "it crashes"}
        assert failed == [{"version": "3", "state": "END", "status": status}]
        # It is tried again when it has been copied or exported again.
        shutil.rmtree(tmp_path / "3")
        write(tmp_path / "3", "three")
        assert poll()
        assert ask(client) == "three"
        assert len(loader.loaded) == 3
    prefix = "t2t serve: version"
    assert capfd.readouterr().err.splitlines() == [
        f"{prefix} 2 of m is not served: {tmp_path / '2'} is damaged",
        f"{prefix} 3 of m is not served: it crashes",
        f"{prefix} 3 of m replaces 1",
    ]


def test_the_health_names_newer_versions_that_are_refused(tmp_path):
    write(tmp_path / "1", "damaged")
    write(tmp_path / "2", "two")
    with following(tmp_path) as (client, poll, _):
        assert client.get("/health").json() == {"status": "ok"}
        write(tmp_path / "3", "damaged")
        (tmp_path / "4").mkdir()
        for _ in range(2):  # a version that changes may still be copied
            assert not poll()
        incomplete = f"{tmp_path / '4'} has no SHA256SUMS; copy or export the model"
        refused = {"3": f"{tmp_path / '3'} is damaged", "4": f"{incomplete} again"}
        answer = client.get("/health")
        assert answer.status_code == 200
        assert answer.json() == {"status": "ok", "refused": {"m": refused}}
        failed = client.get("/v1/models/m/versions/4").json()["model_version_status"]
        status = {"error_code": "UNKNOWN", "error_message": refused["4"]}
        assert failed == [{"version": "4", "state": "END", "status": status}]
        line = 't2t_refused_versions{model="m"} 2.0'
        assert line in client.get("/metrics").text.splitlines()
        shutil.rmtree(tmp_path / "4")
        assert not poll()
        del refused["4"]
        assert client.get("/health").json()["refused"] == {"m": refused}
        write(tmp_path / "5", "five")
        assert poll()
        assert not poll()
        assert client.get("/health").json() == {"status": "ok"}
        line = 't2t_refused_versions{model="m"} 0.0'
        assert line in client.get("/metrics").text.splitlines()


def test_a_version_that_is_being_copied_is_not_tried(tmp_path, capfd):
    write(tmp_path / "1", "one")
    complete = write(tmp_path / "elsewhere", "two")
    (complete / "variables").mkdir()
    (complete / "variables" / "weights").write_text("w")
    with (complete / "SHA256SUMS").open("a") as file:
        digest = hashlib.sha256(b"w").hexdigest()
        file.write(f"{digest}  variables/weights\n")
    copy = tmp_path / "2"
    with following(tmp_path) as (client, poll, loader):
        for part in ("", "saved_model.pb", "SHA256SUMS", "variables"):
            if (complete / part).is_file():
                shutil.copy(complete / part, copy / part)
            else:
                (copy / part).mkdir()
            assert not poll()
        assert capfd.readouterr().err == ""
        assert not poll()
        assert not poll()
        assert capfd.readouterr().err == (
            f"t2t serve: version 2 of m is not served: {copy} has no "
            "variables/weights; copy or export the model again\n"
        )
        assert len(loader.loaded) == 1
        shutil.copy(complete / "variables" / "weights", copy / "variables" / "weights")
        assert poll()
        assert ask(client) == "two"


def test_an_earlier_version_is_served_if_the_newest_is_damaged(tmp_path, capfd):
    write(tmp_path / "1", "one")
    write(tmp_path / "2", "damaged")
    (tmp_path / "3").mkdir()
    with following(tmp_path) as (client, _, _):
        assert ask(client) == "one"
    messages = capfd.readouterr().err.splitlines()
    assert [" ".join(message.split()[:4]) for message in messages] == [
        "t2t serve: version 3",
        "t2t serve: version 2",
    ]


def test_without_an_intact_version_the_server_ends(tmp_path):
    write(tmp_path / "1", "damaged")
    with following(tmp_path) as (client, _, _):
        assert client.get("/health").json()["status"] == "stopping"
        failure = client.app.state.service.manager.failure
    assert isinstance(failure, UserError)
    assert "1 is damaged" in str(failure)


def test_no_request_is_lost_and_the_previous_version_is_freed(tmp_path):
    write(tmp_path / "1", "one")
    with following(tmp_path) as (client, poll, loader), ThreadPoolExecutor(40) as pool:
        first_model = loader.loaded[0]()
        first_model.may_answer.clear()
        waiting = [pool.submit(ask, client) for _ in range(20)]
        assert first_model.begun.wait(60)
        write(tmp_path / "2", "two")
        switch = pool.submit(poll)
        wait_until(lambda: states(client)["1"] == "UNLOADING")
        assert states(client) == {"2": "AVAILABLE", "1": "UNLOADING"}
        assert ask(client) == "two"  # it does not wait for the other version
        assert ask(client, "m/versions/1")[0] == 404
        assert not switch.done()
        first_model.may_answer.set()
        assert {answer.result() for answer in waiting} <= {"one", "two"}
        assert "one" in {answer.result() for answer in waiting}
        assert switch.result()
        del first_model
        gc.collect()
        assert loader.loaded[0]() is None
        assert states(client)["1"] == "END"
        metrics = client.get("/metrics").text.splitlines()
    assert 't2t_queue_sentences{model="m",version="2"} 0.0' in metrics
    assert 't2t_queue_sentences{model="m",version="1"} 0.0' not in metrics
    counts = [x for x in metrics if x.startswith("t2t_model_requests_total{")]
    assert {x.partition(" ")[0] for x in counts} == {
        f't2t_model_requests_total{{model="m",status="200",version="{n}"}}'
        for n in (1, 2)
    }
    assert sum(float(x.split()[-1]) for x in counts) == 21


def test_the_server_looks_now_and_then(tmp_path):
    write(tmp_path / "1", "one")
    app = make_app(
        {"m": VersionFolder("m", tmp_path, Loader())}, Limits(), poll_seconds=0.01
    )
    with TestClient(app) as client:
        wait_until(lambda: client.get("/health").status_code == 200)
        write(tmp_path / "2", "two")
        wait_until(lambda: ask(client) == "two")
