"""Training in 16 bits against training in float32."""

import pytest
from helpers.small_run import trainer


@pytest.mark.slow
def test_bfloat16_reaches_the_loss_of_float32(data_dir, tmp_path):
    """On the same 500 batches, with the same dropout."""
    size = {"num_layers": 2, "d_model": 64, "d_ff": 128, "num_heads": 4}
    options = {"log_every": 100, "save_every": 500, "eval_every": 500}
    losses = []
    for dtype in ("float32", "bfloat16"):
        run = trainer(
            data_dir,
            tmp_path / dtype,
            options=options,
            compute_dtype=dtype,
            train_steps=500,
            warmup_steps=200,
            learning_rate=0.25,  # at 1, the losses of float32 fluctuate by 2%
            **size,
        )
        losses.append(run.train()["loss"])
    assert losses[1] != losses[0]  # it does round
    assert losses[1] == pytest.approx(losses[0], rel=0.01)
