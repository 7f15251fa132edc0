"""Keras callbacks in a training."""

import csv
import functools
import json
import sys

import keras
import pytest
from helpers.command_line import run_json, run_refused
from helpers.errors import refused
from helpers.small_run import assert_same, replace_updates, trainer, weights

from t2t_keras import HParams
from t2t_keras.training.callbacks import Callbacks


class Recorder(keras.callbacks.Callback):
    """Notes every call: method, number, logs, and what the optimizer shows."""

    def __init__(self):
        super().__init__()
        self.calls = []
        numbered = ("epoch_begin", "train_batch_end", "epoch_end")
        for name in (*numbered, "train_begin", "test_end", "train_end"):
            note = functools.partial(self._note, name)
            if name not in numbered:
                note = functools.partial(note, None)
            setattr(self, f"on_{name}", note)

    def _note(self, method, index, logs=None):
        shown = int(self.model.optimizer.iterations)
        self.calls.append((method, index, dict(logs or {}), shown))


def metrics(run_dir):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def recorded(data_dir, tmp_path_factory):
    """A callback that noted a run of six steps, and its directory."""
    recorder = Recorder()
    path = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        replace_updates(patch)
        trainer(data_dir, path, train_steps=6, callbacks=[recorder]).train()
    return recorder, path


def test_callbacks_get_the_records_in_keras_order(recorded):
    recorder, path = recorded
    calls = [(method, index, step) for method, index, _, step in recorder.calls]
    assert calls == [
        *(("train_begin", None, 0), ("epoch_begin", 0, 2), ("train_batch_end", 1, 2)),
        *(("train_batch_end", 3, 4), ("test_end", None, 4), ("epoch_end", 0, 4)),
        *(("epoch_begin", 1, 6), ("train_batch_end", 5, 6), ("test_end", None, 6)),
        *(("epoch_end", 1, 6), ("train_end", None, 6)),
    ]
    logs = {(method, step): call_logs for method, _, call_logs, step in recorder.calls}
    written = {(x.pop("kind"), x.pop("step")): x for x in metrics(path)}
    assert all(written["train", step].pop("epoch") > 0 for step in (2, 4, 6))
    for step in 4, 6:
        dev = written["dev", step]
        assert logs["train_batch_end", step] == written["train", step]
        assert logs["test_end", step] == dev
        of_dev = {f"val_{name}": value for name, value in dev.items()}
        of_dev["val_loss"] = dev["nll"]  # what Keras's callbacks watch
        assert logs["epoch_end", step] == written["train", step] | of_dev
    average = written["dev_average", 6]["nll"]
    assert logs["train_end", 6]["dev_average_nll"] == average


def test_keras_own_callbacks_work(data_dir, tmp_path, recorded, monkeypatch):
    replace_updates(monkeypatch)
    board = keras.callbacks.TensorBoard(tmp_path / "board", write_graph=False)
    table = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    saving = keras.callbacks.ModelCheckpoint(f"{tmp_path}/{{epoch}}.weights.h5")
    never = keras.callbacks.EarlyStopping("val_loss", min_delta=100.0, patience=1)
    options = {"train_steps": 6, "options": {"eval_every": 2}}
    callbacks = [board, table, saving, never]
    run = tmp_path / "run"
    result = trainer(data_dir, run, callbacks=callbacks, **options).train()
    assert (result["stopped_by"], result["step"]) == ("callback", 4)
    with (tmp_path / "log.csv").open() as file:
        rows = [(row["epoch"], float(row["val_loss"])) for row in csv.DictReader(file)]
    losses = [x["nll"] for x in metrics(run) if x["kind"] == "dev"]
    assert rows == [("0", losses[0]), ("1", losses[1])]
    assert {x.name for x in tmp_path.glob("*.h5")} == {"1.weights.h5", "2.weights.h5"}
    assert list((tmp_path / "board").rglob("events.*"))
    # It resumes as if it had never stopped.
    assert trainer(data_dir, run, **options).train()["step"] == 6
    assert_same(weights(run, 6), weights(recorded[1], 6))


def test_epochs_end_without_dev():
    """Even if there is no report at their last step."""
    recorder = Recorder()
    calls = Callbacks([recorder], keras.Model(), HParams(), 3, has_dev=False)
    for step in range(2, 10, 2):
        calls.on_report(step, {"learning_rate": 0.0})
    epochs = [(name, epoch) for name, epoch, *_ in recorder.calls if "epoch" in name]
    begun = [("epoch_begin", 0), ("epoch_end", 0), ("epoch_begin", 1), ("epoch_end", 1)]
    assert epochs == [*begun, ("epoch_begin", 2)]


@pytest.mark.slow
def test_mlflow_callback_works(data_dir, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"file://{tmp_path}/mlruns")
    with mlflow.start_run() as active:
        callbacks = [mlflow.keras.MlflowCallback(active)]
        trainer(data_dir, tmp_path / "run", callbacks=callbacks).train()
    mlflow.flush_async_logging()
    client = mlflow.MlflowClient()
    history = client.get_metric_history(active.info.run_id, "val_loss")
    dev = [x["nll"] for x in metrics(tmp_path / "run") if x["kind"] == "dev"]
    assert [x.value for x in history] == dev
    assert client.get_run(active.info.run_id).data.params["optimizer_beta_2"]


@pytest.mark.slow
def test_weights_and_biases_callback_works(data_dir, tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="needs `pip install wandb`")
    from wandb.integration.keras import WandbMetricsLogger

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(dir=tmp_path, project="translation") as active:
        callbacks = [WandbMetricsLogger()]
        trainer(data_dir, tmp_path / "run", callbacks=callbacks).train()
        summary = dict(active.summary)
    records = {x["kind"]: x for x in metrics(tmp_path / "run")}
    assert summary["epoch/val_loss"] == records["dev"]["nll"]
    assert summary["epoch/loss"] == records["train"]["loss"]
    rate = records["train"]["learning_rate"]
    assert summary["epoch/learning_rate"] == pytest.approx(rate)
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))


class Broken(keras.callbacks.Callback):
    def on_test_end(self, logs=None):
        raise KeyError("missing")


@pytest.mark.parametrize(
    "callback, message",
    [
        (Broken(), r"Broken: on_test_end: KeyError: 'missing'"),
        (
            keras.callbacks.LearningRateScheduler(lambda epoch: 0.5),
            "LearningRateScheduler: it sets the learning rate",
        ),
    ],
)
def test_a_callback_that_fails_is_named(
    callback, message, data_dir, tmp_path, monkeypatch
):
    replace_updates(monkeypatch)
    training = trainer(data_dir, tmp_path, callbacks=[callback])
    refused(f"callback {message}", training.train)


USER = """
import keras

class Note(keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        open("{file}", "w").write(str(sorted(logs)))

def notes():
    return [Note()]

def one():
    return Note()
"""


def test_callbacks_from_a_users_directory(data_dir, tmp_path, capfd, monkeypatch):
    replace_updates(monkeypatch)
    folder = tmp_path / "usr"
    folder.mkdir()
    (folder / "my_callbacks.py").write_text(USER.format(file=tmp_path / "noted"))
    monkeypatch.delitem(sys.modules, "my_callbacks", raising=False)
    tiny = "num_layers=1,d_model=16,d_ff=16,num_heads=2,batch_tokens=256,train_steps=1"
    command = [
        *("train", "--problem", "translate_text", "--hparams_set", "tiny"),
        *("--data_dir", data_dir, "--output_dir", tmp_path / "run"),
        *("--hparams", tiny, "--usr_dir", folder, "--eval_sentences", "0"),
    ]
    command += ["--callbacks"]
    factory = "my_callbacks:one"
    missing = "my_callbacks:none"
    assert f"{factory}: it must return a list" in run_refused(capfd, *command, factory)
    assert f"--callbacks {missing}: Attribute" in run_refused(capfd, *command, missing)
    run_json(capfd, *command, "my_callbacks:notes")
    assert "val_loss" in (tmp_path / "noted").read_text()
