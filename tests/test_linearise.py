import json
import random

import pytest
from reference import reference

from t2t_keras import registry
from t2t_keras.data.treebank import TreebankSource
from t2t_keras.errors import UserError
from t2t_keras.text.linearise import (
    CONSTITUENTS,
    TAGS,
    linearise,
    restore,
    restore_text,
)
from t2t_keras.text.tree import parse_tree, prepare, read_trees

TREE = "(TOP (S (NP (NNP John)) (VP (VBZ sleeps)) (. .)))"
WORDS = "John sleeps ."
SYMBOLS = "S NP NNP /NP VP VBZ /VP . /S"


def test_the_example_of_tensor2tensor():
    assert " ".join(linearise(parse_tree(TREE))) == SYMBOLS
    assert restore_text(WORDS, SYMBOLS) == TREE


def test_symbols_equal_those_of_tensor2tensor():
    cases = json.loads(reference("t2t/oracle/misc/wsj_linearisation.json").read_text())
    cases = [case for case in cases if "tags" in case]
    assert len(cases) == 40
    for case in cases:
        tree = parse_tree(case["tree"])
        assert " ".join(linearise(tree)) == case["tags"]
        assert " ".join(tree.words()) == case["words"]


@pytest.mark.parametrize("name", ["wsj_sample", "craft/dev.mrg", "craft/train.mrg.gz"])
def test_tree_to_symbols_to_tree_is_the_identity(name):
    count = 0
    for tree in read_trees(reference(name), on_bad=lambda error: None):
        assert restore(tree.words(), linearise(tree)) == tree
        count += 1
    assert count > 2_000


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
    ("words", "symbols", "tree"),
    [
        # Left open: closed with the constituent around, or at the end.
        ("a b c", "S NP NN VP VB /VP . /S", "(S (NP (NN a) (VP (VB b)) (. c)))"),
        ("a b", "S NP NN NN", "(S (NP (NN a) (NN b)))"),
        # Closers of nothing, and a constituent of nothing.
        ("a b", "S NP NN /NP /VP /NP NN /S /S", "(S (NP (NN a)) (NN b))"),
        ("a b", "S NP /NP VP NN NN /VP /S", "(S (VP (NN a) (NN b)))"),
        # Crossing brackets.
        ("a b c", "S NP NN VP VB /NP NN /VP /S", "(S (NP (NN a) (VP (VB b))) (NN c))"),
        # Leaves too many, leaves too few.
        ("a", "S NP NN /NP VP VB /VP . /S", "(S (NP (NN a)))"),
        ("a b , '' .", "S NP NN /NP /S", "(S (NP (NN a)) (NN b) (, ,) ('' '') (. .))"),
        ("a .", "", "(NN a) (. .)"),
        ("a b", "NN", "(NN a) (NN b)"),
        # A word from the wrong vocabulary is a tag like any other.
        ("a", "S xyz /S", "(S (xyz a))"),
    ],
)
def test_repair_is_deterministic(words, symbols, tree):
    assert restore_text(words, symbols) == f"(TOP {tree})"


def test_any_symbols_give_a_prepared_tree_with_exactly_the_words():
    generator = random.Random(1)
    inventory = ("S", "NP", "VP", "X", "/S", "/NP", "/VP", "/X", "NN", ".", "/", "x")
    for _ in range(3_000):
        words = [f"w{i}" for i in range(generator.randint(1, 6))]
        symbols = generator.choices(inventory, k=generator.randint(0, 14))
        tree = restore(words, symbols)
        assert tree.words() == words
        assert prepare(parse_tree(tree.format())) == tree
        again = restore(words, linearise(tree))
        assert again.words() == words


def test_damaged_real_trees_keep_their_words():
    generator = random.Random(2)
    for number, tree in enumerate(read_trees(reference("craft/dev.mrg"))):
        symbols = linearise(tree)
        for _ in range(1 + number % 3):
            del symbols[generator.randrange(len(symbols))]
        restored = restore(tree.words(), symbols)
        assert restored.words() == tree.words()
        assert parse_tree(restored.format()) == restored
        if number == 300:
            break


def test_no_depth_is_too_great():
    tree = restore(["a"], ["NP"] * 5_000 + ["NN"])
    assert tree.words() == ["a"]
    assert tree.format().count("(NP") == 5_000


def test_a_line_without_words_stays_empty():
    assert restore_text("", SYMBOLS) == ""


def test_treebank_source_yields_words_and_symbols(tmp_path):
    (tmp_path / "a.mrg").write_text(TREE + "\n(TOP (NN Xpd TTD))\n")
    (tmp_path / "b.mrg").write_text("( (NP-SBJ (NN end) (-NONE- *)))\n")
    errors = []
    source = TreebankSource([tmp_path / "a.mrg", tmp_path / "b.mrg"], errors.append)
    pairs = [(WORDS, SYMBOLS), ("end", "NP NN /NP")]
    assert list(source()) == pairs
    assert list(source()) == pairs  # anew for every pass
    assert len(errors) == 2
    with pytest.raises(UserError, match=r"a\.mrg:2: "):
        list(TreebankSource(str(tmp_path))())


def test_parsing_wsj_is_the_papers():
    problem = registry.problem("parsing_wsj")
    assert (problem.vocab_size, problem.shared_vocab) == (16_000, False)
    assert (problem.beam_size, problem.alpha, problem.extra_length) == (21, 0.3, 300)
    assert problem.output == "trees"
    assert problem.postprocess(WORDS, SYMBOLS) == TREE


def test_the_problems_symbols_are_those_of_the_treebank():
    symbols = registry.problem("parsing_wsj").symbols
    assert len(set(symbols)) == len(symbols)
    assert not set(CONSTITUENTS) & set(TAGS)
    used = {s for t in read_trees(reference("wsj_sample")) for s in linearise(t)}
    assert used - set(symbols) == {"ADVP|PRT", "/ADVP|PRT"}  # an undecided annotator
