"""The error that a user's mistake raises."""

import difflib
import importlib.util
from collections.abc import Iterable


class UserError(Exception):
    """A user's mistake, described in one sentence.

    The sentence names the file, line, field or option and says what to do. The command
    line prints it without a traceback and ends with exit code 2.
    """


def require_extra(extra: str, purpose: str, *modules: str) -> None:
    """Refuses to go on without the optional packages of an extra.

    Args:
        extra: the name of the extra in `pyproject.toml`.
        purpose: the file or feature that needs it, for the message.
        *modules: the modules that are imported from its packages.

    Raises:
        UserError: one of them is not installed.
    """
    for module in modules:
        try:
            absent = importlib.util.find_spec(module) is None
        except ModuleNotFoundError:  # the package in which the module would be
            absent = True
        if absent:
            raise UserError(
                f"{purpose} needs {module}, which is not installed: "
                f'pip install "t2t_keras[{extra}]"'
            )


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, for a message of one sentence."""
    return str(error).strip().partition("\n")[0]


def nearest(name: str, names: Iterable[str], form: str = "'{}'") -> str:
    """Returns "; did you mean 'x'?", or "" if no name is near the one that is wrong.

    Args:
        name: the name that the user gave.
        names: the names that there are.
        form: how the nearest one is written.
    """
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {form.format(*near)}?" if near else ""
