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

# Package -> the packages that its files may import, anywhere in the file.
FOUNDATION = {"errors", "option", "hparam", "problem", "registry", "standard_error"}
FOUNDATION |= {"metrics", "model_card", "lock", "wire_format"}
ENGINE = FOUNDATION | {"backend"}
MAY_IMPORT = {
    "errors": set(),
    "standard_error": set(),
    "lock": {"errors"},
    "model_card": set(),
    "backend": {"errors"},
    "option": {"errors"},
    "wire_format": set(),
    "hparam": {"errors", "option"},
    "metrics": {"errors"},
    "problem": {"errors", "metrics"},
    "registry": {"errors", "hparam", "metrics", "problem"},
    # Beside each other: from text to ids and back.
    "text": FOUNDATION,
    "data": ENGINE | {"text"},
    "analysis": FOUNDATION,
    # One upon the other: from tensors to programs.
    "model": ENGINE,
    "decoding": ENGINE | {"text", "model"},
    "runs": ENGINE | {"text", "data", "model", "decoding"},
    "evaluation": ENGINE | {"text", "data", "model", "decoding", "runs"},
    "training": ENGINE
    | {"text", "data", "analysis"}
    | {"model", "decoding", "runs", "evaluation"},
    "serving": ENGINE | {"text", "model", "decoding"},
    "server": ENGINE | {"text", "analysis", "decoding", "serving"},
    "interop": ENGINE | {"text", "data", "model", "decoding", "runs", "serving"},
    # One task, which generic code knows nothing of but at its registration in cli.
    "parsing": ENGINE | {"text", "data", "cli"},
    "cli": ENGINE
    | {"data", "evaluation", "analysis"}
    | {"decoding", "runs", "training", "serving", "server"}
    | {"interop", "parsing"},
    # Definitions know the engine; the engine finds them by entry points.
    "problems": FOUNDATION | {"text", "data", "parsing"},
    "hparams": FOUNDATION,
}

# Files that answer at once: they import TensorFlow and Keras inside functions only.
LIGHT = (
    *("errors.py", "hparam.py", "problem.py", "registry.py", "__init__.py", "cli"),
    *("runs/__init__.py", "runs/train_options.py", "standard_error.py"),
    "training/stopping.py",
    *("problems", "hparams", "data/sources.py", "metrics", "analysis"),
    *(f"parsing/{name}.py" for name in ("task", "commands", "tree", "treebank")),
    *(f"parsing/{name}.py" for name in ("linearise", "punctuation", "words", "evalb")),
)
# Files that run on every Keras backend: no TensorFlow anywhere.
BACKEND_FREE = ("model",)
# Files that run without any.
ARITHMETIC = ("analysis",)


def package_files() -> dict[str, Path]:
    """Every file of the package by its path inside `t2t_keras`."""
    folders = {"": "t2t_keras", "problems/": "problems", "hparams/": "hparams"}
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

    Only files of `problems/` and `hparams/` import each other so: a type checker, which
    sees them at the top level of the repository, finds them under no other name.
    """
    package = path.parent.relative_to(ROOT).parts
    relative = package[0] in ("problems", "hparams") and node.level <= len(package)
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
    toy = ROOT / "problems" / "toy" / "german.py"
    (node,) = ast.parse("from . import lexicon").body
    (above,) = ast.parse("from .. import translate").body
    (outside,) = ast.parse("from ... import setup").body
    assert _siblings(toy, node) == "t2t_keras.problems.toy"
    assert _siblings(toy, above) == "t2t_keras.problems"
    for file, refused in ((ROOT / "t2t_keras" / "lock.py", node), (toy, outside)):
        with pytest.raises(AssertionError, match="a relative import"):
            _siblings(file, refused)


@pytest.mark.parametrize("file", package_files())
def test_packages_import_one_way(file):
    package = file.partition("/")[0].removesuffix(".py")
    for line, name in imports(package_files()[file]):
        root, _, rest = name.partition(".")
        if root != "t2t_keras" or package == "__init__":
            continue
        imported = rest.partition(".")[0]
        assert imported == package or imported in (
            MAY_IMPORT[package] | _public_names()
        ), f"{file}:{line}: {package} may not import {imported}"


def _public_names() -> set[str]:
    """What `from t2t_keras import X` offers; it all stems from the foundation."""
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


@pytest.mark.parametrize("file", matching(ARITHMETIC))
def test_arithmetic_needs_neither_tensorflow_nor_keras(file):
    for line, name in imports(package_files()[file]):
        assert name.partition(".")[0] not in ("tensorflow", "keras"), f"{file}:{line}"


def test_every_package_has_rules_and_one_paragraph_about_itself():
    packages = {file.partition("/")[0] for file in package_files() if "/" in file}
    assert packages <= set(MAY_IMPORT)
    for package in packages:
        source = package_files()[f"{package}/__init__.py"].read_text()
        assert ast.get_docstring(ast.parse(source)), f"{package}/__init__.py"


def test_generic_code_knows_nothing_of_parsing():
    words = re.compile(r"tree|bracket|evalb|silver", re.IGNORECASE)
    libraries = re.compile(r"\b(keras\.tree|shutil\.rmtree|ElementTree|xml\.etree)\b")
    found = [
        f"{name}:{number}: {line}"
        for name, path in package_files().items()
        if not name.startswith(("parsing/", "problems/", "hparams/"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(libraries.sub("", line))
    ]
    assert not found


def test_no_two_files_have_one_name():
    names = [path.name for path in package_files().values()]
    assert {n for n in names if names.count(n) > 1} == {"__init__.py"}
