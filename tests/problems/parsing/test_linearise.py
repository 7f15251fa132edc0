"""Trees to symbols and back."""

import itertools
import json

import pytest
from helpers.errors import refused
from helpers.reference import reference

from t2t_keras.problems.parsing.linearise import linearise, restore
from t2t_keras.problems.parsing.tree import Tree, parse_tree, prepare
from t2t_keras.problems.parsing.treebank import read_trees
from t2t_keras.problems.parsing.words import mark_tags


def test_symbols_equal_those_of_tensor2tensor():
    cases = json.loads(reference("t2t/oracle/misc/wsj_linearisation.json").read_text())
    cases = [case for case in cases if "tags" in case]
    assert len(cases) == 40
    for case in cases:
        tree = parse_tree(case["tree"])
        assert " ".join(linearise(tree)) == case["tags"]
        assert " ".join(tree.words()) == case["words"]


def shape(tree: Tree) -> str:
    """The tree without the tags."""
    return " ".join(
        node.word or (f"({node.label}" if entering else ")")
        for node, entering in tree.walk()
    )


TREEBANKS = {"wsj_sample": 3914, "craft/dev.mrg": 2780, "craft/train.mrg.gz": 18_947}


ALL = [pytest.param(name, 1, marks=pytest.mark.slow) for name in TREEBANKS]


@pytest.mark.parametrize(
    ("name", "share"), [("wsj_sample", 20), ("craft/dev.mrg", 20), *ALL]
)
def test_tree_to_symbols_to_tree_is_the_identity(name, share):
    """With tags, and without them but for the tags."""
    reference_trees = read_trees(reference(name), on_bad=lambda error: None)
    count = TREEBANKS[name] // share
    trees = list(itertools.islice(reference_trees, count))
    assert len(trees) == count
    for tree in trees:
        words = tree.words()
        assert restore(words, linearise(tree)) == tree
        bare = linearise(tree, pos_tags=False)
        restored = restore(words, bare)
        assert restored.words() == words
        assert linearise(restored, pos_tags=False) == bare
        assert shape(restored) == shape(tree)


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
def test_closers_distinguish_labels_and_tags(tree):
    tree = prepare(parse_tree(tree))
    assert restore(tree.words(), linearise(tree)) == tree


def test_symbols_that_are_not_a_tree_are_refused():
    for words, symbols in (
        ("a b", "S NP NN NN"),  # too many leaves, as nothing closes S and NP
        ("a b c", "S NP NN VP VB /NP NN /VP /S"),
        ("a", ""),
    ):
        message = "are not a tree over the"
        refused(message, restore, words.split(), symbols.split())


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
def test_punctuation_is_recognized_by_the_words(words, marks):
    deleted = {",", ":", "``", "''", "."}
    tags = [tag for tag in mark_tags(words.split()) if tag in deleted]
    assert sorted(tags) == sorted(marks.split())
