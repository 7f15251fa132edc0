"""Settings of sweeps, for tests without a training."""

from t2t_keras.plugins.sweep.settings import SweepSettings
from t2t_keras.ranged_hparams import Choices, Interval


def sweep_settings(**changes: object) -> SweepSettings:
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
        **{"options": {}, "metric": "bleu", "direction": "maximize"},
        **{"startup_trials": 2, "prunes": True, "workers": 2},
    }
    return SweepSettings(**values | changes)
