"""What `t2t train` prints at its end."""

from t2t_keras.cli.training import COMMANDS
from t2t_keras.training.result import TrainResult


def test_the_end_of_a_training_is_five_rows():
    result = TrainResult(
        step=1200,
        stopped_by="train_steps",
        loss=1.08412,
        target_tokens_per_s=7339.4,
        dev_loss=0.07673,
        dev_metrics={"bleu": 98.551},
        dev_average={"loss": 0.05181, "bleu": 99.571, "checkpoints": 10},
    )
    assert COMMANDS["train"].show(result.to_dict()).splitlines() == [
        "steps            1200 (train_steps)",
        "loss             1.084",
        "dev nll          0.07673; of the average 0.05181",
        "dev bleu         98.55; of the average 99.57",
        "target tokens/s  7339",
    ]
    nothing = TrainResult(step=3, stopped_by="SIGTERM").to_dict()
    assert "not measured" in COMMANDS["train"].show(nothing)
