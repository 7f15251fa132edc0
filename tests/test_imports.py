"""The import rules of the package: who may import whom, and who needs TensorFlow.

import-linter would be the usual tool, but it does not see `t2t_keras.problems` and
`t2t_keras.hparams`, which stand at the top level of the repository.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# The units of the core, in the order in which they may import each other.
FOUNDATION = ("option", "hparam", "problem", "registry")
CORE = {
    **{name: {*FOUNDATION[:i]} for i, name in enumerate(FOUNDATION)},
    "text": {*FOUNDATION},
    "data": {*FOUNDATION, "text"},
    "model": {*FOUNDATION},
    "decoding": {*FOUNDATION, "text", "data", "model"},
    "evaluation": {*FOUNDATION, "text", "data", "model", "decoding"},
    "training": {*FOUNDATION, "text", "data", "model", "decoding", "evaluation"},
}
CORE["export"] = CORE["training"] | {"training"}
CORE["cli"] = CORE["export"] | {"export"}
CORE["__init__"] = CORE["cli"]
# These use the core, and nothing of each other.
PLUGINS = {"problems", "hparams", "plugins"}

# Files that answer at once: they import TensorFlow and Keras inside functions only.
LIGHT = (
    *("option.py", "hparam.py", "problem.py", "registry.py", "__init__.py", "cli"),
    *("training/runs.py", "training/train_options.py", "training/stopping.py"),
    *("problems/toy", "problems/translate.py", "hparams", "data/sources.py"),
    *("evaluation/bleu.py", "evaluation/moses.py", "data/pharaoh.py"),
    "export/formats.py",
    *(f"problems/parsing/{name}.py" for name in ("task", "commands", "tree", "wsj")),
    *(f"problems/parsing/{name}.py" for name in ("treebank", "linearise", "words")),
    *(f"problems/parsing/{name}.py" for name in ("punctuation", "evalb")),
    *(f"plugins/reports/{name}.py" for name in ("describe", "compare", "doctor")),
    *("plugins/corpus", "plugins/engines/__init__.py", "plugins/interop/exports.py"),
    *("plugins/interop/importing.py", "plugins/interop/adopting.py"),
)
# Files that run on every Keras backend: no TensorFlow anywhere.
BACKEND_FREE = ("model",)


def package_files() -> dict[str, Path]:
    """Every file of the package by its path inside `t2t_keras`."""
    folders = {"": "t2t_keras"} | {f"{name}/": name for name in sorted(PLUGINS)}
    return {
        prefix + path.relative_to(ROOT / folder).as_posix(): path
        for prefix, folder in folders.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
    }


def imports(path: Path, *, top_level_only: bool = False) -> Iterator[tuple[int, str]]:
    """Yields the line and the dotted name of everything that a file imports.

    What is imported for type checkers only is left out.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    inner = {
        node
        for function in ast.walk(tree)
        if isinstance(function, functions)
        for node in ast.walk(function)
    }
    for_types = {
        node
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if node in for_types or (top_level_only and node in inner):
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module
            if node.level:
                module = ".".join(filter(None, (_siblings(path, node), node.module)))
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def _siblings(path: Path, node: ast.ImportFrom) -> str:
    """The package that a relative import starts from.

    Only files at the top level of the repository import each other relatively: a type
    checker finds them under no other name.
    """
    package = path.parent.relative_to(ROOT).parts
    relative = package[0] in PLUGINS and node.level <= len(package)
    assert relative, f"{path}:{node.lineno}: a relative import"
    return ".".join(("t2t_keras", *package[: len(package) - node.level + 1]))


def matching(names: tuple[str, ...]) -> list[str]:
    return [
        file
        for file in package_files()
        if any(file == name or file.startswith(f"{name}/") for name in names)
    ]


def test_imports_are_found_and_told_apart(tmp_path):
    file = tmp_path / "some.py"
    file.write_text("""
import keras.layers as layers
class C:
    from t2t_keras.data import sources, files
    def f(self):
        import tensorflow
""")
    outside = [
        (2, "keras.layers"),
        (4, "t2t_keras.data.sources"),
        (4, "t2t_keras.data.files"),
    ]
    assert sorted(imports(file)) == sorted([*outside, (6, "tensorflow")])
    assert sorted(imports(file, top_level_only=True)) == sorted(outside)


def test_relative_imports_are_of_problems_and_hparams():
    toy = ROOT / "problems" / "toy" / "grammar.py"
    (node,) = ast.parse("from . import lexicon").body
    (above,) = ast.parse("from .. import translate").body
    (outside,) = ast.parse("from ... import setup").body
    assert _siblings(toy, node) == "t2t_keras.problems.toy"
    assert _siblings(toy, above) == "t2t_keras.problems"
    for file, refused in ((ROOT / "t2t_keras" / "lock.py", node), (toy, outside)):
        with pytest.raises(AssertionError, match="a relative import"):
            _siblings(file, refused)


@pytest.mark.parametrize("file", package_files())
def test_units_import_one_way(file):
    parts = file.removesuffix(".py").split("/")
    unit = parts[0]
    for line, name in imports(package_files()[file]):
        root, *rest = name.split(".")
        if root != "t2t_keras" or not rest or rest[0] in _public_names():
            continue
        if unit in PLUGINS:  # the core, and its own folder
            own = rest[0] == unit and (unit != "plugins" or rest[1] == parts[1])
            allowed = own or rest[0] in CORE
        else:
            allowed = rest[0] == unit or rest[0] in CORE[unit]
        assert allowed, f"{file}:{line}: {unit} may not import {name}"


def _public_names() -> set[str]:
    """What `from t2t_keras import X` offers."""
    import t2t_keras

    return set(t2t_keras.__all__)


@pytest.mark.parametrize("file", matching(LIGHT))
def test_light_files_import_tensorflow_inside_functions(file):
    for line, name in imports(package_files()[file], top_level_only=True):
        root = name.partition(".")[0]
        assert root not in ("tensorflow", "keras", "tensorflow_text"), f"{file}:{line}"


@pytest.mark.parametrize("file", matching(BACKEND_FREE))
def test_layers_model_and_loss_run_on_every_backend(file):
    for line, name in imports(package_files()[file]):
        assert not name.startswith("tensorflow"), f"{file}:{line}"


def test_every_package_has_one_paragraph_about_itself():
    for file, path in package_files().items():
        if file.endswith("__init__.py"):
            assert ast.get_docstring(ast.parse(path.read_text())), file


def test_the_core_knows_nothing_of_parsing():
    words = re.compile(r"tree|bracket|evalb|silver", re.IGNORECASE)
    libraries = re.compile(r"\b(keras\.tree|shutil\.rmtree|ElementTree|xml\.etree)\b")
    found = [
        f"{name}:{number}: {line}"
        for name, path in package_files().items()
        if not name.startswith(("problems/", "hparams/", "plugins/"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(libraries.sub("", line))
    ]
    assert not found
