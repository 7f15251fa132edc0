"""Which model a worker on a node loads."""

import dataclasses
import shutil

import pytest
from helpers.errors import refused

pytest.importorskip("ray", reason="needs the extra [ray]")
text_worker = pytest.importorskip("t2t_keras.plugins.ray.text_worker")
model_files = pytest.importorskip("t2t_keras.plugins.ray.model_files")


def test_weights_that_a_training_has_replaced_are_refused(trained_run, tmp_path):
    member = shutil.copytree(trained_run, tmp_path / "member")
    model = (str(trained_run), "latest", (str(member),))
    weights = model_files.weight_ids(*model)
    assert len(weights) == 2 and weights[0] == weights[1]
    request = text_worker.Request(*model, weights, usr_dir="", options={})
    text_worker.TextWorker(request)._load()

    steps = sorted(member.glob("model.ckpt-*.index"))
    steps[-1].unlink()  # the newest one is another one
    message = "latest of .*member is no longer what it was when the command began"
    refused(message, text_worker.TextWorker(request)._load)
    again = dataclasses.replace(request, weights=model_files.weight_ids(*model))
    text_worker.TextWorker(again)._load()
