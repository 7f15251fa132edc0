"""The moving average of the weights, against its recursion in NumPy."""

import numpy as np
import pytest
from helpers.errors import refused
from helpers.small_run import trainer, weights

from t2t_keras.run.checkpoint import model_variables
from t2t_keras.run.directory import RunDirectory

DECAY = 0.15


@pytest.mark.parametrize("replicas", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_average_of_a_run(replicas, data_dir, tmp_path):
    hparams = {"options": {"save_every": 1}, "ema_decay": DECAY}
    figures = trainer(data_dir, tmp_path, replicas=replicas, **hparams).train()
    checkpoints = [weights(tmp_path, step) for step in (1, 2, 3, 4)]
    names = [name for name in checkpoints[0] if name.startswith("model/")]
    averages = {name for name in checkpoints[0] if name.startswith("ema/")}
    assert averages == {name.replace("model/", "ema/", 1) for name in names}
    for name in names:
        average = np.zeros_like(checkpoints[0][name])
        for t, tensors in enumerate(checkpoints, 1):
            decay = min(DECAY, (t - 1) / (t + 9))  # 0, 1/11, 2/12, then 0.15
            average = decay * average + (1 - decay) * tensors[name]
            actual = tensors[name.replace("model/", "ema/", 1)]
            np.testing.assert_allclose(actual, average, atol=1e-6, err_msg=name)

    # It can be chosen like any checkpoint, and was evaluated beside the others.
    run = RunDirectory(tmp_path)
    variables = model_variables(run.translator("ema").model)
    for name in names:
        expected = checkpoints[-1][name.replace("model/", "ema/", 1)]
        np.testing.assert_array_equal(variables[name], expected, err_msg=name)
    assert 0 < figures["dev_ema"]["loss"] != figures["dev_loss"]


def test_a_run_without_averages(trained_run):
    message = r"--checkpoint ema: .* has no ema_decay"
    refused(message, RunDirectory(trained_run).translator, "ema")
