"""The error that a user's mistake raises."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A user's mistake, described in one sentence.

    The sentence names the file, line, field or option and says what to do. The command
    line prints it without a traceback and ends with exit code 2.
    """


def nearest(name: str, names: Iterable[str], form: str = "'{}'") -> str:
    """Returns "; did you mean 'x'?", or "" if no name is near the one that is wrong.

    Args:
        name: the name that the user gave.
        names: the names that there are.
        form: how the nearest one is written.
    """
    near = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {form.format(*near)}?" if near else ""
