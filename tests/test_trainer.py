"""The trainer in this process, for a few steps."""

import dataclasses
import json

import numpy as np
import pytest
from small_data import small_data

from t2t_keras import UserError, registry
from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.records import RecordIndex
from t2t_keras.hparam import HParams
from t2t_keras.training.checkpoint import Checkpoint
from t2t_keras.training.run_dir import RunDirectory, config_for
from t2t_keras.training.strategy import make_strategy
from t2t_keras.training.trainer import Trainer, TrainOptions

HPARAMS = HParams(
    num_layers=1,
    d_model=16,
    d_ff=16,
    num_heads=2,
    warmup_steps=10,
    batch_tokens=256,
    train_steps=4,
)
OPTIONS = TrainOptions(log_every=2, save_every=2, eval_every=4, eval_sentences=0)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    directory = tmp_path_factory.mktemp("data")
    small_data(directory)
    return directory


def trainer(data_dir, output_dir, problem="translate_text", seed=1, **changes):
    config = config_for(registry.problem(problem), "none", data_dir, seed)
    hparams = HPARAMS.override(**changes)
    run = RunDirectory.create(output_dir, config, hparams)
    return Trainer(run, make_strategy(), OPTIONS)


def weights(output_dir, step=4):
    checkpoint = Checkpoint(output_dir / f"model.ckpt-{step}")
    return {name: checkpoint.tensor(name) for name in checkpoint.shapes}


def test_one_seed_gives_one_result(data_dir, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        figures = trainer(data_dir, tmp_path / name, seed=seed).train()
        assert figures["step"] == 4
        assert np.isfinite(figures["dev_loss"])
    a, b, c = (weights(tmp_path / name) for name in "abc")
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name], err_msg=name)
    assert np.abs(a["model/embedding/table"] - c["model/embedding/table"]).max() > 0.01
    assert a["step"] == 4


def test_a_run_can_be_made_longer_and_is_then_the_longer_run(data_dir, tmp_path):
    trainer(data_dir, tmp_path / "a", train_steps=2).train()
    trainer(data_dir, tmp_path / "a", train_steps=4).train()
    trainer(data_dir, tmp_path / "b", train_steps=4).train()
    a, b = weights(tmp_path / "a"), weights(tmp_path / "b")
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name], err_msg=name)
    assert RunDirectory(tmp_path / "a").hparams.train_steps == 4
    again = trainer(data_dir, tmp_path / "a").train()  # nothing left to do
    assert again["step"] == 4
    assert np.isfinite(again["dev_loss"])


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
    ]
    train, dev = records[1:]
    assert train["learning_rate"] == pytest.approx(16**-0.5 * 4 * 10**-1.5)
    assert train["perplexity"] == pytest.approx(np.exp(train["loss"]))
    assert dev["perplexity"] == pytest.approx(np.exp(figures["dev_loss"]))
    assert train["minutes_left"] == 0
    assert {path.suffix for path in tmp_path.glob("events*")}  # for TensorBoard


def test_padding_and_epochs_are_counted(data_dir, tmp_path):
    training = trainer(data_dir, tmp_path, train_steps=6)
    figures = training.train()
    index = RecordIndex.open(data_dir, "translate_text", "train")
    assert len(training._plan) == pytest.approx(
        np.maximum(index.source_length, index.target_length).sum() / 256, abs=2
    )
    assert 0 <= figures["padding_share"] < 0.1
    assert 0 < figures["waiting_for_data_share"] < 1


def test_without_dev_data_there_is_no_evaluation(tmp_path):
    problem = small_data(tmp_path / "both")
    alone = problem.replace(sources={"train": problem.sources["train"]})
    generate(alone, tmp_path / "alone", workers=1)
    figures = trainer(tmp_path / "alone", tmp_path / "run").train()
    assert figures["step"] == 4
    assert "dev_loss" not in figures


def test_a_loss_that_is_not_finite_stops_with_the_step_and_batch(data_dir, tmp_path):
    training = trainer(data_dir, tmp_path)
    table = training.model.embeddings[0].table
    table.assign(np.full(table.shape, np.nan))
    with pytest.raises(UserError, match="step 1, epoch 0, batch 0: the loss"):
        training.train()
    assert RunDirectory(tmp_path).checkpoints.steps() == []


def test_settings_bind_once_there_are_weights(data_dir, tmp_path):
    trainer(data_dir, tmp_path, dropout=0.3)
    trainer(data_dir, tmp_path, dropout=0.1).train()
    with pytest.raises(UserError, match=r"dropout was 0\.1, is now 0\.3"):
        trainer(data_dir, tmp_path, dropout=0.3)
    config = config_for(registry.problem("translate_text"), "none", data_dir, 1)
    other = dataclasses.replace(config, vocab_sha256={"source": "x", "target": "x"})
    with pytest.raises(UserError, match="vocab_sha256 was"):
        RunDirectory.create(tmp_path, other, HPARAMS)
    assert Manifest.open(data_dir, "translate_text").vocab_sha256 == config.vocab_sha256
