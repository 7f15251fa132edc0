"""Calls that are refused in one sentence."""

from collections.abc import Callable

import pytest

from t2t_keras import UserError


def refused(match: str, call: Callable, /, *args: object, **kwargs: object) -> str:
    """Asserts that a call raises a `UserError` of one line; returns its message."""
    with pytest.raises(UserError, match=match or None) as error:
        call(*args, **kwargs)
    message = str(error.value)
    assert "\n" not in message
    return message
