"""JSON files, which are written atomically and may carry a checksum."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.data.atomic_files import atomic
from t2t_keras.errors import UserError

CHECKSUM = "sha256"  # the field with the digest of all other fields


def write_json(path: Path, value: object, with_checksum: bool = False) -> None:
    """Writes a value as JSON, atomically.

    Args:
        path: the file.
        value: the value.
        with_checksum: whether to add the `digest` of the value, an object, as a field,
            which `read_json` compares.
    """
    if with_checksum:
        fields = json.loads(json.dumps(value))  # as it is read later
        fields.pop(CHECKSUM, None)
        value = fields | {CHECKSUM: digest(fields)}
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    try:
        content = text.encode()
    except UnicodeEncodeError:  # a lone surrogate, as in a path that is not UTF-8
        content = f"{json.dumps(value, indent=2)}\n".encode()
    with atomic(path) as incomplete:
        incomplete.write_bytes(content)


def digest(fields: Mapping[str, object]) -> str:
    """Returns a SHA-256 of fields, which does not depend on their order."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def read_json(
    path: Path, otherwise: str = "remove it and run the same command again"
) -> dict[str, Any] | None:
    """Reads an object that `write_json` wrote; returns None if there is no such file.

    A file of an earlier version has no checksum.

    Args:
        path: the file.
        otherwise: what the user should do if the file is damaged and has no copy.

    Raises:
        UserError: the file is damaged, or it has been changed.
    """
    if not path.exists():
        return None
    restore = f"restore it from a copy, or {otherwise}"
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; {restore}") from None
    except (ValueError, RecursionError):
        raise UserError(f"{path} is damaged: it is not valid JSON; {restore}") from None
    if not isinstance(fields, dict):
        raise UserError(f"{path} is damaged: it is not a JSON object; {restore}")
    if CHECKSUM in fields and fields.pop(CHECKSUM) != digest(fields):
        raise UserError(
            f"{path} has been damaged or edited: its content does not have the "
            f"checksum in its field '{CHECKSUM}'; {restore} (remove that field if you "
            "have edited the file yourself)"
        )
    return fields
