"""Trees in memory: parsing, preparation, printing."""

import pytest

from t2t_keras.problems.parsing.tree import (
    BadTree,
    Tree,
    parse_tree,
    parse_trees,
    prepare,
)

DOGS = "(TOP (S (NP (NNS dogs)) (VP (VBP run)) (. .)))"


def test_prepare_removes_traces_function_tags_and_the_empty_outer_label():
    tree = parse_tree("""
( (S
    (NP-SBJ-1 (-LRB- -LRB-) (PRP$ its) (NN pound)
      (SBAR-TMP (WHNP-1 (-NONE- 0) ) (S (-NONE- *T*-1) )))
    (VP (VBD was)
      (NP=2 (-NONE- *-1) ))
    (. .) ))
""")
    assert prepare(tree).format() == (
        "(TOP (S (NP (-LRB- -LRB-) (PRP$ its) (NN pound)) (VP (VBD was)) (. .)))"
    )


@pytest.mark.parametrize(
    ("text", "kept", "collapsed"),
    [
        (
            "(TOP (NP (NP-1 (NP=2 (NN a)))))",
            "(TOP (NP (NP (NP (NN a)))))",
            "(TOP (NP (NN a)))",
        ),
        # A chain only when the trace beside it is gone; another label ends it.
        (
            "(TOP (VP (VP (S (VP (VB go)))) (NP (-NONE- *))))",
            "(TOP (VP (VP (S (VP (VB go))))))",
            "(TOP (VP (S (VP (VB go)))))",
        ),
        # Not a tag of the same name, not where there are two children.
        ("(TOP (NP (NP a)))", "(TOP (NP (NP a)))", "(TOP (NP (NP a)))"),
        ("(TOP (X (X (NN a)) (. .)))",) + ("(TOP (X (X (NN a)) (. .)))",) * 2,
    ],
)
def test_chains_of_one_label_are_kept_or_collapsed(text, kept, collapsed):
    assert prepare(parse_tree(text)).format() == kept
    assert prepare(parse_tree(text), collapse_unary=True).format() == collapsed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("( (S (NN a)))", "(TOP (S (NN a)))"),
        ("(ROOT (S (NN a)))", "(TOP (S (NN a)))"),
        ("( (S (NN a)) (. .))", "(TOP (S (NN a)) (. .))"),
        ("(TOP (NP (NP-1 (NN a))))", "(TOP (NP (NP (NN a))))"),
        ("(TOP (ADVP|PRT (= =)))", "(TOP (ADVP|PRT (= =)))"),
    ],
)
def test_prepare_normalises_the_outer_label(text, expected):
    prepared = prepare(parse_tree(text))
    assert prepared.format() == expected
    assert prepare(prepared) == prepared


def test_depth_has_no_limit():
    depth = 20_000
    text = "(X " * depth + "(NN a)" + ")" * depth
    tree = prepare(parse_tree(text))
    assert tree.format() == f"(TOP {text})"
    assert tree.words() == ["a"]


BAD = [
    ("(TOP (S (NN a))", 2, "not closed; 1 bracket missing", "unbalanced_brackets"),
    ("(TOP (S (NN a)))) ", 2, "')' stands outside", "unbalanced_brackets"),
    ("loose words", 2, "'loose' stands outside", "unbalanced_brackets"),
    ("(TOP (NML (NN Xpd TTD)))", 2, "(NN Xpd TTD) has a space", "space_in_word"),
    ("(TOP\n (S\n  (NN a b c)))", 4, "(NN a b c) has a space", "space_in_word"),
    ("(TOP (NP the (NN dog)))", 2, "'the' stands beside", "word_without_tag"),
    ("(TOP (NP (NN dog) barks))", 2, "'barks' stands beside", "word_without_tag"),
    ("(TOP (S (NN a(b))))", 2, "'a' stands beside", "word_without_tag"),
    ("(TOP (S ((NN a))))", 2, "no label", "bracket_without_label"),
    ("(TOP (S))", 2, "no words", "no_words"),
    ("()", 2, "no words", "no_words"),
    ("(TOP (NN a) (S (b c d e) (f g h)))", 2, "(b c d e) has", "space_in_word"),
]


@pytest.mark.parametrize(("bad", "line", "says", "reason"), BAD)
def test_what_is_wrong_with_a_tree_stands_in_its_place(bad, line, says, reason):
    text = f"(TOP (NN good))\n{bad}\n"
    (first, good), (_, error) = parse_trees(text.split("\n"), "file.mrg")
    assert (first, good.words()) == (1, ["good"])
    assert isinstance(error, BadTree) and error.reason == reason
    assert str(error).startswith(f"file.mrg:{line}: ") and says in str(error)
    assert "\n" not in str(error)


def test_the_good_trees_around_a_bad_one_are_kept():
    line = "( (NN a)) (TOP (NN Xpd TTD)) (TOP ((NN x))) ( (NN b))"
    found = [tree for _, tree in parse_trees([line, "( (S", "(NN c))))"], "f", 7)]
    assert [type(tree) for tree in found] == [Tree, BadTree, BadTree, Tree, BadTree]
    assert [found[0].words(), found[3].words()] == [["a"], ["b"]]
    assert str(found[4]).startswith("f:9: ")  # the bracket too many
