"""The registered problems; those of parsing are in `parsing`."""

from . import toy, translate

__all__ = ["toy", "translate"]
