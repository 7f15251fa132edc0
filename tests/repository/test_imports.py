"""The import rules of the package, and the core without its plugins.

import-linter would be the usual tool, but it does not see `t2t_keras.problems`,
`.hparams` and `.plugins`, which stand at the top level of the repository.
"""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_keras.cli import program

ROOT = Path(__file__).parents[2]

# The units of the core, in the order in which they may import each other.
UNITS = (
    *("errors", "tensorflow_import", "entry_points", "checking"),
    *("devices", "processes", "options", "display", "progress_bar", "console"),
    *("pages", "files", "usr_dir", "definitions", "hparam", "ranged_hparams", "text"),
    *("metrics", "problem", "registry", "model", "data", "decoding", "evaluation"),
    "run",
    *("training", "exporting", "cli", "api", "__init__"),
)
CORE = {name: {*UNITS[:i]} for i, name in enumerate(UNITS)}
CORE["exporting"] -= {"training"}
# Inside a function: the core's model is built.
CORE["registry"] |= {"model"}
# These use the core, and nothing of each other but what is declared here.
PLUGINS = {"problems", "hparams", "plugins"}
DECLARED = {"ray": {"launch"}, "sweep": {"reports"}}

# The commands of the core.
COMMANDS = {"list", "datagen", "train", "config", "average", "translate", "score"}
COMMANDS |= {"evaluate", "export"}

# Commands and definitions answer at once: they, and the files of `t2t_keras/` itself,
# import TensorFlow and Keras inside functions only.
LIGHT = ("cli/", "files/", "hparams/", "problems/")
LIGHT += tuple(f"plugins/{name}/" for name in ("corpus", "ray", "reports", "sweep"))
# What runs in the graph.
GRAPH = ("problems/parsing/graph.py", "problems/parsing/balanced_brackets.py")


def package_files() -> dict[str, Path]:
    """Every file of the package by its path inside `t2t_keras`."""
    folders = {"": "t2t_keras"} | {f"{name}/": name for name in sorted(PLUGINS)}
    return {
        prefix + path.relative_to(ROOT / folder).as_posix(): path
        for prefix, folder in folders.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


FILES = package_files()


@functools.cache
def imports(path: Path, *, top_level: bool = False) -> list[tuple[int, str]]:
    """Returns the line and the dotted name of everything that a file imports.

    Args:
        path: the file.
        top_level: whether to leave out imports in functions and for type checkers.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inner = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING")
        for node in ast.walk(block)
    }
    package = path.parent.relative_to(ROOT).parts if path.is_relative_to(ROOT) else ()
    names = []
    for node in ast.walk(tree):
        if top_level and node in inner:
            continue
        if isinstance(node, ast.Import):
            names += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:  # type checkers find files outside t2t_keras only so
                assert package[0] in PLUGINS, f"{path}:{node.lineno}: relative"
                parents = package[: len(package) - node.level + 1]
                module = ".".join(("t2t_keras", *parents, *filter(None, [module])))
            names += [(node.lineno, f"{module}.{alias.name}") for alias in node.names]
    return names


def test_imports_are_found_and_told_apart(tmp_path):
    file = tmp_path / "some.py"
    file.write_text("""
import keras.layers as layers
class C:
    from t2t_keras.data import sources, files
    def f(self):
        import tensorflow
""")
    outside = {"keras.layers", "t2t_keras.data.sources", "t2t_keras.data.files"}
    assert {name for _, name in imports(file)} == outside | {"tensorflow"}
    assert {name for _, name in imports(file, top_level=True)} == outside


def test_units_import_one_way():
    """The core imports no plugin, and no plugin another one that it does not declare.

    A plugin that another one imports declares none, so that there are no circles.
    """
    import t2t_keras

    assert not DECLARED.keys() & set().union(*DECLARED.values())
    for file, path in FILES.items():
        unit, *below = file.removesuffix(".py").split("/")
        for line, name in imports(path):
            root, *modules = name.split(".")
            if root != "t2t_keras" or not modules or modules[0] in t2t_keras.__all__:
                continue
            allowed = modules[0] in (CORE.get(unit, CORE))
            if unit == "plugins":
                known = {below[0]} | DECLARED.get(below[0], set())
                allowed |= any(modules[:2] == ["plugins", name] for name in known)
            else:
                allowed |= modules[0] == unit
            assert allowed, f"{file}:{line}: {unit} may not import {name}"


HEAVY = ("tensorflow", "keras", "tensorflow_text")


def test_light_files_import_tensorflow_inside_functions():
    for file in FILES.keys() - {*GRAPH}:
        if file.startswith(LIGHT) or "/" not in file:
            for line, name in imports(FILES[file], top_level=True):
                package = name.split(".")[0]
                assert package not in HEAVY, f"{file}:{line}"


def test_the_model_runs_on_every_backend():
    for file in FILES:
        if file.startswith("model/"):
            names = [name for _, name in imports(FILES[file])]
            assert not any(name.startswith("tensorflow") for name in names), file


def test_commands_of_the_core_and_their_flags_have_help():
    for name, command in program.commands().items():
        line = program.command_line(name, command)
        assert command.summary and all(flag.help() for flag in line.flags.values())
    assert program.CORE.keys() == COMMANDS


# The core without its plugins: an installation from which they were deleted.

# An editable installation would find them in the repository.
FORGET = """
import sys
sys.meta_path = [x for x in sys.meta_path if "__editable__" not in str(x)]
"""
HELP = "from t2t_keras.cli import main; main(['--help'])"


@pytest.fixture
def alone(tmp_path):
    """The environment of a process that has the core, `problems` and `hparams` only."""
    package = tmp_path / "t2t_keras"
    shutil.copytree(ROOT / "t2t_keras", package)
    shutil.copytree(ROOT / "hparams", package / "hparams")
    left_out = shutil.ignore_patterns("parsing")
    shutil.copytree(ROOT / "problems", package / "problems", ignore=left_out)
    (tmp_path / "sitecustomize.py").write_text(FORGET)
    return os.environ | {"PYTHONPATH": str(tmp_path), "COLUMNS": "80"}


def test_without_plugins_there_are_the_verbs_of_the_core(alone, tmp_path):
    command = [sys.executable, "-c", HELP]
    options = {"env": alone, "cwd": tmp_path, "capture_output": True}
    shown = subprocess.run(command, **options, check=True)
    assert not shown.stderr
    listed = re.findall(r"^  (\w+)  +[a-z]", shown.stdout.decode(), re.MULTILINE)
    assert set(listed) == COMMANDS
