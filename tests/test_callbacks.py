"""Keras callbacks in a training."""

import csv
import json
import sys

import keras
import pytest
from command_line import run, run_json
from small_run import assert_same, trainer, weights

from t2t_keras import UserError


class Recorder(keras.callbacks.Callback):
    """Notes every call: method, number, logs, and what the optimizer shows."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def _note(self, method, number, logs):
        shown = int(self.model.optimizer.iterations)
        self.calls.append((method, number, dict(logs or {}), shown))

    def on_train_begin(self, logs=None):
        self._note("train_begin", None, logs)

    def on_epoch_begin(self, epoch, logs=None):
        self._note("epoch_begin", epoch, logs)

    def on_train_batch_end(self, batch, logs=None):
        self._note("batch_end", batch, logs)

    def on_test_end(self, logs=None):
        self._note("test_end", None, logs)

    def on_epoch_end(self, epoch, logs=None):
        self._note("epoch_end", epoch, logs)

    def on_train_end(self, logs=None):
        self._note("train_end", None, logs)


def metrics(run_dir):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def logs_of(record):
    return {k: v for k, v in record.items() if k not in ("step", "kind")}


def test_callbacks_get_the_records_in_keras_order(data_dir, tmp_path):
    recorder = Recorder()
    options = {"log_every": 2, "eval_every": 4}
    training = trainer(
        data_dir, tmp_path, train_steps=6, options=options, callbacks=[recorder]
    )
    training.train()
    calls = [(method, number, step) for method, number, _, step in recorder.calls]
    assert calls == [
        ("train_begin", None, 0),
        ("epoch_begin", 0, 2),
        ("batch_end", 1, 2),
        ("batch_end", 3, 4),
        ("test_end", None, 4),
        ("epoch_end", 0, 4),
        ("epoch_begin", 1, 6),
        ("batch_end", 5, 6),
        ("test_end", None, 6),
        ("epoch_end", 1, 6),
        ("train_end", None, 6),
    ]
    logs = {}
    for method, _, given, step in recorder.calls:
        logs[method, step] = given
    written = {(x["kind"], x["step"]): logs_of(x) for x in metrics(tmp_path)}
    for step in 4, 6:
        dev = written["dev", step]
        assert logs["batch_end", step] == written["train", step]
        assert logs["test_end", step] == dev
        of_dev = {f"val_{name}": value for name, value in dev.items()}
        assert logs["epoch_end", step] == written["train", step] | of_dev
    average = written["dev_average", 6]["loss"]
    assert logs["train_end", 6]["dev_average_loss"] == average


def test_keras_own_callbacks_work(data_dir, tmp_path):
    board = keras.callbacks.TensorBoard(tmp_path / "board", write_graph=False)
    table = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    never = keras.callbacks.EarlyStopping("val_loss", min_delta=100.0, patience=1)
    training = trainer(
        data_dir,
        tmp_path / "run",
        train_steps=8,
        options={"eval_every": 2},
        callbacks=[board, table, never],
    )
    result = training.train()
    assert (result["stopped_by"], result["step"]) == ("callback", 4)
    with (tmp_path / "log.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = [float(row["val_loss"]) for row in rows]
    kinds = [x for x in metrics(tmp_path / "run") if x["kind"] == "dev"]
    assert found == [x["loss"] for x in kinds]
    assert list((tmp_path / "board").rglob("events.*"))


def test_mlflow_callback_works(data_dir, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"file://{tmp_path}/mlruns")
    with mlflow.start_run() as active:
        callback = mlflow.keras.MlflowCallback(active)
        options = {"eval_every": 2}
        trainer(
            data_dir, tmp_path / "run", options=options, callbacks=[callback]
        ).train()
    mlflow.flush_async_logging()
    client = mlflow.MlflowClient()
    history = client.get_metric_history(active.info.run_id, "val_loss")
    dev = [x["loss"] for x in metrics(tmp_path / "run") if x["kind"] == "dev"]
    assert [x.value for x in sorted(history, key=lambda x: x.step)] == dev
    assert client.get_run(active.info.run_id).data.params["optimizer_beta_2"]


class StopAt(keras.callbacks.Callback):
    def __init__(self, batch):
        super().__init__()
        self.batch = batch

    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training = batch == self.batch


def test_a_stopped_training_resumes_exactly(data_dir, tmp_path):
    stopped = trainer(data_dir, tmp_path / "a", callbacks=[StopAt(1)]).train()
    assert (stopped["stopped_by"], stopped["step"]) == ("callback", 2)
    resumed = trainer(data_dir, tmp_path / "a", callbacks=[Recorder()]).train()
    assert resumed["step"] == 4
    trainer(data_dir, tmp_path / "b").train()
    assert_same(weights(tmp_path / "a"), weights(tmp_path / "b"))


class Broken(keras.callbacks.Callback):
    def on_test_end(self, logs=None):
        raise KeyError("missing")


@pytest.mark.parametrize(
    "callback, message",
    [
        (Broken(), r"callback Broken: on_test_end: KeyError: 'missing'"),
        (
            keras.callbacks.LearningRateScheduler(lambda epoch: 0.5),
            "callback LearningRateScheduler: it sets the learning rate",
        ),
    ],
)
def test_a_callback_that_fails_is_named(callback, message, data_dir, tmp_path):
    training = trainer(data_dir, tmp_path, callbacks=[callback])
    with pytest.raises(UserError, match=message):
        training.train()


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
    assert run(*command, "--callbacks", "my_callbacks:one") == 2
    assert "my_callbacks:one: it must return a list" in capfd.readouterr().err
    assert run(*command, "--callbacks", "my_callbacks:none") == 2
    message = "--callbacks my_callbacks:none: AttributeError"
    assert message in capfd.readouterr().err
    run_json(capfd, *command, "--callbacks", "my_callbacks:notes")
    assert "val_loss" in (tmp_path / "noted").read_text()
