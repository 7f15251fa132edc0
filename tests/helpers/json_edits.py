"""Changes to JSON files by hand, after which their checksum has to be removed."""

import json
from pathlib import Path


def edit_json(path: Path, **changes: object) -> None:
    """Sets fields of a JSON file; None removes one."""
    fields = json.loads(path.read_text(encoding="utf-8")) | changes | {"sha256": None}
    present = {name: value for name, value in fields.items() if value is not None}
    path.write_text(json.dumps(present), encoding="utf-8")
