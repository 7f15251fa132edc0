"""The folders of a clone that install as subpackages, for Python started in the clone.

It imports the clone's `t2t_keras`, even after `pip install .`, which puts `problems`,
`hparams` and `plugins` into the installed package only.
"""

import importlib.util
from pathlib import Path


def absent_folders() -> list[str]:
    """Returns what to add to the path of `t2t_keras`: [] if it has all subpackages."""
    if importlib.util.find_spec("t2t_keras.problems"):
        return []
    root = Path(__file__).resolve().parents[1]
    return [str(root), str(root / "plugins")]  # the second one for `t2t_keras.testing`
