"""TOML that users write."""

import tomllib

from t2t_keras.errors import UserError


def parse_toml(text: str, path: str) -> dict[str, object]:
    """Returns the table of a text in TOML.

    Args:
        text: the text.
        path: its file, for messages.

    Raises:
        UserError: it is not TOML, or is nested too deeply.
    """
    try:
        return tomllib.loads(text)
    except ValueError as error:
        raise UserError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise UserError(f"{path}: its lists or tables are nested too deeply") from None
