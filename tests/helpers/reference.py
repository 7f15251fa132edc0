"""Where the tests find real data that is not part of the repository."""

import os
from pathlib import Path

import pytest

# The variable names the folder. Otherwise it is found beside the repository by EVALB's
# files: a user's data directory may hold a public corpus as well.
_BESIDE = sorted(Path(__file__).resolve().parents[3].glob("*/data/evalb"))
_ROOT = Path(
    os.environ.get("T2T_KERAS_REFERENCE")
    or (_BESIDE[0].parent if _BESIDE else "absent")
)


def reference(name: str) -> Path:
    """Returns the path of a reference file; skips the test where it is absent."""
    path = _ROOT / name
    if not path.exists():
        pytest.skip(f"needs the reference data {name} (set T2T_KERAS_REFERENCE)")
    return path
