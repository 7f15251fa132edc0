"""The error that a user's mistake raises."""


class UserError(Exception):
    """A user's mistake, described in one sentence.

    The sentence names the file, line, field or option and says what to do. The command
    line prints it without a traceback and ends with exit code 2.
    """
