"""Training on packed rows: the updates of the same pairs in one row each."""

import numpy as np
import pytest
import tensorflow as tf
from helpers.one_step import HPARAMS, VOCAB, Setup, assert_close
from helpers.small_run import assert_same, trainer, weights

from t2t_keras.data.packed_plan import PackedPlan
from t2t_keras.data.pipeline import training_batches
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.problem import SIDES
from t2t_keras.training.strategy import distribute

DROPOUT = {"dropout": 0.1, "attention_dropout": 0.2, "ffn_dropout": 0.1}


def packed_parts(data_dir, replicas: int, micro_batches: int):
    """A batch of the data, as the pipeline divides it; ids fit into `VOCAB`."""
    index = RecordIndex.open(data_dir, "translate_text", "train")
    plan = PackedPlan(index.source_length, index.target_length, 320, seed=3)
    batches = training_batches(
        index, plan, range(2, 3), replicas, micro_batches=micro_batches
    )
    parts = list(batches.as_numpy_iterator())
    for part in parts:
        for side in SIDES:
            part[side] = np.where(part[side], 2 + part[side] % (VOCAB - 2), 0)
    return parts


def unpacked(parts) -> list[np.ndarray]:
    """Source and target of each pair in a row, in the order of their segments."""
    arrays = []
    for side in SIDES:
        segments = np.concatenate([part[f"{side}_segments"] for part in parts])
        positions = np.concatenate([part[f"{side}_positions"] for part in parts])
        ids = np.concatenate([part[side] for part in parts])
        rows = np.zeros((segments.max(), positions.max() + 1), np.int32)
        is_token = segments > 0
        rows[segments[is_token] - 1, positions[is_token]] = ids[is_token]
        arrays.append(rows)
    return arrays


@pytest.mark.parametrize(
    "parts", [pytest.param((1, 1), marks=pytest.mark.slow), (2, 2)]
)
def test_gradients_match_the_pairs(data_dir, parts):
    """With the same dropout, also in replicas and micro-batches."""
    batch = packed_parts(data_dir, *parts)
    expected = Setup(1, HPARAMS.override(**DROPOUT)).gradients(*unpacked(batch))
    setup = Setup(parts[0], HPARAMS.override(bucketing="packed", **DROPOUT), parts[1])
    stacked = tf.nest.map_structure(lambda *parts: np.stack(parts), *batch)
    dataset = tf.data.Dataset.from_tensor_slices(stacked)
    (distributed,) = distribute(setup.strategy, dataset)
    assert_close(setup.gradients_of(distributed), expected, relative=1e-5)
    assert len(batch[0]["source"]) * len(batch) < len(unpacked(batch)[0]) / 2


@pytest.mark.slow
def test_a_resumed_training_is_one_without_a_break(data_dir, tmp_path):
    """Across the end of an epoch, and with other replicas up to rounding."""
    options = {"bucketing": "packed", "dropout": 0.2, "batch_tokens": 1024}
    for name, replicas in (("a", 2), ("b", 2), ("c", 1)):
        path = tmp_path / name
        if name == "b":
            stopped = trainer(
                data_dir, path, train_steps=3, replicas=2, parts=2, **options
            )
            stopped.train()
        options_of_run = {"replicas": replicas, "parts": 2, **options}
        training = trainer(data_dir, path, train_steps=6, **options_of_run)
        assert 3 < len(training._data.plan) < 6
        training.train()
    assert_same(weights(tmp_path / "a", 6), weights(tmp_path / "b", 6))
    assert_close(weights(tmp_path / "c", 6), weights(tmp_path / "a", 6), relative=1e-4)


@pytest.mark.slow
def test_training_learns_as_much_as_with_exact_batches(data_dir, tmp_path, capfd):
    """Or more: exact batches have pairs of one length, packed ones of any."""
    losses = []
    for bucketing in ("exact", "packed"):
        run = trainer(
            data_dir,
            tmp_path / bucketing,
            options={"eval_every": 60, "save_every": 60},
            **{"bucketing": bucketing, "train_steps": 60, "learning_rate": 1.0},
            **{"batch_tokens": 1024, "dropout": 0.0, "d_model": 64, "d_ff": 64},
            warmup_steps=20,
        )
        losses.append(run.train()["dev_nll"])
    assert "packed rows of" in capfd.readouterr().err
    assert losses[0] < 1.0  # from 5.74; above 3 while the source is not used
    assert losses[1] < losses[0]
