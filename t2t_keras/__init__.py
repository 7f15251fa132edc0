"""The Transformer of "Attention Is All You Need" on Keras 3 and TensorFlow 2."""

from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.problem import Problem
from t2t_keras.registry import register_hparams, register_problem

__all__ = ["HParams", "Problem", "UserError", "register_hparams", "register_problem"]
