"""The trainer in this process, for a few steps."""

import concurrent.futures
import itertools
import json
import os
import pty
import shutil
import signal
import sys
import time
import types

import numpy as np
import pytest
from errors import refused
from json_edits import edit_json
from small_data import small_data
from small_run import assert_same, trainer, weights

import t2t_keras
from t2t_keras.data.datagen import generate
from t2t_keras.run import checkpoint_directory as checkpoint_module
from t2t_keras.run.checkpoint import Checkpoint, model_variables
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.fine_tune import matching_rows
from t2t_keras.training.stopping import LAUNCHED, Stopping


def test_the_first_update_has_the_rate_of_step_one(data_dir, trained_run, tmp_path):
    """Adam's first update is the rate against the sign of the gradient."""
    initial = trainer(data_dir, tmp_path).model.softmax_embedding.table.numpy()
    moved = np.abs(weights(trained_run, 1)["model/embedding/table"] - initial)
    # Small gradients are below epsilon; with most it is exact.
    np.testing.assert_allclose(np.median(moved), 16**-0.5 * 10**-1.5, rtol=1e-3)


def test_several_steps_per_call_end_where_something_is_due(data_dir, tmp_path):
    options = {"steps_per_call": 5, "log_every": 3, "save_every": 4, "eval_every": 6}
    training = trainer(data_dir, tmp_path / "a", train_steps=9, options=options)
    calls = []
    update_from = training._step.update_from

    def noted(batches, step, rates, dry_run=False):
        calls.append((step, len(rates), dry_run))
        return update_from(batches, step, rates, dry_run)

    training._step.update_from = noted
    assert np.isfinite(training.train()["loss"])
    # The trial, then what ends at 3 (log), 4 (save), 6 (both), 8 and 9.
    expected = [(0, 3), (3, 1), (4, 2), (6, 2), (8, 1)]
    assert calls == [(0, 1, True), *((*call, False) for call in expected)]
    assert training._step.function.experimental_get_tracing_count() == 0
    assert training._step._loop.experimental_get_tracing_count() == 1
    lines = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").open()]
    assert [r["step"] for r in lines if r["kind"] == "train"] == [3, 6, 9]
    assert all(r["steps_per_s"] > 0 for r in lines if r["kind"] == "train")
    assert RunDirectory(tmp_path / "a").checkpoints.steps() == [4, 8, 9]
    # Elsewhere the calls are divided in another way.
    other_options = {**options, "log_every": 100, "save_every": 2}
    trainer(data_dir, tmp_path / "b", train_steps=9, options=other_options).train()
    assert_same(weights(tmp_path / "a", 9), weights(tmp_path / "b", 9))


def test_other_direction_swaps_the_sides(data_dir, tmp_path):
    forward = trainer(data_dir, tmp_path / "a", dropout=0.0)
    backward = trainer(data_dir, tmp_path / "b", "translate_text_rev", dropout=0.0)
    (source, target), (swapped_target, swapped_source) = (
        next(t._batches(range(1))) for t in (forward, backward)
    )
    np.testing.assert_array_equal(source, swapped_source)
    np.testing.assert_array_equal(target, swapped_target)
    assert not np.array_equal(source, target)


def test_what_is_reported(trained_run):
    records = [json.loads(line) for line in (trained_run / "metrics.jsonl").open()]
    at_end = [(4, event) for event in ("train", "dev", "dev_best", "dev_average")]
    assert [(r["step"], r["kind"]) for r in records] == [(2, "train"), *at_end]
    train, dev = records[1:3]
    assert train["learning_rate"] == pytest.approx(16**-0.5 * 4 * 10**-1.5)
    assert train["perplexity"] == pytest.approx(np.exp(train["nll"]))
    assert dev["perplexity"] == pytest.approx(np.exp(dev["loss"]))
    assert 0 <= train["minutes_left"] < 1
    assert {path.suffix for path in trained_run.glob("events*")}  # for TensorBoard


def test_without_dev_data_there_is_no_evaluation(tmp_path, monkeypatch):
    slow_disk(monkeypatch)
    problem = small_data(tmp_path / "both")
    alone = problem.replace(sources={"train": problem.sources["train"]})
    generate(alone, tmp_path / "alone", workers=1)
    figures = trainer(tmp_path / "alone", tmp_path / "run").train()
    assert figures["step"] == 4
    assert not [name for name in figures if name.startswith("dev")]
    checkpoints = RunDirectory(tmp_path / "run").checkpoints
    assert checkpoints.find() == tmp_path / "run" / "average.ckpt-4"
    final_weights = [weights(tmp_path / "run", step) for step in (2, 4)]
    average = Checkpoint(checkpoints.find())
    for name in average.shapes.keys() - {"step"}:
        mean = (final_weights[0][name] + final_weights[1][name]) / 2
        np.testing.assert_allclose(average.tensor(name), mean, atol=1e-6)


def test_a_loss_that_is_never_finite_ends_training(data_dir, tmp_path):
    training = trainer(data_dir, tmp_path)
    table = training.model.embeddings[0].table
    table.assign(np.full(table.shape, np.nan))
    refused(r"step 4: the loss .* in the last 4 updates", training.train)


def test_a_damaged_checkpoint_is_passed_over(data_dir, trained_run, tmp_path, capfd):
    options = {"save_every": 1, "eval_every": 9, "average_last": 0}
    undamaged = weights(shutil.copytree(trained_run, tmp_path / "run"))
    data = tmp_path / "run" / "model.ckpt-4.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[-9] ^= 1
    data.write_bytes(content)
    resumed = trainer(data_dir, tmp_path / "run", options=options)
    resumed.train()
    assert "model.ckpt-4 cannot be read" in (errors := capfd.readouterr().err)
    assert "training resumes from step 3" in errors
    assert_same(weights(tmp_path / "run"), undamaged)
    for path in (tmp_path / "run").glob("model.ckpt-*.index"):
        path.write_bytes(b"")
    refused(r"model\.ckpt-1 cannot be read", resumed.train)


def test_a_disk_too_small_for_the_checkpoints_is_refused(
    data_dir, tmp_path, monkeypatch
):
    """Of four checkpoints two are kept, and one more is there while it is written."""
    options = {"save_every": 1, "keep": 2}
    training = trainer(data_dir, tmp_path, options=options)
    num_params = training.model.count_params()
    need = (
        4 * num_params * (3 * 3 + 2)
    )  # weights and two moments; the best, the average
    for free, fits in ((need - 1, False), (need, True)):
        usage = types.SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        if fits:
            assert training.train()["step"] == 4
        else:
            refused("checkpoints take .* with --train_options keep=N", training.train)


def test_checkpoints_by_the_clock(data_dir, tmp_path, monkeypatch):
    seconds = itertools.count(0, 60)  # a minute passes whenever the trainer looks
    clock = types.SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("t2t_keras.training.trainer.time", clock)
    options = {"save_minutes": 2.5, "average_last": 0}
    trainer(data_dir, tmp_path, train_steps=8, options=options).train()
    # It looks when it starts, after each step, and when it has saved.
    assert RunDirectory(tmp_path).checkpoints.steps() == [3, 6, 8]


def slow_disk(monkeypatch):
    """Makes writing a checkpoint take longer than the steps after it."""
    write = checkpoint_module.write_checkpoint

    def write_late(path, tensors):
        time.sleep(0.3)
        write(path, tensors)

    monkeypatch.setattr(checkpoint_module, "write_checkpoint", write_late)


def test_an_error_in_training_waits_for_the_checkpoint_that_is_written(
    data_dir, tmp_path, monkeypatch
):
    slow_disk(monkeypatch)
    training = trainer(data_dir, tmp_path)
    before_step(training, lambda step: step < 3 or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        training.train()
    assert RunDirectory(tmp_path).checkpoints.steps() == [2]


def before_step(training, hook):
    """Calls a hook with each step before it is run."""
    update = training._step.update

    def update_after(batch, step, learning_rate, dry_run=False):
        if not dry_run:
            hook(step)
        return update(batch, step, learning_rate, dry_run)

    training._step.update = update_after


def test_a_run_stopped_by_a_signal_resumes_exactly(data_dir, trained_run, tmp_path):
    options = {"save_every": 100, "eval_every": 1}
    training = trainer(data_dir, tmp_path / "a", options=options)
    before_step(training, lambda step: step != 2 or signal.raise_signal(signal.SIGINT))
    figures = training.train()
    assert (figures["step"], figures["stopped_by"]) == (3, "SIGINT")
    assert figures["loss"] > 0
    assert "dev_average" not in figures  # there is no time for it
    assert RunDirectory(tmp_path / "a").checkpoints.steps() == [3]

    finished = trainer(data_dir, tmp_path / "a", options=options).train()
    assert finished["stopped_by"] == "train_steps"
    assert_same(weights(tmp_path / "a"), weights(trained_run))

    # Each step was evaluated once, also the one at which the signal came.
    def evaluated(run):
        records = map(json.loads, (run / "metrics.jsonl").open())
        return [(r["step"], r["loss"]) for r in records if r["kind"] == "dev"]

    resumed = evaluated(tmp_path / "a")
    assert [step for step, _ in resumed] == [1, 2, 3, 4]
    assert resumed[3:] == evaluated(trained_run)


def test_early_stopping_keeps_the_best_and_stays_stopped(data_dir, tmp_path):
    # With a rate of next to nothing, then far too much, the first is the best.
    hparams = {"learning_rate": 5.0, "warmup_steps": 1, "train_steps": 50}
    options = {"eval_every": 1, "patience": 2, "save_every": 100, "keep": 1}
    figures = trainer(data_dir, tmp_path, options=options, **hparams).train()
    assert figures["stopped_by"] == "patience"
    best = figures["dev_best"]
    assert figures["step"] == best["step"] + 2 < 50
    assert figures["dev_loss"] > best["loss"]
    run = RunDirectory(tmp_path)
    assert Checkpoint(run.checkpoints.find("best")).step == best["step"]
    assert run.checkpoints.steps() == [figures["step"]]

    restarted = trainer(data_dir, tmp_path, options=options, **hparams).train()
    assert (restarted["step"], restarted["stopped_by"]) == (figures["step"], "patience")
    assert restarted["dev_best"] == best


def test_other_data_is_refused_and_moved_data_is_not(data_dir, trained_run, tmp_path):
    shutil.copytree(trained_run, tmp_path / "run")
    moved = tmp_path / "moved"
    other_data = tmp_path / "other"
    for copy in (moved, other_data):
        shutil.copytree(data_dir, copy)
    edit_json(other_data / "translate_text.manifest.json", seed=9)
    trainer(moved, tmp_path / "run")
    message = r"data_dir was .*, is now .*other, other data"
    refused(message, trainer, other_data, tmp_path / "run")


# The moving average of the weights, against its recursion in NumPy.


DECAY = 0.15


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_average_of_a_run(replicas, data_dir, tmp_path):
    hparams = {"options": {"save_every": 1}, "ema_decay": DECAY}
    figures = trainer(data_dir, tmp_path, replicas=replicas, **hparams).train()
    checkpoints = [weights(tmp_path, step) for step in (1, 2, 3, 4)]
    names = [name for name in checkpoints[0] if name.startswith("model/")]
    averages = {name for name in checkpoints[0] if name.startswith("ema/")}
    assert averages == {name.replace("model/", "ema/", 1) for name in names}
    for name in names:
        average = np.zeros_like(checkpoints[0][name])
        for t, tensors in enumerate(checkpoints, 1):
            decay = min(DECAY, (t - 1) / (t + 9))  # 0, 1/11, 2/12, then 0.15
            average = decay * average + (1 - decay) * tensors[name]
            actual = tensors[name.replace("model/", "ema/", 1)]
            np.testing.assert_allclose(actual, average, atol=1e-6, err_msg=name)

    # It can be chosen like any checkpoint, and was evaluated beside the others.
    run = RunDirectory(tmp_path)
    variables = model_variables(run.translator("ema").model)
    for name in names:
        expected = checkpoints[-1][name.replace("model/", "ema/", 1)]
        np.testing.assert_array_equal(variables[name], expected, err_msg=name)
    assert 0 < figures["dev_ema"]["loss"] != figures["dev_loss"]


def test_a_run_without_averages(trained_run):
    message = r"--checkpoint ema: .* has no ema_decay"
    refused(message, RunDirectory(trained_run).translator, "ema")


# What ends training early: signals and time.


@pytest.fixture
def arrived():
    """Signals that came through to the handlers from before."""
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


# Fine-tuning: another run's weights, a fresh optimizer, perhaps other vocabularies.


TABLE = "model/embedding/table"


def initial(training) -> dict[str, np.ndarray]:
    """Returns the values before the first update."""
    assert training._restore() == 0
    return {name: v.read_value().numpy() for name, v in training._variables.items()}


@pytest.mark.parametrize("step", [None, 2])
def test_weights_are_taken_and_the_optimizer_is_not(
    trained_run, data_dir, tmp_path, step
):
    origin = trained_run / f"model.ckpt-{step}" if step else trained_run
    initial_weights = initial(trainer(data_dir, tmp_path, seed=2, init_from=origin))
    for name, value in weights(trained_run, step or 4).items():
        if name.startswith("model/"):
            np.testing.assert_array_equal(initial_weights[name], value, err_msg=name)
    assert not any(
        initial_weights[name].any()
        for name in initial_weights
        if name.startswith("adam/")
    )


def test_rows_of_another_vocabulary_go_with_their_pieces(
    trained_run, data_dir, tmp_path, capfd
):
    problem = small_data(tmp_path / "small").replace(vocab_size=290)
    generate(problem, tmp_path / "other", workers=1)
    fresh = initial(trainer(tmp_path / "other", tmp_path / "fresh"))[TABLE]
    training = trainer(tmp_path / "other", tmp_path / "run", init_from=trained_run)
    table = initial(training)[TABLE]
    old_table = weights(trained_run)[TABLE]
    runs = map(RunDirectory, (trained_run, tmp_path / "run"))
    old, new = (run.tokenizers[0].pieces for run in runs)
    assert old != new
    for i, piece in enumerate(new):
        expected = old_table[old.index(piece)] if piece in old else fresh[i]
        np.testing.assert_array_equal(table[i], expected, err_msg=piece)
    matched = len(set(old) & set(new))
    message = f"{matched} of {len(new)} rows of {TABLE}, and all other weights"
    assert message in capfd.readouterr().err
    training.train()  # and the shapes are those of the new vocabulary


def test_the_special_tokens_match_however_they_are_spelled():
    old, new = matching_rows(["<pad>", "<EOS>", "a", "b"], ["<pad>", "</s>", "b", "x"])
    assert list(zip(old, new, strict=True)) == [(0, 0), (1, 1), (3, 2)]


MISFITS = [
    ({"d_ff": 32}, r"inner/kernel' has shape \[16, 16\], the model's is \[16, 32\]"),
    ({"num_layers": 2}, "the model has a weight 'model/decoder/layer_1/.*' and"),
    ({"share_embeddings": False}, "checkpoint has a weight 'model/embedding/table"),
]


@pytest.mark.parametrize(("hparams", "message"), MISFITS, ids=str)
def test_what_does_not_fit_is_named(hparams, message, trained_run, data_dir, tmp_path):
    training = trainer(data_dir, tmp_path, init_from=trained_run, **hparams)
    refused(message, training.train)


def test_what_is_not_a_run_is_refused_before_anything_is_written(data_dir, tmp_path):
    folders = {"data_dir": data_dir, "output_dir": tmp_path / "run"}
    arguments = folders | {"problem": "translate_text", "hparams_set": "tiny"}
    message = "--init_from: .* is neither a run"
    refused(message, t2t_keras.train, **arguments, init_from=tmp_path)
    assert not (tmp_path / "run").exists()
