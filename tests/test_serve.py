"""The server: every endpoint, its limits and errors, batching, and the page."""

import asyncio
import base64
import contextlib
import json
import math
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra [serve] is not installed")
import httpx
from browser import CHROMIUM, browser
from command_line import run
from decoding_models import LINES, text_translator
from libretranslatepy import LibreTranslateAPI

from t2t_keras.decoding.alignment import AlignmentHead
from t2t_keras.decoding.sentence_attention import sentence_attention
from t2t_keras.decoding.translator import Hypothesis
from t2t_keras.export.saved_model import export_saved_model
from t2t_keras.option import UserError
from t2t_keras.plugins.server.app import make_app, make_server
from t2t_keras.plugins.server.batcher import Batcher, Limits, Overloaded
from t2t_keras.plugins.server.served_model import ServedModel, TensorInfo, request_value
from t2t_keras.plugins.server.verb import _bound

TEXTS = [line for line in LINES if line.strip()]
OPTIONS = {"beam_size": 4, "n_best": 2, "alpha": 0.6, "min_length": 0}


class Stub(ServedModel):
    """A model that returns its inputs, in upper case and slowly if it has to."""

    def __init__(self, name="stub", seconds=0.0, text="{}", languages=("en", "de")):
        self.name, self.version, self.languages = name, 3, languages
        self.beam_size, self.is_nested, self.signatures = 4, "(" in text, {}
        self.seconds, self.text = seconds, text
        self.begun: list[str] = []  # the texts of all batches, also of one that waits
        self.batches: list[list[str]] = []
        self.may_run = threading.Event()
        self.may_run.set()
        self._run = None

    def n_best(self, texts, n_best=1, **options):
        self.begun.extend(texts)
        self.may_run.wait()
        time.sleep(self.seconds)
        self.batches.append(list(texts))
        for text in texts:
            if text == "poison":
                raise UserError("this one is bad")
            if text == "crash":
                raise RuntimeError("a secret")
        return [
            [
                Hypothesis(self.text.format(text.upper()), -k / 2, -k / 2, ())
                for k in range(n_best)
            ]
            for text in texts
        ]

    def warm_up(self, texts):
        return [None for _ in texts]


class OnePoolPerThread(httpx.BaseTransport):
    """A client in every thread.

    The pool of httpcore 1.0.9 may close a connection that another thread has just been
    given: that thread reads from a closed descriptor, or waits until its timeout.
    """

    def __init__(self):
        self.local = threading.local()
        self.pools = []

    def handle_request(self, request):
        if not hasattr(self.local, "pool"):
            self.local.pool = httpx.HTTPTransport(verify=False)
            self.pools.append(self.local.pool)
        return self.local.pool.handle_request(request)

    def close(self):
        for pool in self.pools:
            pool.close()


@contextlib.contextmanager
def serving(*models, hosts=None, **limits):
    """A server in a thread; yields a client, the address and the server."""
    address = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = make_server(make_app(models, Limits(**limits), hosts))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [address]})
    thread.start()
    url = f"http://127.0.0.1:{address.getsockname()[1]}"
    try:
        transport = OnePoolPerThread()
        with httpx.Client(base_url=url, timeout=60, transport=transport) as client:
            wait_for(lambda: client.get("/health").status_code == 200)
            yield client, url, server
    finally:
        for model in models:
            if isinstance(model, Stub):
                model.may_run.set()
        server.should_exit = True
        thread.join()
        address.close()


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def error_of(answer):
    """The message of an error, which has one form everywhere."""
    body = answer.json()
    assert list(body) == ["error"], body
    return body["error"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    return text_translator(tmp_path_factory.mktemp("vocab"))


@pytest.fixture(scope="module")
def export_dir(translator, tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "model" / "7"
    export_saved_model(translator, path, n_best=2, max_source_length=50, truncate=True)
    return path


@pytest.fixture(scope="module")
def export(export_dir):
    return ServedModel.load("export", export_dir)


@pytest.fixture(scope="module")
def client(translator):
    """A server of a run."""
    run = ServedModel("run", translator, languages=("en", "de"))
    with serving(run, max_characters=500, timeout_seconds=300) as (client, _, _):
        yield client


@pytest.fixture(scope="module")
def export_client(export):
    """A server of its export, which takes a minute to write."""
    with serving(export, max_characters=500, timeout_seconds=300) as (client, _, _):
        yield client


@pytest.fixture(params=["run", pytest.param("export", marks=pytest.mark.slow)])
def served(request):
    """The name of a model, and a client of its server."""
    fixture = "client" if request.param == "run" else "export_client"
    return request.param, request.getfixturevalue(fixture)


# TensorFlow Serving.


def test_predict_rows(served, translator):
    name, client = served
    answer = client.post(f"/v1/models/{name}:predict", json={"instances": TEXTS})
    assert answer.status_code == 200
    best = translator.n_best(TEXTS, 2)
    for found, wanted in zip(answer.json()["predictions"], best, strict=True):
        n = 1 if name == "run" else 2
        assert found["texts"] == [x.text for x in wanted[:n]]
        assert found["scores"] == pytest.approx([x.score for x in wanted[:n]], 1e-4)
    assert found.keys() == {"texts", "scores", "is_truncated"}


def test_predict_takes_what_curl_sends_and_base_64(client, translator):
    text = "a dog runs ."
    encoded = {"b64": base64.b64encode(text.encode()).decode()}
    for instances in ([text], [{"texts": text}], [encoded], [{"texts": encoded}]):
        answer = client.post(
            "/v1/models/run/versions/1:predict",
            content=json.dumps({"instances": instances}),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        (found,) = answer.json()["predictions"]
        assert found["texts"] == translator.translate([text])


def test_predict_columns_of_every_signature(served, translator):
    name, client = served
    beams = {"beam_size": 5, "n_best": 3, "alpha": 1.0, "min_length": 0}
    texts = [*TEXTS, ""]
    best = translator.n_best(texts, 3, beam_size=5, alpha=1.0)
    scores = translator.score(TEXTS, TEXTS[::-1])

    def ask(signature, inputs):
        body = {"signature_name": signature, "inputs": inputs}
        answer = client.post(f"/v1/models/{name}:predict", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["outputs"]

    found = ask("translate", {"texts": texts} | beams)
    for outputs, values, wanted in zip(
        found["texts"], found["scores"], best, strict=True
    ):
        missing = 3 - len(wanted)
        assert outputs == [x.text for x in wanted] + [""] * missing
        assert values == pytest.approx(
            [x.score for x in wanted] + [-math.inf] * missing, abs=1e-4
        )
    found = ask("score", {"texts": TEXTS, "targets": TEXTS[::-1]})
    assert found["tokens"] == [x.tokens for x in scores]
    assert found["log_prob"] == pytest.approx([x.log_prob for x in scores], 1e-4)
    for row, score in enumerate(scores):
        missing = [0] * (max(x.tokens for x in scores) - score.tokens)
        assert found["ids"][row] == [*score.ids, *missing]
        log_probs = [*score.token_log_probs, *missing]
        assert found["token_log_probs"][row] == pytest.approx(log_probs, abs=1e-4)
    found = ask("options", {})
    assert (found["beam_size"], found["n_best"]) == (4, 1 if name == "run" else 2)
    assert found["alpha"] == pytest.approx(0.6)
    assert ask("serving_default", TEXTS[:1])["texts"]  # the only input, by itself


@pytest.mark.slow
def test_predict_ids_of_an_export(export_client, translator):
    client = export_client
    rows = [translator.source_tokenizer.encode(text) for text in TEXTS[:2]]
    width = max(map(len, rows))
    ids = [row + [0] * (width - len(row)) for row in rows]
    body = {"signature_name": "translate_ids", "inputs": {"ids": ids}}
    found = client.post("/v1/models/export:predict", json=body).json()["outputs"]
    best = translator.n_best(TEXTS[:2], 2)
    for outputs, lengths, wanted in zip(
        found["ids"], found["lengths"], best, strict=True
    ):
        assert [x[:n] for x, n in zip(outputs, lengths, strict=True)] == [
            list(x.ids) for x in wanted
        ]
    assert {len(x) for row in found["ids"] for x in row} == {
        max(n for row in found["lengths"] for n in row)
    }
    answer = client.post(
        "/v1/models/export:predict",
        json={"signature_name": "translate_ids", "instances": [[5, 9999, 1]]},
    )
    assert answer.status_code == 400
    assert error_of(answer).startswith("ids must be from 0 to")
    inputs = OPTIONS | {"texts": ["a"], "beam_size": 2, "n_best": 3}
    body = {"inputs": inputs, "signature_name": "translate"}
    answer = client.post("/v1/models/export:predict", json=body)
    assert answer.status_code == 400
    assert "n_best 3 is more than the beam size" in error_of(answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), [("run", {}), ("export", {}), ("export", OPTIONS)]
)
def test_the_example_of_a_rest_client(client, export_client, translator, name, options):
    """It asks TensorFlow Serving, and is answered here, too."""
    file = Path(__file__).parents[1] / "examples" / "serve_rest.py"
    rest = runpy.run_path(str(file))
    request = rest["request"](f"http://server/v1/models/{name}", TEXTS[:2], **options)
    server = client if name == "run" else export_client
    answer = server.post(request.selector, content=request.data)
    expected = translator.n_best(TEXTS[:2], 2)
    for found, best in zip(rest["outputs"](answer.content), expected, strict=True):
        assert found[0][0] == best[0].text
        assert found[0][1] == pytest.approx(best[0].score, abs=1e-4)


LONG = [{"texts": x, "targets": "a"} for x in ("a dog .", "the old dog reads . " * 24)]


def truncated(model, signature):
    return [x["is_truncated"] for x in model.predict(LONG, signature=signature)]


def test_truncation_is_told(translator):
    old = translator.options
    try:
        model = ServedModel("run", translator, max_source_length=50, truncate=True)
        assert truncated(model, "serving_default") == [False, True]
        assert truncated(model, "score") == [False, True]
        # Without the option, what is too long is split; but a pair is never split.
        model = ServedModel("run", translator, truncate=False)
        assert truncated(model, "serving_default") == [False, False]
        assert truncated(model, "score") == [False, True]
    finally:
        translator.options = old


@pytest.mark.slow
def test_truncation_by_an_export_is_told(export):
    assert truncated(export, "serving_default") == [False, True]
    assert truncated(export, "score") == [False, True]


@pytest.mark.slow
def test_status_and_metadata(client, export_client):
    found = export_client.get("/v1/models/export/versions/7").json()
    assert found["model_version_status"][0] == {
        "version": "7",
        "state": "AVAILABLE",
        "status": {"error_code": "OK", "error_message": ""},
    }
    signatures = {}
    for name, server in (("run", client), ("export", export_client)):
        found = server.get(f"/v1/models/{name}/metadata").json()
        assert found["model_spec"]["name"] == name
        signatures[name] = found["metadata"]["signature_def"]["signature_def"]
    for name in ("translate_ids", "search_ids", "score_ids"):
        assert signatures["export"].pop(name)
    assert signatures["run"] == signatures["export"]
    texts = signatures["run"]["translate"]["inputs"]["texts"]
    assert (texts["dtype"], len(texts["tensor_shape"]["dim"])) == ("DT_STRING", 1)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("none:predict", {"instances": ["a"]}, 404, r"Latest\(none\)"),
        ("run/versions/9:predict", {"instances": ["a"]}, 404, r"Specific\(run, 9\)"),
        ("run:predict", {}, 400, "either 'instances' or 'inputs'"),
        ("run:predict", {"instances": ["a"], "inputs": []}, 400, "either"),
        ("run:predict", [], 400, "must be an object"),
        ("run:predict", {"instances": []}, 400, "not empty"),
        ("run:predict", {"instances": "a"}, 400, "must be a list"),
        ("run:predict", {"instances": [3]}, 400, r"instances\[0\].texts must be a str"),
        ("run:predict", {"instances": [{"x": "a"}]}, 400, "must have the inputs texts"),
        ("run:predict", {"instances": [{"b64": "%"}]}, 400, "base 64"),
        ("run:predict", {"instances": ["a" * 501]}, 400, "more than 500 characters"),
        ("run:predict", {"instances": ["\ud800"]}, 400, "surrogate"),
        (
            "run:predict",
            {"instances": ["a"], "signature_name": "x"},
            400,
            "there are serving_default, translate",
        ),
        (
            "run:predict",
            {"instances": ["a"], "signature_name": "translate"},
            400,
            "give 'inputs'",
        ),
        (
            "run:predict",
            {"inputs": OPTIONS, "signature_name": "translate"},
            400,
            "has the inputs",
        ),
        (
            "run:predict",
            {
                "inputs": OPTIONS | {"texts": ["a"], "beam_size": 2, "n_best": 3},
                "signature_name": "translate",
            },
            400,
            "more than beam_size 2",
        ),
        (
            "run:predict",
            {
                "inputs": OPTIONS | {"texts": ["a"], "beam_size": 99, "n_best": 3},
                "signature_name": "translate",
            },
            400,
            "beam_size is 99; at most 32",
        ),
        (
            "run:predict",
            {
                "inputs": {"texts": ["a"], "targets": []},
                "signature_name": "score",
            },
            400,
            "equal length",
        ),
    ],
)
def test_predict_errors(client, path, body, status, message):
    answer = client.post(f"/v1/models/{path}", content=json.dumps(body))
    assert answer.status_code == status, answer.text
    assert re.search(message, error_of(answer))


def test_request_values():
    integer, number = TensorInfo("int32", 0), TensorInfo("float32", 0)
    assert request_value(3.0, integer, "x") == 3
    assert request_value(1, number, "x") == 1.0
    for info, wrong in (
        *((integer, x) for x in (1.5, True, "1", None, 2**31, math.inf, math.nan)),
        *((number, x) for x in (False, "1", math.inf, math.nan, 10**400)),
        *((TensorInfo("int32", 2), x) for x in (3, [True], ["a"], [[1]])),
        *((TensorInfo("string", 1), x) for x in (3, {"b64": 3}, {"b64": "/w=="}, {})),
    ):
        with pytest.raises(UserError, match=r"^x"):
            request_value(wrong, info, "x")


# LibreTranslate.


def test_the_client_of_libretranslate(client, translator):
    api = LibreTranslateAPI(str(client.base_url))
    (wanted,) = translator.translate(["a dog runs ."])
    assert api.translate("a dog runs .", "en", "de") == wanted
    assert api.languages() == [
        {"code": "en", "name": "English", "targets": ["de"]},
        {"code": "de", "name": "German", "targets": []},
    ]
    with pytest.raises(urllib.error.HTTPError, match="501"):
        api.detect("a dog")


def test_libretranslate(client, translator):
    pair = {"source": "en", "target": "de"}
    text = "a dog runs .\n\nthe old dog ."
    lines = "\n".join(translator.translate(text.split("\n")))
    for body in ({"json": pair | {"q": text}}, {"data": pair | {"q": text}}):
        answer = client.post("/translate", **body)
        assert answer.json() == {"translatedText": lines}
    body = pair | {"q": ["a", "a dog runs ."], "alternatives": 2, "api_key": "x"}
    best = translator.n_best(body["q"], 3)
    assert client.post("/translate", json=body).json() == {
        "translatedText": [x[0].text for x in best],
        "alternatives": [[y.text for y in x[1:]] for x in best],
    }
    body = pair | {"q": "a dog runs .", "alternatives": "2"}
    assert client.post("/translate", data=body).json() == {
        "translatedText": best[1][0].text,
        "alternatives": [x.text for x in best[1][1:]],
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"source": None}, "Invalid request: missing source parameter"),
        ({"source": "xx"}, "xx is not supported"),
        (
            {"source": "de", "target": "en"},
            "en is not available as a target language from de",
        ),
        ({"source": "auto"}, "this server detects no languages; give the source"),
        ({"format": "html"}, "html format is not supported"),
        ({"alternatives": 50}, "n_best is 51; at most 32 is allowed (--max_beam_size)"),
    ],
)
def test_libretranslate_errors(client, changes, message):
    body = {"q": "a", "source": "en", "target": "de"} | changes
    body = {name: value for name, value in body.items() if value is not None}
    answer = client.post("/translate", json=body)
    assert (answer.status_code, error_of(answer)) == (400, message)


# The page's endpoints.


def test_n_best(client, translator):
    body = {"texts": TEXTS, "n_best": 6}
    found = client.post("/api/translate", json=body).json()["outputs"]
    best = translator.n_best(TEXTS, 6, beam_size=6)
    for outputs, wanted in zip(found, best, strict=True):
        assert [x["text"] for x in outputs] == [x.text for x in wanted]
        assert [x["ids"] for x in outputs] == [list(x.ids) for x in wanted]
        assert [x["score"] for x in outputs] == pytest.approx(
            [x.score for x in wanted], abs=1e-4
        )
        pieces = translator.target_tokenizer.pieces
        assert outputs[0]["tokens"] == [pieces[i] for i in wanted[0].ids]


def test_requests_have_the_options_of_exports(client, translator):
    options = OPTIONS | {"min_length": 9, "alpha": 2.0}
    body = {"texts": TEXTS[:2]} | options
    (first, second) = client.post("/api/translate", json=body).json()["outputs"]
    wanted = translator.n_best(TEXTS[:2], **options)
    assert wanted != translator.n_best(TEXTS[:2], **OPTIONS)
    for outputs, best in zip((first, second), wanted, strict=True):
        assert [x["text"] for x in outputs] == [x.text for x in best]


def test_token_scores_and_alignments(client, translator):
    texts = ["the old dog reads a book .", ""]
    asked = {"token_scores": True, "alignments": True, "alignment_head": 2}
    answer = client.post("/api/translate", json={"texts": texts, "n_best": 2} | asked)
    head = AlignmentHead(head=2)
    wanted = translator.n_best(texts, 2, token_scores=True, alignment=head)
    for outputs, best in zip(answer.json()["outputs"], wanted, strict=True):
        for output, x in zip(outputs, best, strict=True):
            assert output["text"] == x.text
            log_probs = pytest.approx(list(x.token_log_probs), abs=1e-4)
            assert output["token_log_probs"] == log_probs
            assert output["alignment"] == [list(link) for link in x.alignment]
    for body, message in (
        (asked | {"alignment_layer": 2}, "the model has no layer 2"),
        ({"alignment_layer": 1}, "need alignments true"),
    ):
        answer = client.post("/api/translate", json={"texts": texts} | body)
        assert answer.status_code == 400 and message in error_of(answer)


@pytest.mark.slow
def test_an_export_has_no_token_scores(export_client):
    body = {"texts": ["a"], "token_scores": True, "model": "export"}
    answer = export_client.post("/api/translate", json=body)
    assert answer.status_code == 400
    assert "is an export, which has none" in error_of(answer)


def test_attention(client, translator):
    text = "a dog runs ."
    wanted = sentence_attention(translator, text)
    found = client.post("/api/attention", json={"text": text}).json()
    assert (found["source"], found["target"]) == (wanted.source, wanted.target)
    assert found["cross"][0][1] == pytest.approx(wanted.cross[0, 1], abs=1e-4)
    body = {"text": text, "target": "the dog"}
    found = client.post("/api/attention", json=body).json()
    assert found["target"] == sentence_attention(translator, text, "the dog").target
    page = client.get("/attention", params={"text": "<b> a dog"})
    assert page.status_code == 200
    assert "&lt;b&gt;" in page.text and "<b>" not in page.text
    assert client.get("/attention").status_code == 400


@pytest.mark.slow
def test_an_export_says_what_it_has_not(export_client):
    body = {"texts": ["a"], "model": "export"}
    answer = export_client.post("/api/translate", json=body)
    (((output,),),) = [answer.json()["outputs"]]
    assert output.keys() == {"text", "score"}
    for path, body in (("attention", {}),):
        body |= {"text": "a dog", "model": "export"}
        answer = export_client.post(f"/api/{path}", json=body)
        assert answer.status_code == 400
        assert "'export' is an export, which has none; serve the run" in error_of(
            answer
        )


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ("{", 400, "the body is not JSON"),
        ("[" * 100_000, 400, "the body is not JSON"),
        ("", 400, "the body is not JSON"),
        (b"\xff", 400, "the body is not JSON"),
        ("{}", 400, "texts is missing"),
        ("3", 400, "the body: "),
        ('{"texts": "a"}', 400, "texts: "),
        ('{"texts": [1]}', 400, "texts.0: "),
        ('{"texts": ["a"], "beam": 3}', 400, "beam: "),
        ('{"texts": ["a"], "n_best": 0}', 400, "n_best: "),
        ('{"texts": ["a"], "min_length": -1}', 400, "min_length: "),
        ('{"texts": ["a"], "min_length": 1.5}', 400, "min_length: "),
        ('{"texts": ["a"], "alpha": NaN}', 400, "alpha: "),
        ('{"texts": ["a"], "n_best": 33}', 400, "n_best is 33; at most 32"),
        ('{"texts": ["a"], "beam_size": 1, "n_best": 2}', 400, "more than beam_size 1"),
        ('{"texts": ["a"], "model": "x"}', 404, "there is no 'x'; there are run"),
        ('{"texts": ["\\ud800"]}', 400, "half of a surrogate pair"),
        ('{"texts": [' + '"a",' * 1024 + '"a"]}', 413, "at most 1024 are allowed"),
    ],
)
def test_bad_requests(client, body, status, message):
    answer = client.post("/api/translate", content=body)
    assert answer.status_code == status, answer.text
    assert message in error_of(answer)


def test_other_paths_and_methods(client):
    assert client.get("/none").status_code == 404
    assert error_of(client.get("/none")) == "Not Found"
    assert client.get("/translate").status_code == 405
    assert client.get("/docs").status_code == 404  # it would load from elsewhere


def test_no_texts(client):
    assert client.post("/api/translate", json={"texts": []}).json()["outputs"] == []
    (outputs,) = client.post("/api/translate", json={"texts": [" "]}).json()["outputs"]
    assert outputs[0]["text"] == ""


# Batching, limits and failures, with a stub.


def ask_stub(client, text, **more):
    return client.post("/api/translate", json={"texts": [text], **more})


def test_waiting_requests_are_run_together():
    stub = Stub()
    with serving(stub) as (client, _, _), ThreadPoolExecutor(40) as pool:
        stub.may_run.clear()
        first = pool.submit(ask_stub, client, "first")
        wait_for(lambda: stub.begun == ["first"])
        others = [pool.submit(ask_stub, client, f"text {i}") for i in range(30)]
        different = pool.submit(ask_stub, client, "other", alpha=0.1)
        wait_for(lambda: queued(client) == 31)
        stub.may_run.set()
        for i, other in enumerate(others):
            answer = other.result().json()["outputs"]
            assert answer[0][0]["text"] == f"TEXT {i}"
        assert first.result().status_code == different.result().status_code == 200
    assert sorted(map(len, stub.batches)) == [1, 1, 30]
    assert ["other"] in stub.batches  # its options differ


def queued(client):
    line = 't2t_queue_sentences{model="stub"} '
    (value,) = (
        x.removeprefix(line)
        for x in client.get("/metrics").text.splitlines()
        if x.startswith(line)
    )
    return float(value)


def test_200_clients_get_their_own_answers():
    stub, other = Stub(seconds=0.002), Stub("second", 0.002, "2{}", ("en", "fr"))

    def one(i):
        for k in range(3):
            text, target = f"t{i}.{k}", ("de", "fr")[(i + k) % 2]
            body = {"q": [text, f"{text}b"], "source": "en", "target": target}
            answer = client.post("/translate", json=body)
            number = "2" if target == "fr" else ""
            wanted = [f"{number}{x.upper()}" for x in body["q"]]
            assert answer.json() == {"translatedText": wanted}
            answer = ask_stub(client, text, n_best=1 + i % 3)
            (outputs,) = answer.json()["outputs"]
            assert [x["text"] for x in outputs] == [text.upper()] * (1 + i % 3)

    with serving(stub, other) as (client, _, _), ThreadPoolExecutor(200) as pool:
        list(pool.map(one, range(200)))
    assert max(map(len, stub.batches)) > 8


def test_200_clients_of_a_model(client, translator):
    texts = [f"{TEXTS[i % len(TEXTS)]} {i}" for i in range(200)]

    def one(text):
        answer = ask_stub(client, text, n_best=2)
        (outputs,) = answer.json()["outputs"]
        return [x["text"] for x in outputs]

    with ThreadPoolExecutor(200) as pool:
        found = list(pool.map(one, texts))
    wanted = [[x.text for x in row] for row in translator.n_best(texts, 2)]
    assert found == wanted


def test_one_bad_text_fails_alone():
    stub = Stub()
    with serving(stub) as (client, _, _), ThreadPoolExecutor(8) as pool:
        stub.may_run.clear()
        pool.submit(ask_stub, client, "first")
        wait_for(lambda: stub.begun == ["first"])
        texts = ["good", "poison", "crash", "fine"]
        answers = [pool.submit(ask_stub, client, text) for text in texts]
        wait_for(lambda: queued(client) == 4)
        stub.may_run.set()
        good, poison, crash, fine = (answer.result() for answer in answers)
        assert good.status_code == fine.status_code == 200
        assert (poison.status_code, error_of(poison)) == (400, "this one is bad")
        assert crash.status_code == 500
        assert error_of(crash) == "the server failed; its log tells why"


def test_the_queue_is_bounded():
    stub = Stub()
    with (
        serving(stub, max_queue=3) as (client, _, _),
        ThreadPoolExecutor(8) as pool,
    ):
        stub.may_run.clear()
        pool.submit(ask_stub, client, "first")
        wait_for(lambda: stub.begun == ["first"])
        waiting = [pool.submit(ask_stub, client, f"{i}") for i in range(3)]
        wait_for(lambda: queued(client) == 3)
        answer = ask_stub(client, "too many")
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
        assert error_of(answer) == "the queue is full; try again later"
        stub.may_run.set()
        assert {x.result().status_code for x in waiting} == {200}
        assert ask_stub(client, "again").status_code == 200


def test_requests_time_out_and_are_not_run():
    stub = Stub()
    with (
        serving(stub, timeout_seconds=2) as (client, _, _),
        ThreadPoolExecutor(8) as pool,
    ):
        stub.may_run.clear()
        first = pool.submit(ask_stub, client, "first")
        wait_for(lambda: stub.begun == ["first"])
        late = pool.submit(ask_stub, client, "late")
        assert late.result().status_code == first.result().status_code == 504
        assert "within 2 seconds" in error_of(late.result())
        stub.may_run.set()
        assert ask_stub(client, "now").status_code == 200
    assert ["late"] not in stub.batches


def test_clients_that_leave_are_forgotten():
    stub = Stub()
    with serving(stub) as (client, url, _), ThreadPoolExecutor(8) as pool:
        stub.may_run.clear()
        first = pool.submit(ask_stub, client, "first")
        wait_for(lambda: stub.begun == ["first"])
        body = json.dumps({"texts": ["gone"]}).encode()
        head = f"POST /api/translate HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}"
        port = int(url.rpartition(":")[2])
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as leaving:
                leaving.sendall(head.encode() + b"\r\n\r\n" + body)
                time.sleep(0.02)
        # One that leaves in the middle of its body.
        with socket.create_connection(("127.0.0.1", port)) as leaving:
            leaving.sendall(head.encode() + b"\r\n\r\n{")
        line = 't2t_requests_total{endpoint="texts",status="499"} 21.0'
        wait_for(lambda: line in client.get("/metrics").text)
        stub.may_run.set()
        assert first.result().status_code == 200
        assert ask_stub(client, "next").status_code == 200
    assert [x for x in stub.batches if x != ["A test ."]] == [["first"], ["next"]]


def test_bodies_are_limited():
    stub = Stub()
    with serving(stub, max_body_bytes=1000) as (client, url, _):
        body = json.dumps({"texts": ["a" * 985]})
        assert len(body) == 1000
        assert client.post("/api/translate", content=body).status_code == 200
        answer = client.post("/api/translate", content=body + " ")
        assert answer.status_code == 413
        assert "more than 1,000 bytes (--max_body_bytes)" in error_of(answer)
        chunks = iter([body.encode(), b" "])  # without Content-Length
        answer = client.post("/api/translate", content=chunks)
        assert (answer.status_code, answer.request.headers["Transfer-Encoding"]) == (
            413,
            "chunked",
        )
        for length in (b"Content-Length: 10000000000", b"Transfer-Encoding: chunked"):
            port = int(url.rpartition(":")[2])
            with socket.create_connection(("127.0.0.1", port)) as huge:
                huge.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\n" + length)
                huge.sendall(b"\r\n\r\n")
                with contextlib.suppress(OSError):  # the server has closed it
                    for _ in range(1000):
                        huge.sendall(b"10000\r\n" + b"a" * 0x10000 + b"\r\n")
                with contextlib.suppress(ConnectionResetError):
                    assert huge.recv(12) in (b"HTTP/1.1 413", b"")
        assert client.get("/health").status_code == 200


def test_bodies_that_do_not_come():
    with serving(Stub(), timeout_seconds=0.3) as (_, url, _):
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\n")
            slow.sendall(b"Content-Length: 9\r\n\r\n{")
            assert slow.recv(12) == b"HTTP/1.1 408"


def test_shutdown_answers_what_waits():
    stub = Stub()
    with serving(stub) as (client, _, server), ThreadPoolExecutor(8) as pool:
        stub.may_run.clear()
        waiting = [pool.submit(ask_stub, client, f"{i}") for i in range(5)]
        wait_for(lambda: len(stub.begun) + queued(client) == 5)
        open_connection = httpx.Client(base_url=client.base_url)
        assert open_connection.get("/health").status_code == 200
        server.config.app.state.service.stop()
        answer = open_connection.get("/health")
        assert (answer.status_code, answer.json()) == (503, {"status": "stopping"})
        answer = ask_stub(open_connection, "late")
        assert answer.status_code == 503
        assert error_of(answer) == "the server is shutting down"
        server.handle_exit(signal.SIGTERM, None)
        stub.may_run.set()
        assert {x.result().status_code for x in waiting} == {200}
        with pytest.raises(httpx.TransportError):
            for _ in range(1000):
                httpx.get(f"{client.base_url}/health")
                time.sleep(0.05)


def test_health_waits_for_the_warm_up():
    class Slow(Stub):
        def warm_up(self, texts):
            self.may_run.wait()
            return super().warm_up(texts)

    class Broken(Stub):
        def warm_up(self, texts):
            raise RuntimeError("no memory")

    async def statuses(model):
        app = make_app([model], Limits())
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://x"
            ) as client:
                before = await client.get("/health")
                model.may_run.set()
                after = await client.get("/health")
                async with asyncio.timeout(60):
                    while after.json()["status"] == "loading":
                        await asyncio.sleep(0.01)
                        after = await client.get("/health")
                return before, after

    slow = Slow()
    slow.may_run.clear()
    before, after = asyncio.run(statuses(slow))
    assert (before.status_code, before.json()["status"]) == (503, "loading")
    assert (after.status_code, after.json()["status"]) == (200, "ok")
    _, after = asyncio.run(statuses(Broken()))
    assert after.status_code == 503 and "no memory" in after.json()["status"]


def test_metrics():
    with serving(Stub()) as (client, _, _):
        ask_stub(client, "a")
        client.get("/wp-admin")
        text = client.get("/metrics").text
    for line in (
        't2t_requests_total{endpoint="texts",status="200"} 1.0',
        't2t_requests_total{endpoint="none",status="404"} 1.0',
        't2t_request_seconds_count{endpoint="texts"} 1.0',
        't2t_batch_sentences_count{model="stub"} 2.0',  # one is the warm-up
        't2t_queue_sentences{model="stub"} 0.0',
    ):
        assert line in text.splitlines()


def test_batcher_takes_at_most_a_batch_and_the_oldest_key_first():
    batches = []

    def work(key, values):
        batches.append((key, values))
        time.sleep(0.05)
        return [value * 10 for value in values]

    async def talk():
        limits = Limits(max_batch_sentences=3, batch_milliseconds=20, max_queue=20)
        batcher = Batcher(work, limits)
        tasks = [
            asyncio.create_task(batcher.submit(key, values))
            for key, values in (("a", [1, 2]), ("b", [3]), ("a", [4, 5]), ("a", []))
        ]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="full"):
            await batcher.submit("a", range(21))
        found = await asyncio.gather(*tasks)
        await asyncio.to_thread(batcher.close)
        with pytest.raises(Overloaded, match="shutting down"):
            await batcher.submit("a", [1])
        return found

    assert asyncio.run(talk()) == [[10, 20], [30], [40, 50], []]
    assert batches == [("a", [1, 2, 4]), ("b", [3]), ("a", [5])]


def test_names_of_other_hosts_are_refused():
    known = (
        *("127.0.0.1", "localhost:8501", "LOCALHOST", "t2t.localhost", "[::1]:8501"),
        *("10.1.2.3:80", "translate.example.org:443"),
    )
    unknown = (
        *("evil.example", "evil.example:8501", "127.0.0.1.evil.example", "[127.0.0.1"),
        "evillocalhost",
    )

    def statuses(client, hosts):
        return {client.get("/health", headers={"Host": x}).status_code for x in hosts}

    with serving(Stub(), hosts=["translate.example.org"]) as (client, _, _):
        assert statuses(client, known) == {200}
        assert statuses(client, unknown) == {421}
    with serving(Stub()) as (client, _, _):
        assert statuses(client, (*known, *unknown)) == {200}


# The command.


def test_a_port_is_taken_before_models_are_loaded():
    with _bound("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen at 127.0.0.1, port {port}"):
            _bound("127.0.0.1", port)
    with pytest.raises(UserError, match=r"cannot listen at 0\.\.0, port 1: "):
        _bound("0..0", 1)


def test_flags(tmp_path, capfd, monkeypatch):
    (tmp_path / "a" / "1").mkdir(parents=True)
    (tmp_path / "a" / "1" / "saved_model.pb").touch()
    export = tmp_path / "a" / "1"

    def refusal(*flags):
        assert run("serve", *flags) == 2
        return capfd.readouterr().err

    assert "is neither a run" in refusal("--model", tmp_path)
    assert "is not a run directory" in refusal("--output_dir", tmp_path)
    assert "two models are named 'a'" in refusal("--model", export, "--model", export)
    assert "the name 'x/y'" in refusal("--model", f"x/y={export}")
    assert "written en-de, for example, not 'ende'" in refusal(
        "--model", export, "--languages", "ende"
    )
    assert "no model 'b'" in refusal("--model", export, "--languages", "b=en-de")
    assert "raw needs a run: the export" in refusal(
        "--model", export, "--decode_hparams", "raw=true"
    )
    assert "--checkpoint needs" in refusal("--model", export, "--checkpoint", "5")
    assert "above 65535" in refusal("--model", export, "--port", "70000")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "cannot listen" in refusal("--model", export, "--port", port)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert 'pip install "t2t_keras[serve]"' in refusal("--model", export)


@pytest.mark.slow
def test_options_of_the_server_are_the_defaults_of_requests(translator, export):
    old = translator.options
    try:
        of_run = ServedModel("run", translator, n_best=3, alpha=1.5)
        of_export = ServedModel("export", export._translator, n_best=3, alpha=1.5)
        rows = [{"texts": text} for text in TEXTS[:3]]
        found = [
            [x["texts"] for x in model.predict(rows, signature="serving_default")]
            for model in (of_run, of_export)
        ]
        best = translator.n_best(TEXTS[:3], 3, alpha=1.5)
        assert found == [[[x.text for x in row] for row in best]] * 2
        assert of_export.predict([{}], signature="options")[0]["n_best"] == 3
    finally:
        translator.options = old


# The page.


@pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium")
def test_page(translator, tmp_path):
    run = ServedModel("run", translator, languages=("en", "de"))
    stub = Stub("nested", text="(S (NP it) (VP (V works) (ADV {})))")
    text = "<img src=x onerror=alert(1)> a dog"
    with serving(run, stub) as (_, url, _), browser() as page:
        for width, dark in ((1000, False), (390, True)):
            page.open(url, width, 800, dark)
            page.wait("document.activeElement.id === 'text'")
            page.type(f"{text}\nthe old dog .")
            page.key("Enter", modifiers=2)  # Ctrl
            page.wait("document.querySelectorAll('article').length === 2")
            shown = page.run("document.querySelector('.best span').textContent")
            assert shown == translator.translate([text])[0]
            assert page.run("document.querySelector('h2').textContent") == text
            assert page.run("document.images.length") == 0
            page.run("document.querySelectorAll('details').forEach(d => d.open = true)")
            page.wait("document.querySelectorAll('article .link').length > 0")
            # Along the tokens by the arrow keys, and their alternatives by Enter.
            page.run("document.querySelector('.tokens button').focus()")
            page.key("ArrowRight")
            page.key("Enter")
            page.wait("document.querySelectorAll('.others button').length >= 3")
            chosen = page.run("document.querySelector('.others span').textContent")
            page.run("document.querySelector('.others button').click()")
            line = page.run("document.querySelector('details > p[dir]').textContent")
            assert chosen.partition(" → ")[2] in line
            outline = "getComputedStyle(document.querySelector('summary')).outlineStyle"
            page.run("document.querySelector('summary').focus({focusVisible: true})")
            assert page.run(outline) == "solid"
            assert page.run("document.documentElement.scrollWidth") <= width
            page.screenshot(tmp_path / f"{width}.png")
        page.run("document.querySelector('#model').value = 'nested'")
        page.run("document.querySelector('form button').click()")
        page.wait("document.querySelector('article .edge') !== null")
        edges = "x.querySelectorAll('.edge').length"
        # There are six edges down to ADV, and one to each of its words, 7 and 4.
        assert page.run(f"[...document.querySelectorAll('svg')].map(x => {edges})") == [
            *(6 + 7, 6 + 4)
        ]
        labels = "[...document.querySelector('svg').querySelectorAll('text')]"
        assert page.run(f"{labels}.map(x => x.textContent).slice(0, 4)") == [
            *("it", "NP", "works", "V")
        ]
        assert page.hosts() == {url}
        assert page.errors() == []


# What takes minutes.


@pytest.mark.slow
def test_memory_is_flat_over_10_000_requests(translator):
    import psutil

    process = psutil.Process()
    model = ServedModel("run", translator, languages=("en", "de"))
    sizes = []
    with serving(model) as (client, _, _), ThreadPoolExecutor(16) as pool:

        def one(i):
            text = f"{TEXTS[i % len(TEXTS)]} {i}"
            kind = i % 5
            if kind == 0:
                body = {"q": text, "source": "en", "target": "de"}
                assert client.post("/translate", data=body).status_code == 200
            elif kind == 1:
                path = "/v1/models/run:predict"
                assert client.post(path, json={"instances": [text]}).status_code == 200
            elif kind == 2 and i % 4 == 0:
                assert client.post("/api/translate", content="{").status_code == 400
            else:
                assert ask_stub(client, text, n_best=1 + i % 4).status_code == 200

        for start in range(0, 10_000, 1000):
            list(pool.map(one, range(start, start + 1000)))
            sizes.append(process.memory_info().rss / 2**20)
    print("MiB after every 1,000 requests:", [round(size) for size in sizes])
    assert sizes[-1] - sizes[3] < 30


@pytest.mark.slow
def test_sigterm_ends_the_program_with_0(export_dir):
    code = "import sys; from t2t_keras.cli import main; sys.exit(main())"
    flags = ["serve", "--export_dir", str(export_dir), "--port", "0", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    url = ""
    for line in process.stderr:
        if line.startswith("t2t serve: "):
            url = line.removeprefix("t2t serve: ").strip()
            break

    def is_ready():
        with contextlib.suppress(httpx.TransportError):
            return httpx.get(f"{url}health").status_code == 200

    wait_for(is_ready)
    assert "<textarea" in httpx.get(url).text
    with ThreadPoolExecutor(4) as pool:
        body = {"texts": TEXTS * 10}
        waiting = pool.submit(httpx.post, f"{url}api/translate", json=body, timeout=60)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert waiting.result().status_code == 200
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1])["requests"] >= 3
