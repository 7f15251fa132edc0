"""The registered problems: one small file each."""

from . import parsing, toy, translate

__all__ = ["parsing", "toy", "translate"]
