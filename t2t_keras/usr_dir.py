"""`--usr_dir`: the folder whose modules register a user's definitions."""

import importlib
import importlib.util
import sys
from pathlib import Path

from t2t_keras import registry
from t2t_keras.checking import checked
from t2t_keras.entry_points import load_plugins
from t2t_keras.errors import UserError
from t2t_keras.user_code import error_location, explain_error

# Package of another program that a user's file imports -> what to import instead.
# Plugins that register models fill it.
PACKAGE_HINTS: dict[str, str] = {}

_printed_errors: dict[str, UserError] = {}  # by the file


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
            with registry.deferred_errors():
                _import_file(path.name if file == init else file.stem, file)
        except UserError as error:
            errors[str(file)] = error
        registry.FAILED_FILES.pop(str(file), None)
    if len(errors) == len(files):
        raise next(iter(errors.values()))
    for name, failure in errors.items():
        if str(_printed_errors.get(name)) != str(failure):
            print(f"t2t: {failure}; this file is left out", file=sys.stderr)
    registry.FAILED_FILES.update(errors)
    _printed_errors.update(errors)


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
    except UserError as error:
        location = error_location(error, str(file))
        if location is None or str(file.parent) in str(error):
            raise
        raise UserError(f"--usr_dir: {location}: {error}") from error
    except ModuleNotFoundError as error:
        location = error_location(error, str(file)) or str(file)
        load_plugins("models")  # fill `PACKAGE_HINTS`
        package = (error.name or "").partition(".")[0]
        hint = PACKAGE_HINTS.get(package)
        reason = f"{explain_error(error)}{f'; {hint}' if hint else ''}"
        raise UserError(f"--usr_dir: {location}: {reason}") from error
    except SyntaxError as error:
        location = f"{error.filename}:{error.lineno}"
        raise UserError(f"--usr_dir: {location}: {error.msg}") from error
    except (Exception, SystemExit) as error:  # such as a setup.py
        location = error_location(error, str(file)) or str(file)
        raise UserError(f"--usr_dir: {location}: {explain_error(error)}") from error
