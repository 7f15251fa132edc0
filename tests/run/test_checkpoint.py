"""Checkpoints and their averages on disk."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf
from helpers.errors import refused

from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.run import checkpoint as module
from t2t_keras.run.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    average_run,
    write_checkpoint,
)
from t2t_keras.training.optimizer import Adam

DATA = ".data-00000-of-00001"


def tensors(step: int, value: float, shape=(2, 3)) -> dict[str, tf.Tensor]:
    return {
        "step": tf.constant(step, tf.int64),
        "model/a": tf.fill(shape, value),
        "model/b": tf.fill([4], value * 10),
        "adam/m/a": tf.fill(shape, 7.0),
    }


def saved(directory, *steps: int, keep: int = 20) -> CheckpointDirectory:
    checkpoints = CheckpointDirectory(directory)
    for step in steps:
        checkpoints.save(step, tensors(step, float(step)), keep)
    return checkpoints


def test_what_is_written_is_read_back_by_tensorflow_itself(tmp_path):
    saved(tmp_path, 5)
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-5"))
    np.testing.assert_array_equal(reader.get_tensor("model/b"), [50.0] * 4)
    assert reader.get_tensor("step") == 5


def test_the_newest_are_kept_and_the_best(tmp_path):
    checkpoints = saved(tmp_path, 1, 2, 10, 11, keep=2)
    for step in (1, 7, 4):  # 7 was of a process that was killed
        checkpoints.save_best(step, tensors(step, float(step)))
    assert checkpoints.steps() == [10, 11]
    assert checkpoints.steps("best.ckpt") == [4]
    assert len(list(tmp_path.iterdir())) == 6
    (tmp_path / "model.ckpt-11.index").unlink()  # killed before the index
    (tmp_path / "incomplete.model.ckpt-12.index").write_bytes(b"half")
    assert checkpoints.steps() == [10]
    assert Checkpoint(checkpoints.find()).step == 10


@pytest.mark.parametrize(("suffix", "size"), [(".index", 0), (DATA, 10)])
def test_a_damaged_checkpoint_is_named(tmp_path, suffix, size):
    saved(tmp_path, 1)
    file = tmp_path / f"model.ckpt-1{suffix}"
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(UserError, match=r"model\.ckpt-1 cannot be read \(.*remove its"):
        Checkpoint(tmp_path / "model.ckpt-1").tensor("model/b")


def test_find(tmp_path):
    checkpoints = saved(tmp_path, 1, 2)
    assert checkpoints.find().name == "model.ckpt-2"
    assert checkpoints.find("1").name == "model.ckpt-1"
    for name in ("model.ckpt-1", "model.ckpt-1.index", f"{checkpoints.find(1)}.index"):
        assert checkpoints.find(name) == checkpoints.find(1)
    average_run(tmp_path, count=2)
    assert checkpoints.find().name == "average.ckpt-2"
    assert checkpoints.find("latest").name == "model.ckpt-2"
    checkpoints.save(3, tensors(3, 3.0), keep=9)
    assert checkpoints.find().name == "model.ckpt-3"  # newer than the average
    assert checkpoints.find("average").name == "average.ckpt-2"
    refused("checkpoints at steps: 1, 2, 3", checkpoints.find, "7")
    refused("has no best checkpoint", checkpoints.find, "best")


def test_restore_names_what_does_not_fit(tmp_path):
    saved(tmp_path, 1)
    checkpoint = Checkpoint(tmp_path / "model.ckpt-1")
    variable = tf.Variable(tf.zeros([2, 3]))
    checkpoint.restore({"model/a": variable})
    np.testing.assert_array_equal(variable.numpy(), np.ones([2, 3]))
    refused("has no tensor 'model/c'", checkpoint.restore, {"model/c": variable})
    message = r"'model/b' has shape \[4\], the model's"
    refused(message, checkpoint.restore, {"model/b": variable})


def test_average_is_the_mean_and_has_no_optimizer(tmp_path):
    saved(tmp_path, 1, 2, 6)
    path = average_run(tmp_path, count=2)
    average = Checkpoint(path)
    assert (path.name, average.step) == ("average.ckpt-6", 6)
    np.testing.assert_array_equal(average.tensor("model/a"), np.full([2, 3], 4.0))
    assert set(average.shapes) == {"step", "model/a", "model/b"}


def test_average_errors(tmp_path):
    refused(r"--last 1: .* has 0 checkpoints", average_run, tmp_path, count=1)
    saved(tmp_path, 1)
    refused(r"--last 2: .* has 1 checkpoint$", average_run, tmp_path, count=2)
    write_checkpoint(tmp_path / "model.ckpt-2", tensors(2, 1.0, shape=(3, 3)))
    refused("'model/a' is not the same in both", average_run, tmp_path, count=2)
    assert not (tmp_path / "average.ckpt-2.index").exists()


# In another thread


@pytest.fixture
def held_writes(monkeypatch):
    """An event, without which no checkpoint is written."""
    event = threading.Event()
    write = module.write_checkpoint

    def write_later(path, tensors):
        assert event.wait(60)
        write(path, tensors)

    monkeypatch.setattr(module, "write_checkpoint", write_later)
    yield event
    event.set()


def test_updates_do_not_change_what_is_being_saved(tmp_path, held_writes):
    """By all operations that update variables here."""
    names = ("adam", "added", "assigned")
    variables = {name: tf.Variable(tf.fill([5, 3], 1.0)) for name in names}
    adam = Adam({"model/adam": variables["adam"]}, HParams())
    checkpoints = CheckpointDirectory(tmp_path)
    checkpoints.start_saving(1, variables, keep=2)

    @tf.function
    def update():
        ones = tf.ones([5, 3])
        added, assigned = (variables[name].handle for name in names[1:])
        adam.apply([ones], tf.constant(1.0), tf.constant(1.0), tf.constant(True))
        tf.raw_ops.AssignAddVariableOp(resource=added, value=ones)
        tf.raw_ops.AssignVariableOp(resource=assigned, value=2 * ones)

    update()
    assert all(variable.numpy().max() != 1.0 for variable in variables.values())
    held_writes.set()
    checkpoints.wait()
    saved = Checkpoint(tmp_path / "model.ckpt-1")
    for name in names:
        np.testing.assert_array_equal(saved.tensor(name), np.ones([5, 3]))


def test_one_checkpoint_is_written_at_a_time(tmp_path, monkeypatch):
    one_writes = threading.Lock()
    write = module.write_checkpoint

    def write_slowly(path, tensors):
        assert one_writes.acquire(blocking=False)
        time.sleep(0.05)
        write(path, tensors)
        one_writes.release()

    monkeypatch.setattr(module, "write_checkpoint", write_slowly)
    checkpoints = CheckpointDirectory(tmp_path)
    with checkpoints.awaited():
        for step in (1, 2, 3):
            checkpoints.start_saving(step, {"x": tf.Variable(float(step))}, keep=2)
            assert checkpoints.steps() == [1, 2][: step - 1]
        checkpoints.save_best(3, tensors(3, 1.0))
        assert checkpoints.steps() == [2, 3]
        checkpoints.start_saving(4, {"x": tf.Variable(4.0)}, keep=2)
    assert checkpoints.steps() == [3, 4]
    assert Checkpoint(checkpoints.find("latest")).tensor("x") == 4.0


def test_an_error_is_raised_where_training_waits(tmp_path):
    (tmp_path / "file").write_text("")
    checkpoints = CheckpointDirectory(tmp_path / "file")
    variables = {"x": tf.Variable(1.0)}
    checkpoints.raise_error()
    checkpoints.start_saving(1, variables, keep=2)
    for wait in (
        checkpoints.wait,
        checkpoints.raise_error,
        lambda: checkpoints.start_saving(2, variables, keep=2),
        lambda: checkpoints.save_best(1, {}),
        checkpoints.awaited()(lambda: None),  # a block without an error
    ):
        refused(r"cannot write checkpoint .*ckpt-1: ", wait)
    with pytest.raises(KeyError), checkpoints.awaited():
        raise KeyError  # what has ended training first
