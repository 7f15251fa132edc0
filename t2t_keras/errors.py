"""The error of a user's mistake, and what its one sentence is made of."""

import difflib
import importlib.util
import re
from collections.abc import Iterable
from pathlib import Path


class UserError(Exception):
    """A user's mistake, described in one sentence.

    The sentence names the file, line, field or option and says what to do. The command
    line prints it without a traceback and ends with exit code 2. It is always one line:
    line breaks, which the user's text may have, are shown as in code.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return text.replace("\r", "\\r").replace("\n", "\\n")


def short_repr(value: object) -> str:
    """Returns a value as code, in one line of at most 80 characters, for a message."""
    try:
        text = repr(value)
    except Exception:  # of a class of the user
        text = f"a {type(value).__name__}"
    return " ".join(text.split())[:80]


def first_line(error: Exception) -> str:
    """Returns the first line of an error's message, for a message of one sentence."""
    return str(error).strip().partition("\n")[0]


def did_you_mean(name: str, names: Iterable[str], template: str = "'{}'") -> str:
    """Returns "; did you mean 'x'?", or "" if no name is near the one that is wrong.

    Args:
        name: the name that the user gave.
        names: the names that there are.
        template: how the nearest one is written.
    """
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {template.format(*near)}?" if near else ""


def require_unicode(name: str, text: str) -> None:
    """Refuses lone surrogates, which no encoding of Unicode has.

    Raises:
        UserError: the text has one.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"{name}: character {error.start + 1} is a lone surrogate, which is not "
            "text; remove it"
        ) from None


_ADDRESS = re.compile(r"[A-Za-z][\w+.-]+:/")  # a `Path` has one slash


def require_local(name: str, path: object) -> None:
    """Refuses the address of remote storage, such as `gs://bucket/data`.

    Args:
        name: the flag or argument, for the message.
        path: its value; anything but a path or a string is accepted.

    Raises:
        UserError: it is an address.
    """
    if isinstance(path, str | Path) and _ADDRESS.match(str(path)):
        raise UserError(
            f"{name}: {path} is not a path of this machine; copy the files to a local "
            "disk, or mount the storage (gcsfuse, s3fs), and give that path"
        )


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
