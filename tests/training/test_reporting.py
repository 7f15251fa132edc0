"""What is shown while a training or an evaluation runs, and the time left."""

import contextlib
import io
import json
import math
import os
import re
import types

import numpy as np
import pytest
import tensorflow as tf
from helpers.small_run import replace_updates, trainer
from rich.console import Console

from t2t_keras.cli import program
from t2t_keras.training import reporting as module
from t2t_keras.training.interval import TimeLeft
from t2t_keras.training.reporting import Reporter, Screen
from t2t_keras.training.settings import TrainOptions
from t2t_keras.training.step import StepResult

RESULT = {"loss_sum": 60, "nll_sum": 40, "source_tokens": 30, "target_tokens": 20}
RESULT |= {"positions": 64, "gradient_norm": 1, "skipped": 0}
RESULT = StepResult(**{name: np.float32(value) for name, value in RESULT.items()})


@pytest.fixture
def clock(monkeypatch):
    """Time as the progress sees it; a test moves it."""
    clock = types.SimpleNamespace(now=1000.0)
    monkeypatch.setattr("time.monotonic", lambda: clock.now)
    return clock


def reporter(steps):
    """A reporter that shows the progress of so many steps."""
    time_left = TimeLeft(range(steps), TrainOptions())
    return Reporter(time_left, screen=Screen(time_left))


def test_the_first_step_is_reported_at_once(data_dir, tmp_path, capfd, monkeypatch):
    replace_updates(monkeypatch)
    options = {"log_every": 100, "average_last": 0}
    trainer(data_dir, tmp_path, options=options).train()
    parameters, first_report, *lines = capfd.readouterr().err.splitlines()
    assert "parameters" in parameters
    pattern = r"step 1/4 \| smoothed loss \d\.\d+, nll \d\.\d+ \| first step after \d+"
    assert re.match(pattern, first_report)
    (last_report,) = (line for line in lines if line.startswith("step 4/4"))
    assert re.fullmatch(r".* \| [\d,.]+ target tokens/s", last_report)
    assert len(last_report) <= 90
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert [r["step"] for r in records if r["kind"] == "train"] == [4]


def test_the_likelihood_of_training_is_the_loss_of_dev(data_dir, tmp_path):
    """Dev's sentences are those of training, all in one batch, and nothing changes."""
    hparams = {"dropout": 0.0, "learning_rate": 1e-12, "batch_tokens": 10**9}
    figures = trainer(data_dir, tmp_path, train_steps=1, **hparams).train()
    assert figures["nll"] == pytest.approx(figures["dev_nll"], rel=1e-5)
    assert figures["perplexity"] == pytest.approx(math.exp(figures["dev_nll"]), 1e-4)
    assert abs(figures["loss"] / figures["nll"] - 1) > 1e-3


def test_outside_a_terminal_a_line_comes_at_least_every_half_minute(clock, capfd):
    progress = reporter(100)
    for step in range(1, 14):
        clock.now += 10
        progress.count(step, RESULT)
    shown = re.findall(r"^step (\d+)/100", capfd.readouterr().err, re.MULTILINE)
    assert shown == ["1", "5", "9", "13"]
    progress.close()


def test_in_a_terminal_there_is_a_bar_and_lines_are_above_it(clock, monkeypatch):
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, legacy_windows=False)
    monkeypatch.setattr(module, "screen", lambda: console)
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.closing(reporter(40)) as progress:
        for step in range(1, 4):
            clock.now += 10
            progress.count(step, RESULT)
        progress._screen._bar.refresh()
        with progress.task("decoding dev", "sentences", 500) as advance:
            advance(120)
            progress._screen._bar.refresh()
        progress.say("a line [1] of text")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "step 1/40 | smoothed loss 3, nll 2 | first step after 10 s" in text
    assert re.search(r"training .* 3/40 .* nll 2 \| ETA 6 min \| 2 tokens/s", text)
    assert re.search(r"decoding dev .* 120/500 .* sentences", text)
    assert "a line [1] of text\n" in text


@pytest.mark.parametrize("devices", ["none", "broken", "hidden"])
def test_a_gpu_that_cannot_be_used_is_mentioned(devices, tmp_path, monkeypatch, capfd):
    """There are no GPUs in the tests; a file stands for the driver's."""
    if devices != "none":
        (tmp_path / "nvidia1").touch()
    pattern = str(tmp_path / "nvidia[0-9]*")
    monkeypatch.setattr("t2t_keras.devices._NVIDIA", pattern)
    if devices == "hidden":
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    else:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    program._import_tensorflow(decodes_files=False)
    is_mentioned = "TensorFlow cannot use the NVIDIA GPU" in capfd.readouterr().err
    assert is_mentioned == (devices == "broken")


def test_freed_memory_is_kept_on_a_cpu(monkeypatch):
    """conftest.py sets it for this process: no other CPU allocator has statistics."""
    name = "TF_CPU_ALLOCATOR_USE_BFC"
    monkeypatch.delenv(name)
    program._import_tensorflow(decodes_files=False)
    assert os.environ[name] == "true"
    assert tf.config.experimental.get_memory_info("CPU:0")["peak"] > 0


def test_parallel_batches_share_the_cores_that_the_process_may_use(monkeypatch):
    threads = []
    monkeypatch.setattr(
        tf.config.threading, "set_intra_op_parallelism_threads", threads.append
    )
    monkeypatch.delenv("TF_NUM_INTRAOP_THREADS", raising=False)
    monkeypatch.setenv("PYTHON_CPU_COUNT", "12")
    program._import_tensorflow(decodes_files=True)
    assert threads == [3]  # of four batches
