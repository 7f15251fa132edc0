"""JSON files of other programs."""

import json
from pathlib import Path
from typing import Any

from t2t_keras.data.text_files import open_binary, readable
from t2t_keras.errors import UserError


def read_given_json(path: Path) -> Any:
    """Reads a JSON file that another program has written.

    Raises:
        UserError: it cannot be read, or is not JSON.
    """
    with readable(path), open_binary(path) as file:
        content = file.read()
    try:
        return json.loads(content.decode("utf-8-sig"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from None
    except RecursionError:
        raise UserError(f"{path} is nested too deeply") from None
