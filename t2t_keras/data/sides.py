"""The splits of a data directory, and the two sides of a pair."""

from typing import Literal

from t2t_keras.problem import Split

SPLITS: tuple[Split, ...] = ("train", "dev", "test")
Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")
