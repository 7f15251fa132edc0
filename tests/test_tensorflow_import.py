"""TensorFlow's remarks on the machine are hidden from the first import on."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
import t2t_keras
from t2t_keras.usr_dir import load_usr_dir
load_usr_dir(sys.argv[1])
print(os.environ["TF_CPP_MIN_LOG_LEVEL"])
"""
LATER = """
import tensorflow as tf
tf.config.list_physical_devices("GPU")
assert int(tf.constant(1) + 1) == 2
"""


def run(program, folder, **env):
    """Runs a program with a user's file that imports TensorFlow."""
    line = "import sys, tensorflow; print('mine', file=sys.stderr)\n"
    (folder / "mine").mkdir()
    (folder / "mine" / "with_tensorflow.py").write_text(line)
    command = [sys.executable, "-c", program, folder / "mine"]
    env = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"} | env
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("env", "printed"),
    [
        ({}, ("3\n", "mine\n")),
        ({"TF_CPP_MIN_LOG_LEVEL": "0"}, ("0\n", "a remark\nmine\n")),
    ],
)
def test_what_its_import_prints_is_hidden_unless_the_level_is_0(env, printed, tmp_path):
    """A file that prints as C++ code does stands for TensorFlow."""
    (tmp_path / "tensorflow.py").write_text("import os; os.write(2, b'a remark\\n')\n")
    assert run(PROGRAM, tmp_path, PYTHONPATH=str(tmp_path), **env) == printed


@pytest.mark.slow
def test_tensorflow_itself_is_quiet(tmp_path):
    assert run(PROGRAM + LATER, tmp_path) == ("3\n", "mine\n")
