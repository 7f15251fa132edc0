"""Trees to symbols and back."""

import itertools
import json

import pytest
from reference import reference

from t2t_keras.option import UserError
from t2t_keras.problems.parsing.evalb import evaluate_trees
from t2t_keras.problems.parsing.linearise import (
    linearise,
    restore,
    restore_text,
)
from t2t_keras.problems.parsing.punctuation import mark_tags
from t2t_keras.problems.parsing.tree import Tree, parse_tree, prepare
from t2t_keras.problems.parsing.treebank import read_trees

TREE = "(TOP (S (NP (NNP John)) (VP (VBZ sleeps)) (. .)))"
WORDS = "John sleeps ."
TARGET = "S NP NNP /NP VP VBZ /VP . /S"


def test_the_example_of_tensor2tensor():
    assert " ".join(linearise(parse_tree(TREE))) == TARGET
    assert restore_text(WORDS, TARGET) == TREE


def test_symbols_equal_those_of_tensor2tensor():
    cases = json.loads(reference("t2t/oracle/misc/wsj_linearisation.json").read_text())
    cases = [case for case in cases if "tags" in case]
    assert len(cases) == 40
    for case in cases:
        tree = parse_tree(case["tree"])
        assert " ".join(linearise(tree)) == case["tags"]
        assert " ".join(tree.words()) == case["words"]


def usable_trees(name, count=None):
    """Yields the trees of a treebank, or so many that lie apart."""
    trees = read_trees(reference(name), on_bad=lambda error: None)
    return itertools.islice(trees, 0, None if count is None else 20 * count, 20)


def assert_identity(trees) -> int:
    """Checks tree -> symbols -> tree, with tags and without; returns their number."""
    trees = list(trees)
    for tree in trees:
        words = tree.words()
        assert restore(words, linearise(tree)) == tree
        bare = linearise(tree, pos_tags=False)
        again = restore(words, bare)
        assert again.words() == words
        assert linearise(again, pos_tags=False) == bare
        assert shape(again) == shape(tree)
    return len(trees)


def shape(tree: Tree) -> str:
    """The tree without the tags."""
    return " ".join(
        node.word or (f"({node.label}" if entering else ")")
        for node, entering in tree.walk()
    )


@pytest.mark.parametrize("name", ["wsj_sample", "craft/dev.mrg"])
def test_tree_to_symbols_to_tree_is_the_identity(name):
    assert assert_identity(usable_trees(name, 100)) == 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "number"),
    [("wsj_sample", 3914), ("craft/dev.mrg", 2780), ("craft/train.mrg.gz", 18_947)],
)
def test_the_identity_holds_for_every_tree(name, number):
    trees = read_trees(reference(name), on_bad=lambda error: None)
    assert assert_identity(trees) == number


@pytest.mark.parametrize(
    "tree",
    [
        "(TOP (NP (NP Rome)))",  # a tag that is a constituent's label, too
        "(TOP (S (NP (NP Rome)) (VP (V is) (NP (NN x) (NP y)))))",
        "(TOP (A (B x) (A y)))",
        "(TOP (MYLABEL (MYTAG x)))",
        "(TOP (NN a))",
        "(TOP (NP (NN a)) (. .))",
        "(TOP (NP (HYPH /) (/ /)))",
    ],
)
def test_labels_and_tags_are_told_apart_by_closers(tree):
    tree = prepare(parse_tree(tree))
    assert restore(tree.words(), linearise(tree)) == tree


@pytest.mark.parametrize(
    ("words", "symbols"),
    [
        ("a b", "S NP NN NN"),  # too many leaves, as nothing closes S and NP
        ("a b", "S NP /NP VP NN NN /VP /S"),
        ("a b c", "S NP NN VP VB /NP NN /VP /S"),
        ("a", ""),
    ],
)
def test_what_is_no_tree_over_the_words(words, symbols):
    with pytest.raises(UserError, match="are not a tree over the"):
        restore_text(words, symbols)


@pytest.mark.parametrize(
    ("words", "marks"),
    [
        ("`` We -- all -- agree : so -LRB- he -RRB- says ... ''", "`` : : : : ''"),
        ("the firms ' new bank .", "."),
        ("take ` Cosby ' across the street ?", "`` '' ."),
        ("some ' immature ' cells and the 3 ' end", "'' ``"),
        ("a good one , ' he says ; no !", ", '' : ."),
        ("diluted 1 : 200 in Prx1 : : cre mice", ""),
        ("AER - apical ectodermal ridge", ":"),
        ("wild - type mice – in all", ""),
    ],
)
def test_punctuation_is_told_by_the_words(words, marks):
    deleted = {",", ":", "``", "''", "."}
    found = [tag for tag in mark_tags(words.split()) if tag in deleted]
    assert sorted(found) == sorted(marks.split())


@pytest.mark.parametrize(
    ("name", "most"), [("wsj_sample", 0.01), ("craft/dev.mrg", 0.03)]
)
def test_few_sentences_become_errors_of_evalb_without_tags(name, most):
    gold = list(usable_trees(name, 100))
    restored = [restore(t.words(), linearise(t, pos_tags=False)) for t in gold]
    report = evaluate_trees(
        *([t.format() for t in trees] for trees in (gold, restored))
    )
    summary = report.summary()
    assert summary["error"] <= most * len(gold)
    assert summary["f1"] == pytest.approx(100)
