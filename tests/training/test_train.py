"""A new run takes the fastest values for its devices, and keeps them."""

import numpy as np
import pytest
from helpers.errors import refused
from helpers.small_run import trainer

from t2t_keras.hparam import HParams
from t2t_keras.run.directory import RunDirectory
from t2t_keras.training.train import resolve_auto


@pytest.mark.parametrize(
    ("changes", "has_gpus", "bucketing", "is_compiled"),
    [
        ({}, True, "packed", True),
        ({}, False, "exact", False),
        ({"jit_compile": True}, False, "packed", True),
        ({"jit_compile": False}, True, "packed", False),
        ({"bucketing": "exact"}, True, "exact", False),
        ({"bucketing": "packed"}, False, "packed", False),
        ({"bucketing": "static"}, True, "static", False),
        ({"bucketing": "static", "jit_compile": True}, False, "static", True),
    ],
)
def test_a_new_run_packs_rows_and_compiles_on_gpus(
    tmp_path, changes, has_gpus, bucketing, is_compiled
):
    hparams = resolve_auto(HParams(**changes), tmp_path, has_gpus)
    assert hparams.bucketing == bucketing
    assert hparams.jit_compile is is_compiled


def test_a_run_keeps_what_it_began_with(tmp_path, data_dir):
    compiled = {"bucketing": "static", "jit_compile": True}
    trainer(data_dir, tmp_path, **compiled)
    run = RunDirectory(tmp_path)
    hparams = run.hparams.override(bucketing="auto", jit_compile="auto")
    assert resolve_auto(hparams, tmp_path, has_gpus=False).bucketing == "exact"
    run.checkpoints.save(1, {"x": np.zeros(1)}, keep=1)
    assert resolve_auto(hparams, tmp_path, has_gpus=False) == run.hparams


def test_a_run_without_recorded_values_has_exact_batches(tmp_path, data_dir):
    trainer(data_dir, tmp_path)
    run = RunDirectory(tmp_path)
    run.checkpoints.save(1, {"x": np.zeros(1)}, keep=1)
    resolved = resolve_auto(run.hparams, tmp_path, has_gpus=True)
    assert (resolved.bucketing, resolved.jit_compile) == ("exact", False)


def test_values_are_words_or_truth_values():
    for text, value in (("auto", "auto"), ("true", True), ("0", False)):
        hparams = HParams(bucketing="static").parse(f"jit_compile={text}")
        assert hparams.jit_compile == value
    assert HParams.from_dict({"jit_compile": False}).jit_compile is False
    refused("must be true or false or auto, not 'x'", HParams().parse, "jit_compile=x")
