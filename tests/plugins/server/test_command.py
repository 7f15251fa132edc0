"""`t2t serve`: its flags, signals and warnings."""

import functools
import json
import logging
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")
import httpx
from helpers.command_line import run_refused
from helpers.decoding_models import LINES
from helpers.errors import refused
from helpers.stub_server import predict, queued
from helpers.waiting import wait_until

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import install_command
from t2t_keras.plugins.server import command, served_model
from t2t_keras.plugins.server.command import Serve, bound
from t2t_keras.plugins.server.http import OnceAMinute, Server
from t2t_keras.run.config import CheckpointPaths

TEXTS = [line for line in LINES if line.strip()]


def test_a_port_is_taken_before_models_are_loaded():
    with bound("127.0.0.1", 0) as bound_socket:
        port = bound_socket.getsockname()[1]
        refused(f"cannot listen at 127.0.0.1, port {port}", bound, "127.0.0.1", port)
    refused(r"cannot listen at 0\.\.0, port 1: ", bound, "0..0", 1)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--model", "."), ". is neither a run nor an export, and has no numbered exp"),
        (("a",), "a/1 has no SHA256SUMS; copy or export the model again"),
        (("a/1", "b/a"), "a/1 and b/a are both named 'a'; give one another name, "),
        (("a/1", "b/a"), "such as b-a=b/a"),
        (("--model", "x/y=a/1"), "the name 'x/y'"),
        (("--model", "a/1", "--decode_hparams", "raw=true"), "raw needs a run"),
        (("--model", "a/1", "--checkpoint", "5"), "--checkpoint needs a run"),
        (("--model", "a/1", "--port", "70000"), "--port must be "),
        (("--model", "a/1", "--limits", "max_cue=3"), "did you mean 'max_queue'"),
        (("--model", "a/1", "--limits", "max_queue=0"), "max_queue must be at least 1"),
    ],
)
def test_flags(tmp_path, capfd, monkeypatch, flags, message):
    monkeypatch.chdir(tmp_path)
    Path("a/1").mkdir(parents=True)
    Path("a/1/saved_model.pb").touch()
    assert message in run_refused(capfd, "serve", *flags)


def test_a_model_has_the_name_of_its_directory(tmp_path, monkeypatch):
    """A number is the version of an export, and the name of a run."""
    monkeypatch.chdir(tmp_path)
    for run_dir in ("runs/1", "runs/2"):
        Path(run_dir).mkdir(parents=True)
        Path(run_dir, "config.json").write_text('{"problem": "p"}')
    models = ("served/ende/3", "served/fr", "runs/1", "runs/2", "m=runs/1")
    names = Serve(model=models).directories()
    assert list(names) == ["ende", "fr", "1", "2", "m"]


def test_an_export_for_ctranslate2_is_not_taken_for_a_run(translator, tmp_path, capfd):
    pytest.importorskip("ctranslate2", reason="needs the extra [ctranslate2]")
    from t2t_keras.plugins.engines.ctranslate2_export import export_ctranslate2

    export_ctranslate2(translator, tmp_path / "1")  # it has a `config.json`, as runs do
    Serve(model=("m",), engine="auto").load_model(tmp_path / "1")
    assert "engine:" not in capfd.readouterr().err


def test_a_converted_run_is_named_by_its_directory(tmp_path, capfd, monkeypatch):
    translator = mock.MagicMock()
    translator.choose = functools.partial(DecodingOptions, split_sentences=True)
    cache = tmp_path / "engines" / "ctranslate2-1"
    (tmp_path / "model.ckpt-4.index").touch()
    monkeypatch.setattr(command, "converted", lambda *_: (cache, None))
    monkeypatch.setattr(command, "load", lambda *_: translator)
    Serve(model=("m",), engine="auto").load_model(tmp_path)
    err = capfd.readouterr().err
    assert err.startswith(f"t2t serve: {tmp_path} was trained on single sentences:")


def test_what_ctranslate2_lacks_has_the_checkpoint_that_was_converted(
    tmp_path, monkeypatch
):
    """Also if a training writes another one while that is converted."""
    cache = tmp_path / "engines" / "ctranslate2-1"
    (tmp_path / "model.ckpt-4.index").touch()

    def convert(run, checkpoint, *options):
        assert CheckpointPaths(run).find(checkpoint) == tmp_path / "model.ckpt-4"
        (run / "model.ckpt-5.index").touch()
        return cache, None

    translator = mock.MagicMock()
    load = mock.Mock(return_value=translator)
    fallback = mock.MagicMock()
    monkeypatch.setattr(command, "converted", convert)
    monkeypatch.setattr(command, "load", load)
    monkeypatch.setattr(served_model, "FallbackModel", fallback)
    Serve(model=("m",), engine="auto").load_model(tmp_path)
    load.assert_called_once_with(cache, None)
    (fast, load_exact), _ = fallback.call_args
    assert fast is load_exact() is translator
    assert load.call_args.args == (tmp_path, str(tmp_path / "model.ckpt-4"))


@pytest.fixture
def said(tmp_path, monkeypatch):
    """Returns what the command says with further flags, when its model is ready."""

    def said(**flags):
        lines = []
        monkeypatch.setattr(command, "say", lines.append)
        Serve(model=(f"ende={tmp_path}",), port=0, **flags).run()
        return lines

    (tmp_path / "saved_model.pb").touch()
    monkeypatch.setattr(Server, "run", lambda self, _: self.service.manager.on_ready())
    return said


def test_a_line_says_when_the_models_are_ready_and_how_to_ask(said):
    lines = said()
    url = lines[0].removeprefix("t2t serve: ")
    assert lines[1:] == [
        f"t2t serve: ready; ask: curl {url}v1/models/ende:predict "
        """-d '{"instances": ["TEXT"]}'"""
    ]


def test_a_line_says_that_a_proxy_belongs_before_an_open_server(said):
    _, line, _ = said(host="0.0.0.0")
    assert "put a proxy in front of it, such as examples/haproxy.cfg" in line
    assert len(said(host="127.0.0.2")) == 2


def test_the_extra_is_needed(tmp_path, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    sentence = run_refused(capfd, "serve", "--model", tmp_path)
    assert install_command("serve") in sentence


class Hanging:
    """A server that gets signals while it runs."""

    def __init__(self):
        self.exits = []

    def handle_exit(self, signal_number, frame):
        self.exits.append(signal_number)


def test_sighup_is_treated_as_sigterm_unless_it_is_ignored():
    for previous, exits in (signal.SIG_DFL, 2), (signal.SIG_IGN, 0):
        server = Hanging()
        initial = signal.signal(signal.SIGHUP, previous)
        try:
            with command._handlers(server):
                signal.raise_signal(signal.SIGHUP)
                signal.raise_signal(signal.SIGHUP)
                signal.raise_signal(signal.SIGTERM)  # as uvicorn does at its end
            assert signal.getsignal(signal.SIGHUP) == previous
        finally:
            signal.signal(signal.SIGHUP, initial)
        assert server.exits == [signal.SIGTERM] * exits


def test_warnings_have_one_line_a_minute():
    seconds = [1.0]
    lines = []
    keep = OnceAMinute(lambda: seconds[0])

    def warn(message, *values):
        record = logging.LogRecord("t2t", logging.WARNING, "", 0, message, values, None)
        if keep.filter(record):
            lines.append(record.getMessage())

    for time_of_day in (1.0, 30.0, 60.9, 61.0, 62.0, 200.0):
        seconds[0] = time_of_day
        for count in (1, 2):
            warn("input %d of 100%%", count)
    warn("other")
    assert lines == [
        "input 1 of 100%",
        "input 1 of 100%; 5 more such lines left out",
        "input 1 of 100%; 3 more such lines left out",
        "other",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_program_with_0(export_dir, signal_number):
    code = "import sys; from t2t_keras.cli import main; sys.exit(main())"
    flags = ["serve", "--model", f"m={export_dir}", "--port", "0", "--json"]
    flags += ["--limits", "max_batch_sentences=1"]  # so that sentences wait
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", code, *flags], **pipes, text=True)
    line = process.stderr.readline()
    assert line.startswith("t2t serve: http")
    with httpx.Client(base_url=line.split()[-1], timeout=60) as client:
        wait_until(lambda: client.get("/health").status_code == 200)
        assert process.stderr.readline().startswith("t2t serve: ready; ask: curl ")
        with ThreadPoolExecutor(4) as pool:
            waiting = pool.submit(predict, client, "m", {"instances": TEXTS * 4})
            wait_until(lambda: queued(client))
            process.send_signal(signal_number)
            assert waiting.result().status_code == 200
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out.splitlines()[-1])["requests"] >= 2
    assert errors == ""  # TensorFlow says nothing
