"""Every text file that the code opens names its encoding."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

FOLDERS = ("t2t_keras", "problems", "hparams", "plugins", "examples", "benchmarks")


def test_every_text_file_names_its_encoding():
    """In a locale that is not UTF-8, Python would take that of the locale."""
    missing = []
    for path in (p for name in FOLDERS for p in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and opens_text(node):
                missing.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not missing


def opens_text(call: ast.Call) -> bool:
    """Returns whether a call reads or writes text without its encoding."""
    function = call.func
    is_method = isinstance(function, ast.Attribute)
    name = function.attr if is_method else getattr(function, "id", "")
    words = [
        argument.value for argument in call.args if isinstance(argument, ast.Constant)
    ]
    if "utf-8" in words or any(
        argument.arg == "encoding" for argument in call.keywords
    ):
        return False
    if name == "read_text":  # that of a distribution has the name of a file
        return is_method and not call.args
    if name == "write_text":
        return is_method
    is_text = any(re.fullmatch(r"[rwax]\+?t?", str(word)) for word in words)
    has_default_mode = name == "open" and not is_method and len(call.args) == 1
    return name in ("open", "fdopen") and (is_text or has_default_mode)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("path.read_text()", True),
        ("path.read_text('utf-8', 'replace')", False),
        ("distribution.read_text('METADATA')", False),
        ("path.write_text(text)", True),
        ("path.write_text(text, encoding='utf-8')", False),
        ("open(path)", True),
        ("open(path, 'a+')", True),
        ("path.open('w')", True),
        ("path.open('rb')", False),
        ("open(path, 'w', -1, 'utf-8')", False),
        ("Manifest.open(path, name)", False),
    ],
)
def test_calls_that_open_text_are_recognized(code, expected):
    assert opens_text(ast.parse(code).body[0].value) == expected
