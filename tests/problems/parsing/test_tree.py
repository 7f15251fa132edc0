"""Treebanks on the disk: formats, directories, sections, bad trees, real treebanks."""

import re

import pytest
from helpers.errors import refused
from helpers.reference import reference

from t2t_keras.problems.parsing.tree import parse_tree, parse_trees, prepare
from t2t_keras.problems.parsing.treebank import read_trees, tree_files

GOOD = "(TOP (S (NN good)))\n"
MRG = """
( (S
    (NP-SBJ-1 (-LRB- -LRB-) (PRP$ its) (NN pound)
      (SBAR-TMP (WHNP-1 (-NONE- 0) ) (S (-NONE- *T*-1) )))
    (VP (VBD was)
      (NP (-NONE- *-1) ))
    (. .) ))
( (NP=2 (NN value) ))
"""


def test_trees_over_several_lines_and_a_tree_a_line(tmp_path):
    (tmp_path / "wsj_0001.mrg").write_text(MRG)
    trees = [tree.format() for tree in read_trees(tmp_path)]
    assert trees == [
        "(TOP (S (NP (-LRB- -LRB-) (PRP$ its) (NN pound)) (VP (VBD was)) (. .)))",
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
    assert len(trees) == 3914
    # A second reading of the same files, by regular expression.
    leaves = re.findall(r"\(([^()\s]+) ([^()\s]+)\)", text)
    nodes = (node for tree in trees for node, _ in tree.walk() if node.word)
    assert [(node.label, node.word) for node in nodes] == leaves
    words = [word for tag, word in leaves if tag != "-NONE-"]
    assert [w for tree in trees for w in prepare(tree).words()] == words


# Trees in memory: parsing, preparation, printing.


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
