"""A server whose model is a stub, and what its clients ask."""

import contextlib
import json
import re
import socket
import threading

import httpx
from helpers.waiting import wait_until

from t2t_keras.errors import UserError
from t2t_keras.plugins.server.app import make_app
from t2t_keras.plugins.server.http import Server
from t2t_keras.plugins.server.requests import Limits
from t2t_keras.plugins.server.versions import FixedModel

OPTIONS = {"beam_size": 4, "n_best": 2, "alpha": 0.6, "min_length": 0}


class Stub:
    """A model that returns its inputs in upper case, when it may run."""

    def __init__(self):
        self.divides_batches = True
        self.defaults = dict(OPTIONS)
        self.split_sentences = True
        self.languages = None
        self.missing = {}
        self.begun: list[str] = []  # the texts of all batches, also of one that waits
        self.batches: list[list[str]] = []
        self.may_run = threading.Event()
        self.may_run.set()

    def predict(self, signature, rows, options, is_wanted=lambda: True):
        texts = [row["texts"] for row in rows]
        if texts == ["A test ."]:
            return [{}]
        self.begun.extend(texts)
        self.may_run.wait()
        self.batches.append(texts)
        if "poison" in texts:
            raise UserError("this one is bad")
        if "crash" in texts:
            raise RuntimeError("a secret")
        return [{"texts": [text.upper()], **options} for text in texts]


@contextlib.contextmanager
def serving(model, name="stub", hosts=None, **limits):
    """A server in a thread; yields a client, the port and the server."""
    address = socket.create_server(("127.0.0.1", 0))
    models = {name: FixedModel(lambda: model)}
    server = Server(make_app(models, Limits(**limits), hosts))
    thread = threading.Thread(target=server.run, args=([address],))
    thread.start()
    port = address.getsockname()[1]
    try:
        limits = httpx.Limits(max_keepalive_connections=0)
        url = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=url, timeout=60, limits=limits) as client:
            wait_until(lambda: client.get("/health").status_code == 200)
            yield client, port, server
    finally:
        if isinstance(model, Stub):
            model.may_run.set()
        server.should_exit = True
        thread.join()
        address.close()


def error_of(answer):
    """The message of an error, which has one form everywhere."""
    body = answer.json()
    assert list(body) == ["error"], body
    return body["error"]


def predict(client, name, body):
    return client.post(f"/v1/models/{name}:predict", content=json.dumps(body))


def ask(client, *texts, **options):
    """Asks the stub."""
    inputs = {"texts": texts, **options}
    return predict(client, "stub", {"signature_name": "translate", "inputs": inputs})


def queued(client):
    """How many sentences wait for the only model."""
    metrics = client.get("/metrics").text
    (value,) = re.findall(r"^t2t_queue_sentences\{.*\} (.*)$", metrics, re.MULTILINE)
    return float(value)
