"""The registered problems; `parsing` has the parsing problems."""

from . import toy, translate

__all__ = ["toy", "translate"]
