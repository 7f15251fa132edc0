"""The registered problems; `parsing` has the parsing problems."""

from . import multi30k, toy, translate

__all__ = ["multi30k", "toy", "translate"]
