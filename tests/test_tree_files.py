"""Treebanks on the disk: formats, directories, sections, bad trees, real treebanks."""

import itertools
import json
import re

import pytest
from errors import refused
from reference import reference

from t2t_keras.problems.parsing.labels import is_known, unknown_label
from t2t_keras.problems.parsing.linearise import linearise, restore, restore_text
from t2t_keras.problems.parsing.punctuation import mark_tags
from t2t_keras.problems.parsing.survey import Survey
from t2t_keras.problems.parsing.tree import (
    BadTree,
    Tree,
    parse_tree,
    parse_trees,
    prepare,
)
from t2t_keras.problems.parsing.treebank import read_trees
from t2t_keras.problems.parsing.treebank_files import tree_files

GOOD = "(TOP (S (NN good)))\n"
MRG = """
( (S
    (NP-SBJ-1 (DT The) (NN pound) )
    (VP (VBD was)
      (NP (-NONE- *-1) ))
    (. .) ))
( (NP=2 (NN value) ))
"""


def test_trees_over_several_lines_and_a_tree_a_line(tmp_path):
    (tmp_path / "wsj_0001.mrg").write_text(MRG)
    trees = [tree.format() for tree in read_trees(tmp_path)]
    assert trees == [
        "(TOP (S (NP (DT The) (NN pound)) (VP (VBD was)) (. .)))",
        "(TOP (NP (NN value)))",
    ]
    _, raw = next(parse_trees(MRG.split("\n"), "mrg"))
    assert raw.label == "" and raw.children[0].children[0].label == "NP-SBJ-1"
    lines = tmp_path / "lines"
    lines.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(trees).encode())
    assert [tree.format() for tree in read_trees(lines)] == trees


@pytest.mark.parametrize(
    ("sections", "file_numbers"),
    [
        ("02-21", ["0200", "0299", "2199"]),
        ("22", ["2200"]),
        ("23,00", ["0001", "2300"]),
        ("21-2299", ["2199", "2200"]),
        ("", ["0001", "0200", "0299", "2199", "2200", "2300", "other"]),
    ],
)
def test_sections_are_chosen_by_the_names_of_the_files(
    tmp_path, sections, file_numbers
):
    files = [f"{n[:2]}/wsj_{n}.mrg" for n in ("0001", "0200", "0299", "2199", "2200")]
    for name in (*files, "23/wsj_2300.mrg.gz", "other.mrg"):
        (tmp_path / "wsj" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "wsj" / name).touch()
    names = [file.name for file in tree_files(tmp_path, sections)]
    assert [name.removeprefix("wsj_").split(".")[0] for name in names] == file_numbers


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ("train", "'train' is neither a section"),
        ("21-02", "the range '21-02' ends before it begins"),
        ("24", "wsj: no file wsj_SSNN.mrg is in the sections 24; give others"),
    ],
)
def test_sections_that_are_none(tmp_path, sections, message):
    (tmp_path / "wsj").mkdir()
    (tmp_path / "wsj" / "wsj_0201.mrg").write_text(GOOD)
    refused(message, tree_files, tmp_path / "wsj", sections)


def test_a_line_that_is_not_utf8_can_be_left_out(tmp_path):
    file = tmp_path / "trees"
    file.write_bytes(GOOD.encode() + b"(TOP (NN \xe9))\n" + GOOD.encode())
    errors = []
    assert len(list(read_trees(file, on_bad=errors.append))) == 2
    assert [error.reason for error in errors] == ["not_utf8"]


def test_every_tree_of_the_treebank_sample_is_read():
    text = "".join(f.read_text() for f in tree_files(reference("wsj_sample")))
    trees = [tree for _, tree in parse_trees(text.split("\n"), "wsj")]
    assert len(trees) == len(list(read_trees(reference("wsj_sample")))) == 3914
    # A second reading of the same files, by regular expression.
    leaves = re.findall(r"\(([^()\s]+) ([^()\s]+)\)", text)
    nodes = (node for tree in trees for node, _ in tree.walk() if node.word)
    assert [(node.label, node.word) for node in nodes] == leaves
    words = [word for tag, word in leaves if tag != "-NONE-"]
    assert [w for tree in trees for w in prepare(tree).words()] == words


# Trees in memory: parsing, preparation, printing.


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
    ("text", "expected", "collapsed"),
    [
        ("(NP (NP-1 (NP=2 (NN a))))", "(NP (NP (NP (NN a))))", "(NP (NN a))"),
        # Without the trace it is a chain; another label ends it.
        ("(V (V (S (V a))) (NP (-NONE- *)))", "(V (V (S (V a))))", "(V (S (V a)))"),
        # Not a tag of the same name, not where there are two children.
        *([text] * 3 for text in ("(NP (NP a))", "(X (X (NN a)) (. .))")),
    ],
)
def test_chains_of_one_label_are_kept_or_collapsed(text, expected, collapsed):
    tree = parse_tree(f"(TOP {text})")
    assert prepare(tree).format() == f"(TOP {expected})"
    assert prepare(tree, collapse_unary=True).format() == f"(TOP {collapsed})"


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


# What published treebanks write beside words: the trees are invented.
CONVENTIONS = [
    # Negra, Tiger and SPMRL: the root, and a trace.
    (
        "(VROOT (S (NE-SB Anna) (VVFIN-HD mag)) ($. .))",
        "(S (NE Anna) (VVFIN mag)) ($. .)",
    ),
    ("(TOP (VROOT (S (NE Anna))) ($. .))", "(S (NE Anna)) ($. .)"),
    (
        "( (S (NE-SB Anna) (VP-OC (NP-OA *T1*) (VVPP da))))",
        "(S (NE Anna) (VP (VVPP da)))",
    ),
    ("(VROOT (S (NE Anna)) ($*LRB* *LRB*))", "(S (NE Anna)) ($*LRB* *LRB*)"),
    # SPMRL: features. The Penn Treebank's tag # is a tag.
    ("(S (DET##lem=le|cpos=D## Le) (P+D##a=b-c## au))", "(S (DET Le) (P+D au))"),
    ("(QP (# #) (CD 5))", "(QP (# #) (CD 5))"),
    # The Penn-Helsinki corpora, and words with lemmas, as in IcePaHC.
    (
        "( (IP-MAT (CODE <P_3>) (NP-SBJ *con*) (VBD went) (CP (WNP-1 0) (C 0)))"
        " (ID A,3.1))",
        "(IP (VBD went))",
    ),
    ("( (IP-MAT (VBD *) (HVD *-1) (NUM 0)) (ID A,.1))", "(IP (NUM 0))"),
    ("( (META (NP (N Exit))) (ID A,.2))", "(META (NP (N Exit)))"),
    (
        "( (IP (VBDI kom-koma) (N a-b-a-b) (. .-.)) (ID A,.1))",
        "(IP (VBDI kom) (N a-b) (. .))",
    ),
    ("( (IP (VBDI kom) (N a-b) (. .)) (ID A,.1))", "(IP (VBDI kom) (N a-b) (. .))"),
    # The Switchboard's codes and disfluencies.
    (
        "( (S (CODE (SYM SpeakerA1) (. .)) (EDITED (RM (-DFL- x)) (NP (NN a)))"
        " (-DFL- E_S)))",
        "(S (EDITED (NP (NN a))))",
    ),
    # The same forms where they are words.
    ("( (S (UH *sigh*) (SYM *) (CD 0)))", "(S (UH *sigh*) (SYM *) (CD 0))"),
]


@pytest.mark.parametrize(("text", "expected"), CONVENTIONS)
def test_prepare_knows_the_conventions_of_treebanks(text, expected):
    prepared = prepare(parse_tree(text))
    assert prepared.format() == f"(TOP {expected})"
    assert unknown_label(prepared) == ("(UH *sigh*)" if "sigh" in text else None)


LINES = """\
*x*x*x*x*x*
*x* Copyright (C) 1995 *x*
<DOC>
<DATE> 2000-01-01 </DATE>
<S ID=1>
( (IP (NN a)) )
</S>
%% Sent 2
( (S
<S ID=2>
    (NN b)) )
;; a remark
% another
# text = c
(TOP (NN c))
( (CODE <P_4>) (ID A,4.1))
"""


def test_lines_that_treebanks_have_between_trees(tmp_path):
    file = tmp_path / "trees"
    file.write_text(LINES)
    assert [tree.words() for tree in read_trees(file)] == [["a"], ["b"], ["c"]]
    file.write_text(f"{LINES}\n(TOP (NN x)")  # in its place nevertheless
    refused("trees:18: the tree that begins here is not closed", list, read_trees(file))


def test_an_unknown_line_is_not_lost_unseen(tmp_path):
    file = tmp_path / "trees"
    file.write_text(f"{GOOD}Sentence 2\n{GOOD}")
    refused("trees:2: 'Sentence' stands outside", list, read_trees(file))
    survey = Survey()
    assert len(list(read_trees(file, survey=survey))) == 2
    assert survey.sentences() == [
        f"1 unknown line stands between 2 trees, the first at {file}:2: 'Sentence 2'"
    ]


@pytest.mark.parametrize(
    ("label", "is_expected"),
    [
        *((label, True) for label in ("NP-SBJ-1", "ADV21", "N^D", "NEG+BEPI", "P+D")),
        *((label, True) for label in ("$.", "SENT", "ADVP|PRT", "-LRB-", "DET##a=b##")),
        *((label, False) for label in ("FOO", "PAGE", "NP+", "np", "ID", "TOP2x")),
    ],
)
def test_labels_of_published_treebanks_are_known(label, is_expected):
    assert is_known(label) == is_expected


def test_no_label_of_the_real_treebanks_is_unknown():
    survey = Survey()
    for name in ("wsj_sample", "craft/dev.mrg"):
        list(read_trees(reference(name), survey=survey))
    assert survey == Survey(trees=3914 + 2780)


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
    (first_line, good), (_, error) = parse_trees(text.split("\n"), "file.mrg")
    assert (first_line, good.words()) == (1, ["good"])
    assert isinstance(error, BadTree) and error.reason == reason
    assert str(error).startswith(f"file.mrg:{line}: ") and says in str(error)
    assert "\n" not in str(error)


def test_the_good_trees_around_a_bad_one_are_kept():
    line = "( (NN a)) (TOP (NN Xpd TTD)) (TOP ((NN x))) ( (NN b))"
    trees = [tree for _, tree in parse_trees([line, "( (S", "(NN c))))"], "f", 7)]
    assert [type(tree) for tree in trees] == [Tree, BadTree, BadTree, Tree, BadTree]
    assert [trees[0].words(), trees[3].words()] == [["a"], ["b"]]
    assert str(trees[4]).startswith("f:9: ")  # the bracket too many


# Trees to symbols and back.


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
    ("name", "step"), [("wsj_sample", 20), ("craft/dev.mrg", 20), *ALL]
)
def test_tree_to_symbols_to_tree_is_the_identity(name, step):
    """With tags, and without them but for the tags."""
    reference_trees = read_trees(reference(name), on_bad=lambda error: None)
    trees = list(itertools.islice(reference_trees, 0, None, step))
    assert len(trees) == -(-TREEBANKS[name] // step)
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
def test_labels_and_tags_are_told_apart_by_closers(tree):
    tree = prepare(parse_tree(tree))
    assert restore(tree.words(), linearise(tree)) == tree


def test_what_is_no_tree_over_the_words():
    for words, symbols in (
        ("a b", "S NP NN NN"),  # too many leaves, as nothing closes S and NP
        ("a b c", "S NP NN VP VB /NP NN /VP /S"),
        ("a", ""),
    ):
        refused("are not a tree over the", restore_text, words, symbols)


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
    tags = [tag for tag in mark_tags(words.split()) if tag in deleted]
    assert sorted(tags) == sorted(marks.split())
