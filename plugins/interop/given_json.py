"""JSON files that other programs have written."""

import json
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import open_binary, readable

JsonObject = dict[str, Any]


def read_json_object(path: Path) -> JsonObject:
    """Reads a file that holds a JSON object.

    Raises:
        UserError: the file cannot be read, is not JSON, or holds another value.
    """
    with readable(path), open_binary(path) as file:
        content = file.read()
    try:
        value = json.loads(content.decode("utf-8-sig"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from None
    except RecursionError:
        raise UserError(f"{path} is nested too deeply") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} is not a JSON object")
    return value
