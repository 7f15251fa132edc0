"""TensorBoard draws training and dev as two curves of the same charts."""

import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from t2t_keras.training.metrics_files import TensorBoard


def curves(folder):
    events = EventAccumulator(str(folder)).Reload()
    curves = {}
    for tag in events.Tags()["tensors"]:
        curves[tag] = [
            (event.step, float(tf.make_ndarray(event.tensor_proto)))
            for event in events.Tensors(tag)
        ]
    return curves


def test_losses_of_the_same_meaning_are_in_one_chart(tmp_path):
    board = TensorBoard(tmp_path)
    board.on_report(1, {"loss": 5.0, "nll": 4.0, "steps_per_s": 2.0, "skipped": 1.0})
    board.on_report(2, {"loss": 3.0, "nll": 2.0})
    board.on_eval(2, "dev", {"nll": 2.5, "accuracy": 0.5, "bleu": 7.0})
    board.close()
    assert curves(tmp_path / "tensorboard" / "train") == {
        "loss/smoothed_loss": [(1, 5.0), (2, 3.0)],
        "loss/nll": [(1, 4.0), (2, 2.0)],
        "speed/steps_per_s": [(1, 2.0)],
        "training/skipped": [(1, 1.0)],
    }
    assert curves(tmp_path / "tensorboard" / "dev") == {
        "loss/nll": [(2, 2.5)],
        "quality/accuracy": [(2, 0.5)],
        "quality/bleu": [(2, 7.0)],
    }
