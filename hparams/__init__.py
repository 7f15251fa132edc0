"""The registered hparam sets: one file for each source they come from."""

from . import own_data, paper, small, table3

__all__ = ["own_data", "paper", "small", "table3"]
