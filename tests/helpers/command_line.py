"""The program as a function, for the tests of its commands."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_keras.cli import main, program


def run(*argv: str | Path) -> int:
    """Runs the program in this process; returns its exit code."""
    try:
        return main([str(word) for word in argv])
    except SystemExit as exit:
        return int(exit.code or 0)


def run_json(capfd: pytest.CaptureFixture, *argv: str | Path) -> dict:
    """Runs a command that must succeed; returns the last line of standard output."""
    capfd.readouterr()
    code = run(*argv, "--json")
    captured = capfd.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out.splitlines()[-1])


def run_refused(capfd: pytest.CaptureFixture, *argv: str | Path) -> str:
    """Runs a command that must be refused in one sentence; returns it."""
    capfd.readouterr()
    assert run(*argv) == 2
    sentence = capfd.readouterr().err
    assert sentence.startswith(f"t2t {argv[0]}: error: ") and sentence.count("\n") == 1
    return sentence


def parsed(*words: str) -> dict:
    """Returns the values of the flags of a command line, by the names of fields."""
    values = dict(vars(program.parse(words)))
    if values["plugin_values"]:  # its class is made at each call
        values["plugin_values"] = vars(values["plugin_values"])
    given = {"words", "config", "given_flags"}
    return {name: values[name] for name in values.keys() - given}


def python(code: str, *arguments: str | Path, input: str = "", **env: str) -> str:
    """Runs code in another process, which must succeed; returns what it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    pipes = {"input": input, "capture_output": True, "text": True}
    done = subprocess.run(command, env=os.environ | env, **pipes)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@contextlib.contextmanager
def standard_input(path: Path):
    """Makes a file the standard input of this process."""
    saved = os.dup(0)
    with path.open("rb") as file:
        os.dup2(file.fileno(), 0)
    try:
        yield
    finally:
        os.dup2(saved, 0)
        os.close(saved)
