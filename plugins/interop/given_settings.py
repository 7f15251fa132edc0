"""Files of settings that other programs have written."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import open_binary, readable


def read_json_object(path: Path) -> dict[str, Any]:
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


def require_setting(
    settings: Mapping[str, object], origin: str | Path, name: str, *supported: object
) -> None:
    """Refuses a model that `Transformer` cannot represent.

    Args:
        settings: the settings of the model.
        origin: the file or set that has them, for messages.
        name: the name of the setting.
        *supported: its values that can be represented; the first is meant if it lacks.

    Raises:
        UserError: the setting has another value.
    """
    value = settings.get(name, supported[0])
    if value not in supported:
        raise UserError(
            f"{origin}: cannot read a model with {name} {value!r}, only with "
            f"{' or '.join(map(repr, supported))}"
        )
