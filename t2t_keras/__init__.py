"""The Transformer of "Attention Is All You Need" on Keras 3 and TensorFlow 2.

    import t2t_keras

    translator = t2t_keras.load("runs/my_run")
    translator.translate(["A dog runs."])

The command line is `t2t`; the names below are what a problem of one's own needs.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.problem import Problem
from t2t_keras.registry import register_hparams, register_problem

if TYPE_CHECKING:
    from t2t_keras.decoding.translator import Translator

__all__ = [
    "HParams",
    "Problem",
    "UserError",
    "load",
    "register_hparams",
    "register_problem",
]


def load(
    output_dir: str | Path, checkpoint: str | int | Path | None = None
) -> "Translator":
    """Returns a translator with the weights of a run.

    Args:
        output_dir: of `t2t train`.
        checkpoint: a step, "latest", "average", "best", "ema", or a path; None: the
            average of the newest checkpoints if there is one, else the newest.

    Raises:
        UserError: there is no such run or checkpoint.
    """
    from t2t_keras.training.run_dir import RunDirectory

    return RunDirectory(output_dir).translator(checkpoint)
