"""Python that is started in a clone has all subpackages, even after `pip install .`."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROGRAM = """
import importlib.util, json, sys
sys.meta_path = [x for x in sys.meta_path if "editable" not in x.__module__]
sys.path = ["", *(path for path in sys.path if path)]
import t2t_keras
from t2t_keras import registry
names = ("problems", "hparams", "plugins.server", "testing")
found = {x: importlib.util.find_spec(f"t2t_keras.{x}").origin for x in names}
registry.problem("translate_ende_toy")
print(json.dumps(found))
"""


def test_clone_has_all_subpackages():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    folders = ("problems", "hparams", "plugins/server", "plugins/testing")
    files = [str(ROOT / folder / "__init__.py") for folder in folders]
    assert list(json.loads(done.stdout).values()) == files
