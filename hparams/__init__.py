"""The registered hparam sets: one file for each source they come from; and ranges."""

from . import own_data, paper, ranges, small, table3

__all__ = ["own_data", "paper", "ranges", "small", "table3"]
