"""The trainer in this process, for a few steps."""

import itertools
import json
import shutil
import signal
import time
import types

import numpy as np
import pytest
from small_data import small_data
from small_run import assert_same, trainer, weights

from t2t_keras import UserError
from t2t_keras.data.datagen import generate
from t2t_keras.training import checkpoint as checkpoint_module
from t2t_keras.training.checkpoint import Checkpoint
from t2t_keras.training.run_dir import RunDirectory
from t2t_keras.training.strategy import devices_text, make_strategy


def test_the_first_update_has_the_rate_of_step_one(data_dir, tmp_path):
    """Adam's first update is the rate against the sign of the gradient."""
    training = trainer(data_dir, tmp_path, train_steps=1)
    before = training.model.softmax_embedding.table.numpy()
    training.train()
    moved = np.abs(weights(tmp_path, 1)["model/embedding/table"] - before)
    # Small gradients are below epsilon; with most it is exact.
    np.testing.assert_allclose(np.median(moved), 16**-0.5 * 10**-1.5, rtol=1e-3)


@pytest.mark.slow
def test_a_run_can_be_made_longer_and_is_then_the_longer_run(data_dir, tmp_path):
    trainer(data_dir, tmp_path / "a", train_steps=2).train()
    trainer(data_dir, tmp_path / "a", train_steps=4).train()
    trainer(data_dir, tmp_path / "b", train_steps=4).train()
    assert_same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert RunDirectory(tmp_path / "a").hparams.train_steps == 4
    again = trainer(data_dir, tmp_path / "a").train()  # nothing left to do
    assert again["step"] == 4
    assert np.isfinite(again["dev_loss"])


def test_several_steps_per_call_end_where_something_is_due(data_dir, tmp_path):
    options = {"steps_per_call": 5, "log_every": 3, "save_every": 4, "eval_every": 6}
    training = trainer(data_dir, tmp_path / "a", train_steps=9, options=options)
    calls = []
    update_from = training._step.update_from

    def noted(batches, step, rates, is_trial=False):
        calls.append((step, len(rates), is_trial))
        return update_from(batches, step, rates, is_trial)

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
    # Stopped and resumed elsewhere, the calls are divided in another way.
    other = {**options, "log_every": 100, "save_every": 2}
    for steps in (2, 7, 9):
        trainer(data_dir, tmp_path / "b", train_steps=steps, options=other).train()
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


def test_what_is_reported(data_dir, tmp_path):
    figures = trainer(data_dir, tmp_path).train()
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").open()]
    assert [(r["step"], r["kind"]) for r in records] == [
        (2, "train"),
        (4, "train"),
        (4, "dev"),
        (4, "dev_best"),
        (4, "dev_average"),
    ]
    train, dev = records[1:3]
    assert train["learning_rate"] == pytest.approx(16**-0.5 * 4 * 10**-1.5)
    assert train["perplexity"] == pytest.approx(np.exp(train["nll"]))
    assert dev["perplexity"] == pytest.approx(np.exp(figures["dev_loss"]))
    assert 0 <= train["minutes_left"] < 1
    assert {path.suffix for path in tmp_path.glob("events*")}  # for TensorBoard


def test_without_dev_data_there_is_no_evaluation(tmp_path, monkeypatch):
    before_writing(monkeypatch, lambda name: time.sleep(0.3))  # a slow disk
    problem = small_data(tmp_path / "both")
    alone = problem.replace(sources={"train": problem.sources["train"]})
    generate(alone, tmp_path / "alone", workers=1)
    figures = trainer(tmp_path / "alone", tmp_path / "run").train()
    assert figures["step"] == 4
    assert not [name for name in figures if name.startswith("dev")]
    checkpoints = RunDirectory(tmp_path / "run").checkpoints
    assert checkpoints.find() == tmp_path / "run" / "average.ckpt-4"
    ends = [weights(tmp_path / "run", step) for step in (2, 4)]
    average = Checkpoint(checkpoints.find())
    for name in average.shapes.keys() - {"step"}:
        mean = (ends[0][name] + ends[1][name]) / 2
        np.testing.assert_allclose(average.tensor(name), mean, atol=1e-6)


def test_a_loss_that_is_never_finite_ends_training(data_dir, tmp_path):
    training = trainer(data_dir, tmp_path)
    table = training.model.embeddings[0].table
    table.assign(np.full(table.shape, np.nan))
    with pytest.raises(UserError, match=r"step 4: the loss .* in the last 4 updates"):
        training.train()


def test_a_damaged_checkpoint_is_passed_over(data_dir, tmp_path, capfd):
    options = {"save_every": 1, "eval_every": 9, "average_last": 0}
    trainer(data_dir, tmp_path / "run", options=options).train()
    whole = weights(tmp_path / "run")
    data = tmp_path / "run" / "model.ckpt-4.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    content[-9] ^= 1
    data.write_bytes(content)
    trainer(data_dir, tmp_path / "run", options=options).train()
    assert "model.ckpt-4 cannot be read" in (errors := capfd.readouterr().err)
    assert "going on from step 3" in errors
    assert_same(weights(tmp_path / "run"), whole)
    for step in (1, 2, 3, 4):
        path = tmp_path / "run" / f"model.ckpt-{step}.index"
        path.write_bytes(b"")
    with pytest.raises(UserError, match=r"model\.ckpt-1 cannot be read"):
        trainer(data_dir, tmp_path / "run", options=options).train()


def test_devices_are_told():
    strategy = make_strategy(simulate_devices=2)
    assert devices_text(strategy) == "2 replicas on the CPU"


def test_a_disk_too_small_for_the_checkpoints_is_refused(
    data_dir, tmp_path, monkeypatch
):
    """Of four checkpoints two are kept, and one more is there while it is written."""
    options = {"save_every": 1, "keep": 2}
    training = trainer(data_dir, tmp_path, options=options)
    numbers = training.model.count_params()
    need = 4 * numbers * (3 * 3 + 2)  # weights and two moments; the best, the average
    for free, fits in ((need - 1, False), (need, True)):
        usage = types.SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        if fits:
            assert training.train()["step"] == 4
        else:
            with pytest.raises(
                UserError, match=r"checkpoints take .* with --train_options keep=N"
            ):
                training.train()


def test_checkpoints_by_the_clock(data_dir, tmp_path, monkeypatch):
    seconds = itertools.count(0, 60)  # a minute passes whenever the trainer looks
    clock = types.SimpleNamespace(monotonic=lambda: next(seconds))
    monkeypatch.setattr("t2t_keras.training.trainer.time", clock)
    options = {"save_minutes": 2.5, "average_last": 0}
    trainer(data_dir, tmp_path, train_steps=8, options=options).train()
    # It looks when it starts, after each step, and when it has saved.
    assert RunDirectory(tmp_path).checkpoints.steps() == [3, 6, 8]


def before_writing(monkeypatch, hook):
    """Calls a hook with the name of each checkpoint before it is written."""
    write = checkpoint_module.write_checkpoint

    def write_after(path, tensors):
        hook(path.name)
        write(path, tensors)

    monkeypatch.setattr(checkpoint_module, "write_checkpoint", write_after)


def before_step(training, hook):
    """Calls a hook with each step before it is run."""
    update = training._step.update

    def update_after(batch, step, learning_rate, is_trial=False):
        if not is_trial:
            hook(step)
        return update(batch, step, learning_rate, is_trial)

    training._step.update = update_after


def test_whatever_ends_training_its_checkpoints_are_complete(
    data_dir, tmp_path, monkeypatch
):
    before_writing(monkeypatch, lambda name: time.sleep(0.3))

    def end(step):
        if step == 2 and ends_by == "signal":
            signal.raise_signal(signal.SIGTERM)
        if step == 3:
            raise ValueError("the end")

    for ends_by in ("signal", "exception"):
        training = trainer(data_dir, tmp_path / ends_by)
        before_step(training, end)
        if ends_by == "exception":
            with pytest.raises(ValueError, match="the end"):
                training.train()
        else:
            assert training.train()["stopped_by"] == "SIGTERM"
    steps = [
        RunDirectory(tmp_path / x).checkpoints.steps() for x in ("signal", ends_by)
    ]
    assert steps == [[2, 3], [2]]


def test_a_signal_saves_and_the_run_goes_on_as_if_it_had_not_come(data_dir, tmp_path):
    options = {"save_every": 100, "eval_every": 1}
    training = trainer(data_dir, tmp_path / "a", options=options)
    before_step(training, lambda step: step != 2 or signal.raise_signal(signal.SIGINT))
    figures = training.train()
    assert (figures["step"], figures["stopped_by"]) == (3, "SIGINT")
    assert figures["loss"] > 0
    assert "dev_average" not in figures  # there is no time for it
    assert RunDirectory(tmp_path / "a").checkpoints.steps() == [3]

    finished = trainer(data_dir, tmp_path / "a", options=options).train()
    whole = trainer(data_dir, tmp_path / "b", options=options).train()
    assert finished["stopped_by"] == whole["stopped_by"] == "train_steps"
    assert_same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    # Each step was evaluated once, also the one at which the signal came.
    evaluated = [
        [r["loss"] for r in map(json.loads, path.open()) if r["kind"] == "dev"]
        for path in (tmp_path / "a/metrics.jsonl", tmp_path / "b/metrics.jsonl")
    ]
    assert evaluated[0] == evaluated[1]
    assert len(evaluated[0]) == 4


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

    again = trainer(data_dir, tmp_path, options=options, **hparams).train()
    assert (again["step"], again["stopped_by"]) == (figures["step"], "patience")
    assert again["dev_best"] == best


def test_other_data_is_refused_and_moved_data_is_not(data_dir, tmp_path):
    trainer(data_dir, tmp_path / "run").train()
    moved, other = tmp_path / "moved", tmp_path / "other"
    for copy in (moved, other):
        shutil.copytree(data_dir, copy)
    manifest = other / "translate_text.manifest.json"
    manifest.write_text(manifest.read_text().replace('"seed": 0', '"seed": 9'))
    trainer(moved, tmp_path / "run")
    with pytest.raises(UserError, match=r"data_dir was .*, is now .*other, other data"):
        trainer(other, tmp_path / "run")
