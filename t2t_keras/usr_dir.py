"""Users' code: `--usr_dir`, whose modules register definitions, and their errors."""

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from t2t_keras.checking import checked
from t2t_keras.console import say
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError

# Package of another program that a user's file imports -> what to import instead.
# Plugins that register models fill it.
PACKAGE_HINTS: dict[str, str] = {}

# The error of each file of a `--usr_dir` that could not be imported.
FAILED_FILES: dict[str, UserError] = {}

# Whether a definition that cannot be registered is listed with its error, so that the
# other definitions of its file can be used; see `Registry.deferred`.
defers_errors = False


@checked
def load_usr_dir(directory: str | Path) -> None:
    """Imports a user's directory, whose modules register what they define.

    If the directory is a package (it has an `__init__.py`), the package is imported;
    otherwise all modules in it are. A definition that cannot be registered is listed
    with its error. A module that cannot be imported is left out with a warning, as long
    as there are others.

    Raises:
        UserError: there is no such directory, it has no Python file, or none of its
            files can be imported.
    """
    path = Path(directory).resolve()
    if not path.is_dir():
        raise UserError(f"--usr_dir: there is no directory {directory}")
    init = path / "__init__.py"
    files = [init] if init.exists() else sorted(path.glob("*.py"))
    if not files:
        raise UserError(f"--usr_dir: {directory} has no Python file")
    # The files can then import each other, and child processes can import them. The
    # path comes last, so that a file `queue.py` does not hide the standard library's.
    root = str(path.parent if files == [init] else path)
    if root not in sys.path:
        sys.path.append(root)
    importlib.invalidate_caches()
    errors: dict[str, UserError] = {}
    for file in files:
        try:
            with _deferred_errors():
                _import_file(path.name if file == init else file.stem, file)
        except UserError as error:
            errors[str(file)] = error
    if len(errors) == len(files):
        raise next(iter(errors.values()))
    printed = {str(file): str(FAILED_FILES.pop(str(file), "")) for file in files}
    for name, failure in errors.items():
        if printed[name] != str(failure):
            say(f"t2t: {failure}; this file is left out")
    FAILED_FILES.update(errors)


@contextlib.contextmanager
def _deferred_errors() -> Iterator[None]:
    """Sets `defers_errors` in the block."""
    global defers_errors
    defers_errors = True
    try:
        yield
    finally:
        defers_errors = False


def _import_file(name: str, file: Path) -> None:
    """Imports a user's file; the message of an error names its line."""
    spec = None if "." in name else importlib.util.find_spec(name)
    if spec is None or not spec.origin or Path(spec.origin).resolve() != file.resolve():
        raise UserError(
            f"--usr_dir: {file} cannot be imported as '{name}': another module has "
            "that name, or it has a dot; rename it"
        )
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a setup.py exits
        location = error_location(error, str(file)) or str(file)
        reason = explain_error(error)
        if isinstance(error, UserError) and str(file.parent) in reason:
            raise  # it names a line
        if isinstance(error, SyntaxError):
            location = f"{error.filename}:{error.lineno}"
            reason = error.msg
        elif isinstance(error, ModuleNotFoundError):
            load_plugins("models")  # fill `PACKAGE_HINTS`
            hint = PACKAGE_HINTS.get((error.name or "").partition(".")[0])
            reason += f"; {hint}" if hint else ""
        raise UserError(f"--usr_dir: {location}: {reason}") from error


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
