"""Mixed precision: the loss scale, and training in bfloat16 and float16."""

import numpy as np
import pytest
import tensorflow as tf
from small_run import assert_same, trainer, weights

from t2t_keras.hparam import HParams
from t2t_keras.model.transformer import Transformer
from t2t_keras.training import step as module
from t2t_keras.training.checkpoint import model_variables
from t2t_keras.training.optimizer import Adam
from t2t_keras.training.step import LossScale, StepResult, TrainStep
from t2t_keras.training.strategy import distribute, make_strategy

VOCAB = 16
HPARAMS = HParams(
    num_layers=1, d_model=32, d_ff=64, num_heads=4, dropout=0.1, label_smoothing=0.0
)


class Copying:
    """A model on two replicas that learns to repeat its source."""

    def __init__(self, compute_dtype: str) -> None:
        self.strategy = make_strategy(simulate_devices=2)
        with self.strategy.scope():
            tf.keras.utils.set_random_seed(1)
            hparams = HPARAMS.override(compute_dtype=compute_dtype)
            self.model = Transformer(hparams, VOCAB)
            self.weights = [w.value for w in self.model.trainable_variables]
            adam = Adam(model_variables(self.model), HPARAMS)
            self.step = TrainStep(self.model, adam, self.strategy, seed=1)

    def updates(self, steps: range, rate: float = 3e-3) -> list[StepResult]:
        ids = np.random.default_rng(steps.start).integers(
            3, VOCAB, (2 * len(steps), 32, 5)
        )
        parts = tf.data.Dataset.from_tensor_slices(tf.constant(ids, tf.int32))
        batches = distribute(self.strategy, parts.map(lambda ids: (ids, ids)))
        return [
            self.step.update(batch, step, rate)
            for step, batch in zip(steps, batches, strict=True)
        ]

    def update(self, step: int, rate: float = 3e-3) -> StepResult:
        return self.updates(range(step, step + 1), rate)[0]

    def copies(self) -> list[list[np.ndarray]]:
        """The weights on each replica."""
        local = self.strategy.experimental_local_results
        return [[copy.numpy() for copy in local(weight)] for weight in self.weights]

    def scale(self) -> float:
        return float(self.step.loss_scale.value)


@pytest.fixture(scope="module")
def losses():
    """The loss per token of every step, by dtype."""
    found = {}
    for dtype in ("float32", "bfloat16", "float16"):
        results = Copying(dtype).updates(range(150))
        found[dtype] = np.array(
            [float(result.loss_sum / result.target_tokens) for result in results]
        )
        assert sum(float(result.skipped) for result in results) <= 5
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_small_task_is_learnt_as_in_float32(losses, dtype):
    """By chance the loss would be log(13) = 2.56; it falls below 0.9."""
    end, expected = (losses[name][-10:].mean() for name in (dtype, "float32"))
    assert expected < 0.9
    assert end == pytest.approx(expected, rel=0.1)
    # The same path, until rounding has added up; and not the very same numbers.
    np.testing.assert_allclose(losses[dtype][:20], losses["float32"][:20], rtol=0.02)
    assert not np.array_equal(losses[dtype][:20], losses["float32"][:20])


def test_an_overflow_halves_the_scale_and_leaves_out_the_update():
    copying = Copying("float16")
    copying.update(0)
    before = copying.copies()
    copying.step.loss_scale.variables["loss_scale/scale"].assign(2.0**40)
    result = copying.update(1)
    assert copying.scale() == 2.0**39
    assert float(result.skipped) == 1
    assert float(result.gradient_norm) == 0
    assert np.isfinite(float(result.loss_sum))
    for old, new in zip(before, copying.copies(), strict=True):
        np.testing.assert_array_equal(old, new)

    copying.step.loss_scale.variables["loss_scale/scale"].assign(2.0)
    result = copying.update(2)
    assert float(result.skipped) == 0
    assert float(result.gradient_norm) > 0
    for old, (one, other) in zip(before, copying.copies(), strict=True):
        assert np.abs(one - old[0]).max() > 0
        np.testing.assert_array_equal(one, other)  # the replicas agree


def test_the_scale_doubles_after_so_many_good_steps(monkeypatch):
    monkeypatch.setattr(module, "DOUBLE_AFTER", 3)
    scale = LossScale()
    values = []
    for good in (True, True, True, True, True, False, True, True, True, False, False):
        for variable, value in scale.after(tf.constant(good)):
            variable.assign(value)
        values.append(float(scale.value))
    assert values == [1, 1, 2, 2, 2, 1, 1, 1, 2, 1, 0.5]


@pytest.mark.slow
def test_a_run_in_float16_skips_and_resumes_exactly(data_dir, tmp_path):
    def train(name: str, steps: int, scale: float | None = None) -> dict:
        training = trainer(
            data_dir, tmp_path / name, compute_dtype="float16", train_steps=steps
        )
        if scale:
            training._step.loss_scale.variables["loss_scale/scale"].assign(scale)
        return training.train()

    figures = train("whole", 4, scale=2.0**40)
    assert figures["skipped_updates"] == 2  # of the last two steps
    train("halves", 2, scale=2.0**40)
    train("halves", 4)
    whole = weights(tmp_path / "whole")
    assert_same(whole, weights(tmp_path / "halves"))
    assert whole["loss_scale/scale"] == 2.0**36
