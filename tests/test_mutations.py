"""The table of `mutations.py` fits the code and `docs/paper.md`, so that it runs."""

import ast
import re

import pytest
from mutations import ROOT, mutations, named_tests

MUTATIONS = list(mutations())


def test_names_are_unique():
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_changes_the_code_once_and_leaves_it_python(mutation):
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    mutated = mutation.applied_to(text)
    assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse(text))


@pytest.mark.parametrize(
    "statement", sorted({mutation.statement for mutation in MUTATIONS})
)
def test_each_statement_names_tests_that_exist(statement):
    named = named_tests(statement)
    assert named
    for test in named:
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


def test_an_old_text_that_is_gone_is_named():
    mutation = MUTATIONS[0]
    with pytest.raises(ValueError, match=rf"{mutation.name}: .* 0 times, not once"):
        mutation.applied_to("")
