"""Where the tests find real data that is not part of the repository."""

import os
from pathlib import Path

import pytest

_ROOT = Path(
    os.environ.get("T2T_KERAS_REFERENCE", Path(__file__).parents[2] / "shared" / "data")
)


def reference(name: str) -> Path:
    """Returns the path of a reference file; skips the test where it is absent."""
    path = _ROOT / name
    if not path.exists():
        pytest.skip(f"needs the reference data {name} (set T2T_KERAS_REFERENCE)")
    return path
