"""What published treebanks write beside words: the trees are invented."""

import itertools

import pytest
from helpers.errors import refused
from helpers.reference import reference

from t2t_keras.problems.parsing.labels import Survey, is_known, unknown_label
from t2t_keras.problems.parsing.tree import (
    BadTree,
    Tree,
    parse_tree,
    parse_trees,
    prepare,
)
from t2t_keras.problems.parsing.treebank import read_trees

GOOD = "(TOP (S (NN good)))\n"

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


def test_trees_stand_in_the_line_of_their_tag_or_number(tmp_path):
    file = tmp_path / "trees"
    lines = [
        *("<S ID=1> ( (S (NN a)) )", "#2 (TOP (NN b))", "#3(S (NN c) (NN d))"),
        *('<DOC><S ID="4"> (S (NN e)) </S></DOC>', "  <s> (TOP", "  (NN f)) </s>"),
        # A tree that is not closed does not take the next one with it.
        *("(TOP (NN x)", "<S ID=6> (TOP (NN g))"),
        # These are no trees: a name, a remark, a tree that someone has left out.
        *("<DATELINE> (AP) </DATELINE>", "# (two) words", "; (TOP (NN x))"),
    ]
    file.write_text("\n".join(lines))
    errors = []
    trees = read_trees(file, on_bad=errors.append)
    words = [["a"], ["b"], ["c", "d"], ["e"], ["f"], ["g"]]
    assert [tree.words() for tree in trees] == words
    assert [str(error).split(" ")[0] for error in errors] == [f"{file}:7:"]


OTHER_FORMATS = [
    ("%% word\ttag\n#FORMAT 3\n#BOS 1 2 3 4\nAnna\tNE\t--\tSB\t500\n", 2, "NEGRA's"),
    ("#BOS 1 2 866 4 %% a\nAnna\tNE\t--\tSB\t500\n", 1, "NEGRA's export format"),
    ('<?xml version="1.0"?>\n<s id="s1">\n <t id="s1_1" word="A"/>\n', 3, "TIGER-XML"),
    ("# sent_id = 1\n1\tA\ta\tNN\tNN\t_\t0\troot\t_\t_\n", 2, "CoNLL's format"),
]


@pytest.mark.parametrize(("content", "line", "name"), OTHER_FORMATS)
def test_formats_without_brackets_are_named(content, line, name, tmp_path):
    file = tmp_path / "trees"
    file.write_text(content)
    message = f"trees:{line}: this is {name}.*; convert the treebank"
    refused(message, list, read_trees(file, survey=Survey()))


def test_remarks_between_trees_may_have_several_lines(tmp_path):
    file = tmp_path / "trees"
    file.write_text(
        f"/*\nHEADER (x\n*/\n{GOOD}/~*\n(TOP (NN y)) */\n*~/\n{GOOD}/* x */\n"
    )
    assert len(list(read_trees(file))) == 2
    file.write_text(f"{GOOD}/~*\n{GOOD}*/\n")
    refused("trees:2: the remark that begins here is not", list, read_trees(file))


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


@pytest.mark.parametrize(
    ("name", "trees"),
    [
        ("wsj_sample", 500),
        pytest.param("wsj_sample", 3914, marks=pytest.mark.slow),
        pytest.param("craft/dev.mrg", 2780, marks=pytest.mark.slow),
    ],
)
def test_no_label_of_the_real_treebanks_is_unknown(name, trees):
    survey = Survey()
    list(itertools.islice(read_trees(reference(name), survey=survey), trees))
    assert survey == Survey(trees=trees)


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
    ("(TOP (S (NN () (VB a))))", 2, "as -LRB- or -RRB-", "bracket_without_label"),
    ("(TOP (S))", 2, "no words", "no_words"),
    ("()", 2, "no words", "no_words"),
    ("(TOP (NN a) (S (b c d e) (f g h)))", 2, "(b c d e) has", "space_in_word"),
]


@pytest.mark.parametrize(("bad", "line", "says", "reason"), BAD)
def test_a_faulty_tree_is_replaced_by_its_error(bad, line, says, reason):
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
