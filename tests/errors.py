"""Calls that are refused in one sentence."""

from collections.abc import Callable
from typing import Any

import pytest

from t2t_keras import UserError


def refused(match: str, call: Callable, /, *args: Any, **kwargs: Any) -> str:
    """Asserts that a call raises a `UserError` of one line; returns its message."""
    with pytest.raises(UserError, match=match or None) as error:
        call(*args, **kwargs)
    message = str(error.value)
    assert "\n" not in message
    return message
