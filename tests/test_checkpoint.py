"""Checkpoints and their averages on disk."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs.average import average_run
from t2t_keras.runs.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    model_variables,
    write_checkpoint,
)

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


def test_documented_names_do_not_depend_on_python_attributes():
    hparams = HParams(num_layers=1, d_model=8, d_ff=16, num_heads=2)
    names = set(model_variables(Transformer(hparams, 11, name="another")))
    norms = {
        f"{stack}/layer_0/{sublayer}_residual/norm/{parameter}"
        for stack, sublayer in [
            ("encoder", "self_attention"),
            ("encoder", "feed_forward"),
            ("decoder", "self_attention"),
            ("decoder", "cross_attention"),
            ("decoder", "feed_forward"),
        ]
        for parameter in ("gamma", "beta")
    }
    others = {"embedding/table"}
    for stack in ("encoder/layer_0", "decoder/layer_0"):
        others |= {
            f"{stack}/self_attention/query_key_value/kernel",
            f"{stack}/self_attention/output/kernel",
            f"{stack}/feed_forward/inner/kernel",
            f"{stack}/feed_forward/inner/bias",
            f"{stack}/feed_forward/outer/kernel",
            f"{stack}/feed_forward/outer/bias",
        }
    cross = "decoder/layer_0/cross_attention"
    others |= {f"{cross}/{name}/kernel" for name in ("query", "key_value", "output")}
    assert names == {f"model/{name}" for name in norms | others}


def test_what_is_written_is_read_back_by_tensorflow_itself(tmp_path):
    saved(tmp_path, 5)
    reader = tf.train.load_checkpoint(str(tmp_path / "model.ckpt-5"))
    np.testing.assert_array_equal(reader.get_tensor("model/b"), [50.0] * 4)
    assert reader.get_tensor("step") == 5


def test_only_the_newest_are_kept(tmp_path):
    assert saved(tmp_path, 1, 2, 10, 11, keep=2).steps() == [10, 11]
    assert len(list(tmp_path.iterdir())) == 4


def test_the_best_one_is_not_among_them(tmp_path):
    checkpoints = saved(tmp_path, 1, 2)
    for step in (1, 7, 4):  # 7 was of a process that was killed
        checkpoints.save_best(step, tensors(step, float(step)))
    checkpoints.save(8, tensors(8, 8.0), keep=1)
    assert checkpoints.steps() == [8]
    assert checkpoints.steps("best.ckpt") == [4]
    assert Checkpoint(checkpoints.find("best")).step == 4
    assert checkpoints.find().name == "model.ckpt-8"


def test_a_half_written_checkpoint_is_none(tmp_path):
    checkpoints = saved(tmp_path, 1, 2)
    (tmp_path / "model.ckpt-2.index").unlink()  # killed before the index
    (tmp_path / "incomplete.model.ckpt-3.index").write_bytes(b"half")
    assert checkpoints.steps() == [1]
    assert Checkpoint(checkpoints.find()).step == 1


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
    average_run(tmp_path, last=2)
    assert checkpoints.find().name == "average.ckpt-2"
    assert checkpoints.find("latest").name == "model.ckpt-2"
    checkpoints.save(3, tensors(3, 3.0), keep=9)
    assert checkpoints.find().name == "model.ckpt-3"  # newer than the average
    assert checkpoints.find("average").name == "average.ckpt-2"
    with pytest.raises(UserError, match="checkpoints at steps: 1, 2, 3"):
        checkpoints.find("7")
    with pytest.raises(UserError, match="has no best checkpoint"):
        checkpoints.find("best")


def test_restore_names_what_does_not_fit(tmp_path):
    saved(tmp_path, 1)
    checkpoint = Checkpoint(tmp_path / "model.ckpt-1")
    variable = tf.Variable(tf.zeros([2, 3]))
    checkpoint.restore({"model/a": variable})
    np.testing.assert_array_equal(variable.numpy(), np.ones([2, 3]))
    with pytest.raises(UserError, match="has no tensor 'model/c'"):
        checkpoint.restore({"model/c": variable})
    with pytest.raises(UserError, match=r"'model/b' has shape \[4\], the model's"):
        checkpoint.restore({"model/b": variable})


def test_average_is_the_mean_and_has_no_optimizer(tmp_path):
    saved(tmp_path, 1, 2, 6)
    path = average_run(tmp_path, last=2)
    average = Checkpoint(path)
    assert (path.name, average.step) == ("average.ckpt-6", 6)
    np.testing.assert_array_equal(average.tensor("model/a"), np.full([2, 3], 4.0))
    assert set(average.shapes) == {"step", "model/a", "model/b"}


def test_average_by_minutes(tmp_path):
    saved(tmp_path, 1, 2, 6)
    for step, minutes in ((1, 30), (2, 12), (6, 3)):
        index = tmp_path / f"model.ckpt-{step}.index"
        os.utime(index, (1e9 - 60 * minutes, 1e9 - 60 * minutes))
    path = average_run(tmp_path, minutes=10)  # 12 is 9 minutes before 3
    np.testing.assert_array_equal(Checkpoint(path).tensor("model/b"), [40.0] * 4)


def test_average_takes_the_memory_of_one_model(tmp_path):
    status = Path("/proc/self/status")
    if not status.exists():
        pytest.skip("needs Linux's /proc to measure memory")

    def megabytes(field: str) -> float:
        return int(re.search(rf"{field}:\s+(\d+) kB", status.read_text())[1]) / 1000

    model = {f"model/{i}": tf.fill([1 << 20], float(i)) for i in range(12)}  # 50 MB
    paths = [tmp_path / f"model.ckpt-{step}" for step in range(6)]
    for step, path in enumerate(paths):
        write_checkpoint(path, {"step": tf.constant(step, tf.int64), **model})
    del model
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what there is
    before = megabytes("VmRSS")
    average_run(tmp_path, last=6)
    assert megabytes("VmHWM") - before < 2 * 50
    average = Checkpoint(tmp_path / "average.ckpt-5")
    assert average.tensor("model/11").mean() == 11


def test_average_errors(tmp_path):
    with pytest.raises(UserError, match="has no checkpoint"):
        average_run(tmp_path, minutes=10)
    saved(tmp_path, 1)
    with pytest.raises(UserError, match=r"--last 2: .* has 1 checkpoints"):
        average_run(tmp_path, last=2)
    write_checkpoint(tmp_path / "model.ckpt-2", tensors(2, 1.0, shape=(3, 3)))
    with pytest.raises(UserError, match="'model/a' is not the same in both"):
        average_run(tmp_path, last=2)
    assert not (tmp_path / "average.ckpt-2.index").exists()


def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write checkpoint .*ckpt-1: "):
        write_checkpoint(tmp_path / "file" / "model.ckpt-1", tensors(1, 1.0))
