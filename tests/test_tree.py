import gzip
import re

import pytest
from reference import reference

from t2t_keras.errors import UserError
from t2t_keras.text.tree import Tree, parse_tree, prepare, read_trees, tree_files

DOGS = "(TOP (S (NP (NNS dogs)) (VP (VBP run)) (. .)))"
MRG = """
( (S
    (NP-SBJ-1 (DT The) (NN pound) )
    (VP (VBD was)
      (NP (-NONE- *-1) ))
    (. .) ))
( (NP=2 (-LRB- -LRB-) (PRP$ its) (NN value)
    (SBAR-TMP (WHNP-1 (-NONE- 0) ) (S (-NONE- *T*-1) ))))
"""


def test_parse_reads_labels_tags_and_words():
    tree = parse_tree(DOGS)
    assert tree == Tree(
        "TOP",
        (
            Tree(
                "S",
                (
                    Tree("NP", (Tree("NNS", word="dogs"),)),
                    Tree("VP", (Tree("VBP", word="run"),)),
                    Tree(".", word="."),
                ),
            ),
        ),
    )
    assert tree.words() == ["dogs", "run", "."]
    assert tree.tags() == ["NNS", "VBP", "."]
    assert tree.format() == DOGS


def test_prepare_removes_traces_function_tags_and_the_empty_outer_label(tmp_path):
    (tmp_path / "wsj_0001.mrg").write_text(MRG)
    first, second = read_trees(tmp_path)
    assert first.format() == ("(TOP (S (NP (DT The) (NN pound)) (VP (VBD was)) (. .)))")
    assert second.format() == "(TOP (NP (-LRB- -LRB-) (PRP$ its) (NN value)))"
    raw = next(read_trees(tmp_path, raw=True))
    assert raw.label == "" and raw.children[0].children[0].label == "NP-SBJ-1"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("( (S (NN a)))", "(TOP (S (NN a)))"),
        ("(ROOT (S (NN a)))", "(TOP (S (NN a)))"),
        ("( (TOP (S1 (S (NN a)))))", "(TOP (S (NN a)))"),
        ("(S (NN a))", "(TOP (S (NN a)))"),
        ("(NN a)", "(TOP (NN a))"),
        ("( (S (NN a)) (. .))", "(TOP (S (NN a)) (. .))"),
        ("(TOP (NP (NP-1 (NN a))))", "(TOP (NP (NP (NN a))))"),
        ("(TOP (ADVP|PRT (= =)))", "(TOP (ADVP|PRT (= =)))"),
    ],
)
def test_prepare_normalises_the_outer_label(text, expected):
    prepared = prepare(parse_tree(text))
    assert prepared.format() == expected
    assert prepare(prepared) == prepared


def test_white_space_outside_ascii_belongs_to_the_word():
    word = "10\N{NO-BREAK SPACE}000"
    assert parse_tree(f"(TOP (CD {word}))").words() == [word]


def test_a_bracket_in_a_word_is_printed_as_the_treebank_does():
    tree = Tree("TOP", (Tree("SYM", word=":-("),))
    assert tree.format() == "(TOP (SYM :--LRB-))"


def test_depth_has_no_limit():
    depth = 20_000
    text = "(X " * depth + "(NN a)" + ")" * depth
    tree = prepare(parse_tree(text))
    assert tree.format() == f"(TOP {text})"
    assert tree.words() == ["a"]


GOOD = "(TOP (S (NN good)))\n"


@pytest.mark.parametrize(
    ("bad", "line", "says"),
    [
        ("(TOP (S (NN a))\n", 2, "not closed; 1 bracket missing"),
        ("(TOP (S (NN a)))) \n", 2, "')' stands outside"),
        ("loose\n", 2, "'loose' stands outside"),
        ("(TOP (NML (NN Xpd TTD)))\n", 2, "(NN Xpd TTD) has a space"),
        ("(TOP\n (S\n  (NN Xpd TTD)))\n", 4, "(NN Xpd TTD) has a space"),
        ("(TOP (NP the (NN dog)))\n", 2, "'the' stands beside"),
        ("(TOP (NP (NN dog) barks))\n", 2, "'barks' stands beside"),
        ("(TOP (S ((NN a))))\n", 2, "no label"),
        ("(TOP (S))\n", 2, "no words"),
        ("(TOP (S (-NONE- *)))\n", 2, "no words"),
    ],
)
def test_a_bad_tree_is_named_by_file_and_line_and_can_be_left_out(
    tmp_path, bad, line, says
):
    file = tmp_path / "trees.mrg"
    file.write_text(GOOD + bad + GOOD)
    with pytest.raises(UserError) as raised:
        list(read_trees(file))
    assert str(raised.value).startswith(f"{file}:{line}: ")
    assert says in str(raised.value)

    errors = []
    trees = list(read_trees(file, on_bad=errors.append))
    assert [tree.format() for tree in trees] == [GOOD.strip()] * 2
    assert len(errors) == 1


def test_files_are_found_in_order_plain_and_gzipped(tmp_path):
    for section in ("03", "02"):
        (tmp_path / section).mkdir()
        (tmp_path / section / "wsj_1.mrg").write_text(f"( (NN s{section}))")
    with gzip.open(tmp_path / "02" / "wsj_2.mrg.gz", "wt") as file:
        file.write("( (NN gz)) ( (NN two))\n\n")
    (tmp_path / "README").write_text("not a tree")
    words = [tree.words()[0] for tree in read_trees(tmp_path)]
    assert words == ["s02", "gz", "two", "s03"]


def test_what_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        tree_files(tmp_path / "absent")
    with pytest.raises(UserError, match=r"no \.mrg"):
        tree_files(tmp_path)
    latin = tmp_path / "latin.mrg"
    latin.write_bytes(GOOD.encode() + "(TOP (NN é))\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin\.mrg:2: .*UTF-8"):
        list(read_trees(latin))
    broken = tmp_path / "broken.mrg.gz"
    broken.write_bytes(gzip.compress(GOOD.encode() * 99)[:-20])
    with pytest.raises(UserError, match="cannot be read"):
        list(read_trees(broken))


def test_one_tree_is_expected_by_parse_tree():
    with pytest.raises(UserError, match="2 trees"):
        parse_tree("(NN a) (NN b)")
    with pytest.raises(UserError, match="0 trees"):
        parse_tree(" ")


def test_every_tree_of_the_treebank_sample_is_read():
    trees = list(read_trees(reference("wsj_sample"), raw=True))
    assert len(trees) == 3914
    # A second reading of the same files, by regular expression.
    text = "".join(f.read_text() for f in tree_files(reference("wsj_sample")))
    leaves = re.findall(r"\(([^()\s]+) ([^()\s]+)\)", text)
    pairs = (zip(tree.tags(), tree.words(), strict=True) for tree in trees)
    assert [leaf for tree_leaves in pairs for leaf in tree_leaves] == leaves
    words = [word for tag, word in leaves if tag != "-NONE-"]
    assert [w for tree in trees for w in prepare(tree).words()] == words


def test_every_usable_tree_of_craft_is_read_and_the_others_are_named():
    errors = []
    path = reference("craft/train.mrg.gz")
    count = sum(1 for _ in read_trees(path, on_bad=errors.append))
    assert count + len(errors) == 18_951
    lines = [int(re.search(r":(\d+): ", str(error)).group(1)) for error in errors]
    assert lines == [17490, 17495, 17506, 17609]
