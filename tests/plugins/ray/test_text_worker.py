"""Which model a worker on a node loads, and which files show that it can."""

import dataclasses
import re
import shutil

import pytest
from helpers.errors import refused

from t2t_keras.run.config import RunConfig
from t2t_keras.usr_dir import load_usr_dir

pytest.importorskip("ray", reason="needs the extra [ray]")
text_worker = pytest.importorskip("t2t_keras.plugins.ray.text_worker")
model_files = pytest.importorskip("t2t_keras.plugins.ray.model_files")


def test_weights_that_a_training_has_replaced_are_refused(trained_run, tmp_path):
    member = shutil.copytree(trained_run, tmp_path / "member")
    model = model_files.Model(str(trained_run), "latest", (str(member),))
    weights = model.weight_ids()
    assert len(weights) == 2 and weights[0] == weights[1]
    request = text_worker.Request(model, weights, options={})
    text_worker.TextWorker(request)._load()

    steps = sorted(member.glob("model.ckpt-*.index"))
    steps[-1].unlink()  # the newest one is another one
    message = "latest of .*member is no longer what it was when the command began"
    refused(message, text_worker.TextWorker(request)._load)
    renewed = dataclasses.replace(request, weights=model.weight_ids())
    text_worker.TextWorker(renewed)._load()


@pytest.mark.parametrize("is_ensemble", [False, True])
def test_a_moving_average_that_a_training_has_replaced(
    is_ensemble, trained_run, tmp_path, monkeypatch
):
    """It has no step for a name, but an export keeps it."""
    run = str(shutil.copytree(trained_run, tmp_path / "run"))
    model = model_files.Model(run, "ema", (str(trained_run),) if is_ensemble else ())
    request = text_worker.Request(model, model.weight_ids(), options={})
    sorted((tmp_path / "run").glob("model.ckpt-*.index"))[-1].unlink()
    monkeypatch.setattr(text_worker, "load", lambda *args: None)
    advice = f"use an export of it (`t2t export {run} DIR --checkpoint ema`), or "
    advice = f"{'' if is_ensemble else advice}wait for the end of the training"
    pattern = f"ema of .* when the command began: .*; {re.escape(advice)}$"
    refused(pattern, text_worker.TextWorker(request)._load)


def test_nodes_show_that_they_have_the_code_of_the_user(trained_run, tmp_path):
    (tmp_path / "definitions_for_a_cluster.py").write_text("NAME = 1")
    load_usr_dir(tmp_path)
    model = model_files.Model(str(trained_run), usr_dir=str(tmp_path))
    names = {path.name for path in model.files()}
    assert {"definitions_for_a_cluster.py", "config.json"} < names

    run = shutil.copytree(trained_run, tmp_path / "run")
    config = dataclasses.replace(RunConfig.read(run), usr_dir=str(tmp_path))
    config.write(run)
    assert names == {path.name for path in model_files.Model(str(run)).files()}
