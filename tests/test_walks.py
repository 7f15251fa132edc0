"""The walks of CONTRIBUTING.md: the functions exist, and each is called from above."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TITLE = re.compile(r"^### (.*): (\d+) files$", re.MULTILINE)
ITEM = re.compile(r"^\d+\. `([\w/]+\.py)`((?:\s+`[\w.]+`,?)+)", re.MULTILINE)


def walks():
    """Yields title, number of files, and the (file, function) pairs of each walk."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    titles = list(TITLE.finditer(text))
    for title in titles:
        end = text.find("\n### ", title.end())
        items = ITEM.findall(text[title.end() : end])
        functions = [
            (file, name)
            for file, names in items
            for name in re.findall(r"`([\w.]+)`", names)
        ]
        yield pytest.param(int(title[2]), functions, id=title[1])


def definition(file, name):
    """Returns the tree of a function, `f` or `Class.f`."""
    nodes = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    for part in name.split("."):
        kinds = (ast.FunctionDef, ast.ClassDef)
        (found,) = (n for n in nodes if isinstance(n, kinds) and n.name == part)
        nodes = found.body
    return found


def words(tree):
    """All names and attributes in a piece of code, without leading underscores."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id.lstrip("_")
        elif isinstance(node, ast.Attribute):
            yield node.attr.lstrip("_")


def test_the_document_has_the_walks():
    assert len(list(walks())) == 4
    assert all(len(walk.values[1]) > 5 for walk in walks())


@pytest.mark.parametrize(("most", "functions"), walks())
def test_each_function_is_called_from_above(most, functions):
    mentioned: set[str] = set()
    for place, (file, name) in enumerate(functions):
        tree = definition(file, name)
        *classes, function = name.split(".")
        if place:
            # A layer, like any object with __call__, is called by its own name: its
            # class is mentioned where it is made.
            implicit = function in ("call", "__call__")
            called = {classes[0]} if implicit else {function.lstrip("_")}
            assert called <= mentioned, f"{file} {name} is not called from above"
        mentioned |= set(words(tree))
        if classes:  # what the object is made of
            (owner,) = (
                node
                for node in ast.parse((ROOT / file).read_text(encoding="utf-8")).body
                if isinstance(node, ast.ClassDef) and node.name == classes[0]
            )
            for base in (*owner.bases, *owner.body):
                is_init = isinstance(base, ast.FunctionDef) and base.name == "__init__"
                if is_init or isinstance(base, ast.expr):
                    mentioned |= set(words(base))
        mentioned |= made_in(file)
    assert len({file for file, _ in functions}) <= most


def made_in(file):
    """The classes that the functions of a file make, and what its tables hold."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    tables = {
        w
        for n in tree.body
        if isinstance(n, ast.Assign | ast.AnnAssign)
        for w in words(n)
    }
    return tables | {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id[0].isupper()
    }
