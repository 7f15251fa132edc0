"""Settings of sweeps for tests without a training, and flags of `t2t sweep`."""

from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.ranged_hparams import Choices, Interval

if TYPE_CHECKING:
    from t2t_keras.plugins.sweep.study import SweepSettings


def sweep_settings(**changes: object) -> "SweepSettings":
    from t2t_keras.plugins.sweep.study import SweepSettings

    values = {
        **{"problem": "p", "ranges_name": "r", "hparams_set": "tiny", "hparams": ""},
        "ranges": {
            "dropout": Interval(0.05, 0.5),
            "learning_rate": Interval(0.1, 3.0, "log"),
            "adam_beta2": Interval(0.9, 0.999, "reverse_log"),
            "num_layers": Interval(1, 4, "log", is_integer=True),
            "norm": Choices(("pre", "post")),
        },
        **{"data_dir": "d", "usr_dir": None, "train_steps": 40, "seed": 3},
        **{"options": {"eval_every": 20}, "metric": "bleu", "direction": "maximize"},
        **{"startup_trials": 2, "prunes": True, "workers": 2},
    }
    return SweepSettings(**values | changes)


def sweep_flags(
    ranges: str, data_dir: Path, output_dir: Path, usr_dir: Path, **changes: object
) -> list[str]:
    """Returns the flags of a sweep of small models on a few steps."""
    small = "num_layers=1,d_model=16,d_ff=16,num_heads=2,batch_tokens=256"
    values = {
        **{"problem": "translate_text", "ranges": ranges, "trials": 3},
        **{"hparams_set": "tiny", "hparams": small, "train_steps": 20},
        **{"data_dir": data_dir, "output_dir": output_dir, "usr_dir": usr_dir},
        **{"eval_every": 10, "eval_sentences": 0, "save_every": 5},
        **changes,
    }
    flags: list[str] = []
    for name, value in values.items():
        flags += [f"--{name}", str(value)]
    return flags
