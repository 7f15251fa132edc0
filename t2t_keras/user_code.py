"""Definitions in users' files: where they are, and the errors that they raise."""

import dataclasses
import inspect
import re
import traceback
from collections.abc import Callable
from pathlib import Path

from t2t_keras.errors import UserError


def definition_location(definition: Callable[..., object]) -> str:
    """Returns file:line of a function or class, or its name if it was typed in."""
    definition = inspect.unwrap(definition)
    try:
        file = Path(inspect.getsourcefile(definition) or "?").resolve()
        return f"{file}:{inspect.getsourcelines(definition)[1]}"
    except (OSError, TypeError):  # an interactive session has no file
        return f"{definition.__module__}.{definition.__qualname__}"


def error_in_file(error: Exception, location: str, name: str) -> UserError:
    """Returns the `UserError` for an error that a user's definition raised.

    Args:
        error: the error.
        location: file:line of the definition.
        name: its name.
    """
    file, _, _ = location.rpartition(":")
    innermost = error_location(error, file) or location
    return UserError(f"{innermost}: '{name}': {explain_error(error)}")


def error_location(error: BaseException, file: str) -> str | None:
    """Returns file:line of the innermost call in the user's code, or None.

    The user's code consists of the file and the others in its folder, without
    libraries.
    """
    folder = Path(file).parent
    calls = [
        call
        for call in traceback.extract_tb(error.__traceback__)
        if Path(call.filename).is_relative_to(folder)
        and "site-packages" not in call.filename.removeprefix(str(folder))
    ]
    return f"{calls[-1].filename}:{calls[-1].lineno}" if calls else None


def explain_error(error: BaseException) -> str:
    """Returns an error's message, with its type unless it is a `UserError`."""
    if isinstance(error, UserError):
        return str(error)
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, dataclasses.FrozenInstanceError):
        field = re.sub(r".*'(.*)'.*", r"\1", str(error))
        return f"{reason}; return a changed copy instead: `.override({field}=...)`"
    if isinstance(error, AttributeError) and (name := _name_of_tensorflow_1(error)):
        return f"{reason}; write `import tensorflow.compat.v1 as tf` to have {name}"
    return reason


def _name_of_tensorflow_1(error: AttributeError) -> str | None:
    """Returns the missing name if it is one of TensorFlow 1."""
    if getattr(error.obj, "__name__", "") != "tensorflow":
        return None
    from tensorflow.compat import v1

    return f"tf.{error.name}" if hasattr(v1, error.name or "") else None
