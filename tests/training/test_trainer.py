"""The trainer in this process, for a few steps."""

import itertools
import json
import shutil
import signal
import time
import types

import numpy as np
import pytest
import tensorflow as tf
from helpers.errors import refused
from helpers.json_edits import edit_json
from helpers.small_data import small_data
from helpers.small_run import assert_same, replace_updates, trainer, weights

from t2t_keras import registry
from t2t_keras.data.datagen import generate
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.data.training_data import training_index
from t2t_keras.hparam import HParams
from t2t_keras.run import checkpoint as checkpoint_module
from t2t_keras.run.checkpoint import Checkpoint, average_run
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.hooks import Hook
from t2t_keras.training.result import TrainResult
from t2t_keras.training.step import TrainStep
from t2t_keras.training.trainer import compilation_notice, dtype_advice


def test_the_first_update_has_the_rate_of_step_one(data_dir, trained_run, tmp_path):
    """Adam's first update is the rate against the sign of the gradient."""
    initial = trainer(data_dir, tmp_path).model.softmax_embedding.table.numpy()
    moved = np.abs(weights(trained_run, 1)["model/embedding/table"] - initial)
    # Small gradients are below epsilon; with most it is exact.
    np.testing.assert_allclose(np.median(moved), 16**-0.5 * 10**-1.5, rtol=1e-3)


@pytest.mark.slow
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


def test_other_direction_swaps_the_sides(data_dir):
    problems = ("translate_text", "translate_text_rev")
    indexes = [training_index(data_dir, registry.problem(name)) for name in problems]
    (pair,), (swapped,) = (read_pairs(index, [0]) for index in indexes)
    assert pair[0] != pair[1] and pair == swapped[::-1]


def test_what_is_reported(trained_run):
    records = [json.loads(line) for line in (trained_run / "metrics.jsonl").open()]
    at_end = [(4, event) for event in ("train", "dev", "dev_best", "dev_average")]
    assert [(r["step"], r["kind"]) for r in records] == [(2, "train"), *at_end]
    train, dev = records[1:3]
    assert train["learning_rate"] == pytest.approx(16**-0.5 * 4 * 10**-1.5)
    assert train["perplexity"] == pytest.approx(np.exp(train["nll"]))
    assert dev["perplexity"] == pytest.approx(np.exp(dev["nll"]))
    assert 0 <= train["minutes_left"] < 1
    assert list(trained_run.glob("tensorboard/train/events*"))


def test_without_dev_data_there_is_no_evaluation(tmp_path, monkeypatch):
    slow_disk(monkeypatch)
    replace_updates(monkeypatch)
    problem = small_data(tmp_path / "both")
    train_only = problem.replace(sources={"train": problem.sources["train"]})
    generate(train_only, tmp_path / "alone", workers=1)
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


def replace_updates_but(monkeypatch, skipped):
    """Replaces updates; those of some numbers, from 1, are skipped."""
    replace_updates(monkeypatch)
    apply = TrainStep.update

    def update(self, batch, step, learning_rate, dry_run=False):
        if dry_run or step + 1 not in skipped:
            result = apply(self, batch, step, learning_rate, dry_run)
            self.skipped_in_a_row.assign(0 if not dry_run else self.skipped_in_a_row)
            return result
        self.skipped_in_a_row.assign_add(1)
        return apply(self, batch, step, 0.0)._replace(skipped=tf.ones([]))

    monkeypatch.setattr(TrainStep, "update", update)


NONE_GOOD = "; there is no good checkpoint: start again in a new --output_dir"
ENDLESS = {
    # The steps that were skipped, the options, the error, what is kept and set aside.
    # 12 has the weights that update 10 has damaged; those of 8 led to updates 9, 10.
    "damaged in an interval": (
        *(range(11, 99), {"save_every": 4}),
        "step 60: .* in the last 50 updates, .*; the checkpoint of step 8 is good",
        *([4, 8], [12]),
    ),
    "damaged before a checkpoint": (
        *(range(13, 99), {"save_every": 4, "keep": 2}),
        "step 64: .* in the last 52 updates, .*; the checkpoint of step 8 is good",
        *([8], [12]),
    ),
    "damaged at first": (range(2, 99), {"save_every": 1}, NONE_GOOD, [], [1]),
    "never sound": (range(1, 99), {"save_every": 4}, NONE_GOOD, [], []),
    "pushed out": (range(5, 99), {"save_every": 4, "keep": 1}, NONE_GOOD, [], [4]),
    "at the end": (
        *(range(90, 99), {"save_every": 10}),
        "step 98: .* in the last 9 updates, .*; the checkpoint of step 80 is good",
        *([80], [90]),
    ),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_training_goes_back_to_weights_that_had_a_finite_loss(
    case, data_dir, tmp_path, monkeypatch, capfd
):
    skipped, options, message, good, bad = ENDLESS[case]
    replace_updates_but(monkeypatch, skipped)
    options = {"log_every": 999, "eval_every": 999, **options}
    training = trainer(data_dir, tmp_path, options=options, train_steps=98)
    sentence = refused(message, training.train)
    checkpoints = RunDirectory(tmp_path).checkpoints
    assert checkpoints.steps()[-1:] == good[-1:]
    assert set(good) <= {*checkpoints.steps()}
    assert checkpoints.steps("damaged.model.ckpt") == bad
    assert all(f"damaged.model.ckpt-{step}" in sentence for step in bad)
    # The way that the sentence shows is open.
    replace_updates_but(monkeypatch, ())
    capfd.readouterr()
    resumed = trainer(data_dir, tmp_path, options=options, train_steps=98).train()
    assert resumed["step"] == 98
    resumes = f"resuming from step {good[-1]} of 98" if good else ""
    assert resumes in (errors := capfd.readouterr().err)
    assert bool(good) == ("resuming" in errors)


class AfterStep(Hook):
    """Calls a function after a step."""

    def __init__(self, step, function):
        self.step = step
        self.function = function

    def on_step(self, step, interval):
        if step == self.step:
            self.function()


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("stopped_at", [None, 6, 8, 9])
def test_no_checkpoint_is_saved_while_updates_are_skipped(
    stopped_at, data_dir, tmp_path, monkeypatch
):
    """The checkpoints are the same wherever the training was stopped."""
    replace_updates_but(monkeypatch, (6, 7, 8, 11))
    options = {"save_every": 2, "average_last": 0}
    if stopped_at is not None:
        hooks = [AfterStep(stopped_at, interrupt)]
        stopped = trainer(
            data_dir, tmp_path, options=options, train_steps=12, hooks=hooks
        )
        assert stopped.train()["step"] == stopped_at
    training = trainer(data_dir, tmp_path, options=options, train_steps=12)
    assert training.train()["step"] == 12
    assert RunDirectory(tmp_path).checkpoints.steps() == [2, 4, 6, 10, 12]
    rates = [16**-0.5 * n * 10**-1.5 for n in range(1, 11)] + [16**-0.5 * 12**-0.5]
    total = sum(rates) - sum(rates[5:8])  # the sum of all but 6, 7, 8 and 11
    initial = trainer(data_dir, tmp_path / "new").model.softmax_embedding.table.numpy()
    final = weights(tmp_path, 12)["model/embedding/table"]
    np.testing.assert_allclose(final - initial, total, rtol=1e-5)


def test_a_damaged_checkpoint_is_skipped(data_dir, trained_run, tmp_path, capfd):
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
    assert RunDirectory(tmp_path / "run").checkpoints.steps("damaged.model.ckpt") == [4]
    for path in (tmp_path / "run").glob("model.ckpt-*.index"):
        path.write_bytes(b"")
    refused(r"model\.ckpt-1 cannot be read", resumed.train)


def test_a_disk_too_small_for_the_checkpoints_is_refused(
    data_dir, tmp_path, monkeypatch
):
    """Of four checkpoints two are kept, and one more is there while it is written."""
    replace_updates(monkeypatch)
    options = {"save_every": 1, "keep": 2}
    training = trainer(data_dir, tmp_path, options=options)
    num_params = training.model.count_params()
    # Weights, two moments and two counters of 64 bits; the best and the average.
    need = 3 * (3 * 4 * num_params + 2 * 8) + 2 * 4 * num_params
    for free, fits in ((need - 1, False), (need, True)):
        usage = types.SimpleNamespace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        if fits:
            assert training.train()["step"] == 4
        else:
            refused("checkpoints take .* with --keep N", training.train)


def test_checkpoints_by_the_clock(data_dir, tmp_path, monkeypatch):
    replace_updates(monkeypatch)
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
    replace_updates(monkeypatch)
    training = trainer(data_dir, tmp_path, hooks=[AfterStep(3, lambda: 1 / 0)])
    with pytest.raises(ZeroDivisionError):
        training.train()
    assert RunDirectory(tmp_path).checkpoints.steps() == [2]


@pytest.fixture
def undisturbed(data_dir, tmp_path, monkeypatch):
    """A run of four replaced updates, of which the second and the last are saved."""
    replace_updates(monkeypatch)
    trainer(data_dir, tmp_path / "undisturbed").train()
    return tmp_path / "undisturbed"


class Failing(Hook):
    """Fails in the evaluation after step 3, as a metric of a user may."""

    def evaluate(self, step, reporter):
        assert step != 3, "a fault in a metric"
        return {}


def test_an_evaluation_that_fails_loses_no_step(data_dir, undisturbed, tmp_path):
    options = {"save_every": 2, "eval_every": 1, "average_last": 0}
    hooks = [Failing()]
    training = trainer(data_dir, tmp_path / "run", options=options, hooks=hooks)
    with pytest.raises(AssertionError, match="a fault in a metric"):
        training.train()
    checkpoints = RunDirectory(tmp_path / "run").checkpoints
    assert checkpoints.steps() == [2, 3]
    trainer(data_dir, tmp_path / "run", options=options).train()
    assert_same(weights(tmp_path / "run"), weights(undisturbed))


class SignalAtEnd(Hook):
    def evaluate_at_end(self, step, reporter):
        signal.raise_signal(signal.SIGINT)


def test_a_run_stopped_by_a_signal_loses_no_step(data_dir, undisturbed, tmp_path):
    options = {"save_every": 2, "eval_every": 1}
    hooks = [AfterStep(3, interrupt)]
    training = trainer(data_dir, tmp_path / "a", options=options, hooks=hooks)
    figures = training.train()
    assert (figures["step"], figures["stopped_by"]) == (3, "SIGINT")
    assert figures["loss"] > 0
    assert "dev_average" not in figures  # there is no time for it
    assert RunDirectory(tmp_path / "a").checkpoints.steps() == [2, 3]

    training = trainer(data_dir, tmp_path / "a", options=options)
    training._hooks.insert(0, SignalAtEnd())
    figures = training.train()
    assert (figures["step"], figures["stopped_by"]) == (4, "SIGINT")
    assert "dev_average" not in figures

    finished = trainer(data_dir, tmp_path / "a", options=options).train()
    assert finished["stopped_by"] == "train_steps"
    assert_same(weights(tmp_path / "a"), weights(undisturbed))

    # The average is that of an undisturbed run, without the signal's checkpoint.
    assert finished["dev_average"]["checkpoints"] == 2
    average = Checkpoint(average_run(tmp_path / "a", 2))
    weights_at_2 = weights(undisturbed, 2)
    weights_at_4 = weights(undisturbed, 4)
    for name in average.shapes.keys() - {"step"}:
        mean = (np.float64(weights_at_2[name]) + weights_at_4[name]) / 2
        np.testing.assert_array_equal(average.tensor(name), mean.astype(np.float32))

    # Each step was evaluated once, also the one at which the signal came.
    def evaluated(run):
        records = map(json.loads, (run / "metrics.jsonl").open())
        return [(r["step"], r["nll"]) for r in records if r["kind"] == "dev"]

    resumed = evaluated(tmp_path / "a")
    assert [step for step, _ in resumed] == [1, 2, 3, 4]
    assert resumed[3:] == evaluated(undisturbed)


class Killed(BaseException):
    """Ends a training as SIGKILL does."""


class KilledAtEnd(Hook):
    def evaluate_at_end(self, step, reporter):
        raise Killed


@pytest.mark.parametrize("has_dev", [True, False])
def test_a_training_killed_in_its_last_evaluations_is_recorded_once(
    has_dev, tmp_path, monkeypatch, capfd
):
    replace_updates(monkeypatch)
    problem = small_data(tmp_path / "data")
    if not has_dev:
        problem = problem.replace(sources={"train": problem.sources["train"]})
    generate(problem, tmp_path / "new_data", workers=1)

    def started(name, *hooks):
        return trainer(tmp_path / "new_data", tmp_path / name, hooks=hooks)

    def log(kind):
        return (tmp_path / "killed" / kind).read_text().splitlines()

    undisturbed = started("undisturbed").train()
    assert ("there are no dev data" in capfd.readouterr().err) != has_dev
    training = started("killed", KilledAtEnd())
    with pytest.raises(Killed):
        training.train()
    assert not (tmp_path / "killed" / "history.jsonl").exists()
    results = [started("killed").train()]
    events = [e for e in map(json.loads, log("history.jsonl")) if "results" in e]
    assert [(e["first_step"], e["last_step"], e["stopped_by"]) for e in events] == [
        (4, 4, "train_steps")
    ]
    expected = {k: v for k, v in undisturbed.items() if k.startswith("dev_")}
    assert bool(expected) == has_dev and events[0]["results"] == expected
    logs = log("history.jsonl"), log("metrics.jsonl")
    for _ in range(2):
        results.append(started("killed").train())
        assert (log("history.jsonl"), log("metrics.jsonl")) == logs
    assert results[0] == results[1] == results[2]
    assert "those of the end of the training" in capfd.readouterr().err


def test_early_stopping_keeps_the_best_and_remains_stopped(
    data_dir, tmp_path, monkeypatch, capfd
):
    replace_updates(monkeypatch)  # which do not train: the first is the best
    hparams = {"learning_rate": 5.0, "warmup_steps": 1, "train_steps": 50}
    options = {"eval_every": 1, "patience": 2, "save_every": 100, "keep": 1}
    figures = trainer(data_dir, tmp_path, options=options, **hparams).train()
    assert figures["stopped_by"] == "patience"
    best = figures["dev_best"]
    assert figures["step"] == best["step"] + 2 < 50
    assert figures["dev_nll"] > best["nll"]
    run = RunDirectory(tmp_path)
    assert Checkpoint(run.checkpoints.find("best")).step == best["step"]
    assert run.checkpoints.steps() == [figures["step"]]

    # Its results are those of the record, and nothing is evaluated again.
    evaluations = (tmp_path / "metrics.jsonl").read_bytes()
    capfd.readouterr()
    restarted = trainer(data_dir, tmp_path, options=options, **hparams).train()
    assert "the results are those of the end of the training" in capfd.readouterr().err
    assert restarted == {k: v for k, v in figures.items() if k in restarted}
    assert vars(TrainResult(**restarted)).items() >= restarted.items()
    assert {"loss", "dev_nll", "dev_best"} <= restarted.keys()
    assert (tmp_path / "metrics.jsonl").read_bytes() == evaluations


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


class Devices:
    """A strategy, as far as its devices are concerned."""

    def __init__(self, *names):
        self.extended = types.SimpleNamespace(worker_devices=names)


@pytest.mark.parametrize(
    ("capabilities", "dtype", "device", "is_advised"),
    [
        ([(8, 0), (9, 0)], "float32", "GPU", True),
        ([(8, 0), (9, 0)], "bfloat16", "GPU", False),
        ([(9, 0), (7, 5)], "float32", "GPU", False),  # the T4 computes it in float32
        ([], "float32", "CPU", False),
    ],
)
def test_bfloat16_is_recommended_from_the_a100_on(
    monkeypatch, capabilities, dtype, device, is_advised
):
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda _: list(range(len(capabilities)))
    )
    monkeypatch.setattr(
        tf.config.experimental,
        "get_device_details",
        lambda gpu: {"compute_capability": capabilities[gpu]},
    )
    text = dtype_advice(Devices(f"/device:{device}:0"), HParams(compute_dtype=dtype))
    assert ("--hparams compute_dtype=bfloat16" in text) == is_advised
    assert bool(text) == is_advised


def test_compilation_is_announced(monkeypatch):
    hparams = HParams(bucketing="static", jit_compile=True)
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_persistent_cache_directory=/cache")
    assert compilation_notice(hparams).endswith("batch, once, and kept in /cache")
    monkeypatch.setenv("TF_XLA_FLAGS", "")
    assert compilation_notice(hparams).endswith("batch, at every start")
    assert not compilation_notice(hparams.override(jit_compile=False))


@pytest.mark.slow
def test_bfloat16_reaches_the_loss_of_float32(data_dir, tmp_path):
    """On the same 500 batches, with the same dropout."""
    size = {"num_layers": 2, "d_model": 64, "d_ff": 128, "num_heads": 4}
    options = {"log_every": 100, "save_every": 500, "eval_every": 500}
    losses = []
    for dtype in ("float32", "bfloat16"):
        run = trainer(
            data_dir,
            tmp_path / dtype,
            options=options,
            compute_dtype=dtype,
            train_steps=500,
            warmup_steps=200,
            learning_rate=0.25,  # at 1, the losses of float32 fluctuate by 2%
            **size,
        )
        losses.append(run.train()["loss"])
    assert losses[1] != losses[0]  # it does round
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
