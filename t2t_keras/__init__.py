"""The Transformer of "Attention Is All You Need" on Keras 3 and TensorFlow 2.

    import t2t_keras

    t2t_keras.datagen("my_problem", "data")
    t2t_keras.train("my_problem", "base", data_dir="data", output_dir="runs/my_run")
    run = t2t_keras.load("runs/my_run")
    run.translate(["A dog runs."])
    run.evaluate("test")
    run.export("served/1")

The command line is `t2t`, whose commands are these functions. A problem, model or
hparam set of your own needs no other names.
"""

import importlib.util
import pathlib

from t2t_keras.api.functions import (
    average,
    compare,
    datagen,
    evaluate,
    export,
    import_model,
    inspect,
    load,
    train,
)
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.options import option
from t2t_keras.problem import Problem
from t2t_keras.registry import (
    register_hparams,
    register_model,
    register_optimizer,
    register_problem,
    register_ranged_hparams,
    register_schedule_factor,
)
from t2t_keras.tensorflow_import import quiet_import

# Python that is started in a clone imports this package from the clone, even after
# `pip install .`, which puts `problems`, `hparams` and `plugins` elsewhere.
if importlib.util.find_spec("t2t_keras.problems") is None:
    _clone = pathlib.Path(__file__).resolve().parents[1]
    __path__ += [str(_clone), str(_clone / "plugins")]  # the latter for `testing`
quiet_import()

__all__ = [
    "HParams",
    "Problem",
    "UserError",
    "average",
    "compare",
    "datagen",
    "evaluate",
    "export",
    "import_model",
    "inspect",
    "load",
    "option",
    "register_hparams",
    "register_model",
    "register_optimizer",
    "register_problem",
    "register_ranged_hparams",
    "register_schedule_factor",
    "train",
]


def __dir__() -> list[str]:
    return __all__
