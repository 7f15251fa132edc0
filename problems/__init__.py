"""The registered problems."""

from t2t_keras.problems import parsing, toy, translate

__all__ = ["parsing", "toy", "translate"]
