"""What `t2t` does at a terminal: versions, completion, colours."""

import importlib.metadata
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run

ROOT = Path(__file__).parents[1]
BAR = """
import time
from t2t_keras.data.files import progress
with progress("counting", "lines", 4) as advance:
    for _ in range(4):
        advance(1)
"""
COLOUR = re.compile(r"\x1b\[[0-9;]*\b(3[0-9]|38;[0-9;]+|9[0-7])m")


def test_version(capfd):
    assert run("--version") == 0
    version = importlib.metadata.version
    assert capfd.readouterr().out == (
        f"t2t_keras {version('t2t_keras')} (tensorflow {version('tensorflow')}, "
        f"keras {version('keras')})\n"
    )


def test_without_a_verb_there_is_the_help(capfd):
    assert run("--help") == 0
    expected = capfd.readouterr()
    assert run() == 0
    assert capfd.readouterr() == expected
    assert expected.err == ""


def progress_bar(in_terminal, **environ):
    """Returns what a progress bar writes to standard error."""
    names = ("NO_COLOR", "FORCE_COLOR", "TERM")
    env = {k: v for k, v in os.environ.items() if k not in names}
    env |= {"TERM": "xterm-256color", **environ}
    command = [sys.executable, "-c", BAR]
    if not in_terminal:
        done = subprocess.run(command, env=env, stderr=subprocess.PIPE, check=True)
        return done.stderr.decode()
    terminal, end = pty.openpty()
    with subprocess.Popen(command, env=env, stderr=end) as process:
        os.close(end)
        text = b""
        try:
            while part := os.read(terminal, 65536):
                text += part
        except OSError:  # the process has closed it
            pass
    os.close(terminal)
    assert process.returncode == 0
    return text.decode()


def test_colours_are_for_terminals():
    shown = progress_bar(True)
    assert COLOUR.search(shown) and "counting: 4 lines" in shown
    shown = progress_bar(True, NO_COLOR="1")
    assert not COLOUR.search(shown) and "\x1b[" in shown and "counting" in shown


@pytest.mark.parametrize(
    ("in_terminal", "environ"),
    [(False, {}), (False, {"FORCE_COLOR": "1"}), (True, {"TERM": "dumb"})],
)
def test_nothing_but_text_goes_elsewhere(in_terminal, environ):
    shown = progress_bar(in_terminal, **environ)
    assert "\x1b" not in shown
    assert re.fullmatch(r"counting: 4 lines in [\d.]+ s \(.*\)\r?\n", shown)


COMPLETE = """
eval "$(register-python-argcomplete t2t)"
complete_line() {
    COMP_LINE="$1" COMP_POINT=${#1} COMP_TYPE=9
    COMP_WORDS=($1)
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _python_argcomplete t2t
    echo "${COMPREPLY[@]}"
}
complete_line "t2t tra"
complete_line "t2t train --hparams_s"
complete_line "t2t train --problem translate_ende_toy_"
complete_line "t2t train --usr_dir $1 --problem capt"
"""


def test_completion_in_bash_does_without_tensorflow(tmp_path):
    """Verbs, flags, and registered names, also those of --usr_dir."""
    imported = tmp_path / "imported"
    (tmp_path / "tensorflow.py").write_text(f"open({str(imported)!r}, 'w')\n")
    folders = [str(Path(sys.executable).parent), os.environ["PATH"]]
    env = os.environ | {"PATH": os.pathsep.join(folders), "PYTHONPATH": str(tmp_path)}
    usr_dir = str(ROOT / "examples" / "my_problem")
    done = subprocess.run(
        ["bash", "-c", COMPLETE, "bash", usr_dir],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [line.split() for line in done.stdout.splitlines()]
    assert found == [
        ["train", "translate"],
        ["--hparams_set"],
        ["translate_ende_toy_rev"],
        ["captions_ende"],
    ]
    assert not imported.exists()
