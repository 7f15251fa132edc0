"""JSON files of other programs."""

import json
from pathlib import Path
from typing import Any

from t2t_keras.option import UserError


def read_given_json(path: Path) -> Any:
    """Reads a JSON file that another program has written.

    Raises:
        UserError: it cannot be read, or is not JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from None
