"""Lengths of 3,000 pairs of sentences, both sides nearly the same."""

import numpy as np

_RNG = np.random.default_rng(1)
SOURCE = _RNG.integers(1, 60, 3000)
TARGET = np.clip(SOURCE + _RNG.integers(-5, 6, 3000), 1, None)
