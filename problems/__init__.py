"""The registered problems."""

from . import parsing, toy, translate

__all__ = ["parsing", "toy", "translate"]
