"""Files that documents link to exist, and have the names that documents give."""

import re

import pytest
from helpers.documents import DOCUMENTS, ROOT, anchors, name_of, prose

LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)")
# [file.py](path) followed by `names` in it: `function`, `Class.method`, `field`.
NAMED = re.compile(r"\]\(([^)\s]+\.py)\)((?:,? `[\w.]+`)+)")


def test_links_and_names_are_found():
    """Without any, the tests below would pass."""
    texts = list(map(prose, DOCUMENTS))
    assert sum(len(LINK.findall(text)) for text in texts) > 200
    assert sum(len(NAMED.findall(text)) for text in texts) > 40


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_to_files_and_headings(document):
    for target, anchor in LINK.findall(prose(document)):
        if target.startswith(("http:", "https:")):
            continue
        path = document.parent / target if target else document
        assert path.exists(), f"{document.name}: {target}"
        if anchor and path.suffix == ".md":
            assert anchor in anchors(path), f"{document.name}: {target}#{anchor}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_names_are_in_the_files_that_they_follow(document):
    for target, names in NAMED.findall(prose(document)):
        text = (document.parent / target).read_text(encoding="utf-8")
        missing = names_in(names) - names_in(text)
        assert not missing, f"{document.name}: {target} has no {missing}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_tests_that_are_named_exist(document):
    defined = {
        name
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    files = {path.stem for path in (ROOT / "tests").rglob("*.py")}
    text = prose(document)
    named = set(re.findall(r"`(test_\w+)`", text)) - files
    assert named <= defined, f"{document.name}: {sorted(named - defined)}"
