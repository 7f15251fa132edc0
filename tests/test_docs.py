"""What the documents point at exists: files, and the names said to be in them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])

LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
# [file.py](path) followed by `names` in it: `function`, `Class.method`, `field`.
NAMED = re.compile(r"\]\(([^)\s]+\.py)\)((?:,? `[\w.]+`)+)")


def prose(document: Path) -> str:
    """A document without its blocks of code."""
    text = document.read_text(encoding="utf-8")
    return re.sub("^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document):
    for target in LINK.findall(prose(document)):
        if not target.startswith(("http:", "https:")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_names_are_in_the_files_that_they_follow(document):
    for target, names in NAMED.findall(prose(document)):
        text = (document.parent / target).read_text(encoding="utf-8")
        missing = names_in(names) - names_in(text)
        assert not missing, f"{document.name}: {target} has no {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_tests_that_are_named_exist(document):
    defined = {
        name
        for path in (ROOT / "tests").glob("*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    files = {path.stem for path in (ROOT / "tests").glob("*.py")}
    text = prose(document)
    named = set(re.findall(r"`(test_\w+)`", text)) - files
    assert named <= defined, f"{document.name}: {sorted(named - defined)}"


@pytest.mark.parametrize("package", sorted((ROOT / "t2t_keras").glob("*/__init__.py")))
def test_a_package_names_its_files(package):
    """The docstring of each folder mentions every file in it."""
    text = package.read_text(encoding="utf-8")
    files = {path.stem for path in package.parent.glob("*.py")} - {"__init__"}
    assert {name for name in files if f"`{name}`" not in text} == set()
