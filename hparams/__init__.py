"""The registered hparam sets: the paper's, and those for your own data."""

from . import own_data, paper

__all__ = ["own_data", "paper"]
