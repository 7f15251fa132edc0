"""Treebanks on the disk: formats, directories, sections, bad trees, real treebanks."""

import re

import pytest
from reference import reference

from t2t_keras.option import UserError
from t2t_keras.problems.parsing.tree import parse_trees, prepare
from t2t_keras.problems.parsing.treebank import read_trees, tree_files

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
    ("sections", "numbers"),
    [
        ("02-21", ["0200", "0299", "2199"]),
        ("22", ["2200"]),
        ("23,00", ["0001", "2300"]),
        ("21-2299", ["2199", "2200"]),
        ("", ["0001", "0200", "0299", "2199", "2200", "2300", "other"]),
    ],
)
def test_sections_are_chosen_by_the_names_of_the_files(tmp_path, sections, numbers):
    for number in ("0001", "0200", "0299", "2199", "2200", "2300"):
        (tmp_path / "wsj" / number[:2]).mkdir(parents=True, exist_ok=True)
        suffix = "mrg.gz" if number == "2300" else "mrg"
        file = tmp_path / "wsj" / number[:2] / f"wsj_{number}.{suffix}"
        file.write_bytes(b"")
    (tmp_path / "brown").mkdir()
    (tmp_path / "wsj" / "other.mrg").write_bytes(b"")
    names = [file.name for file in tree_files(tmp_path, sections)]
    assert [name.removeprefix("wsj_").split(".")[0] for name in names] == numbers


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
    with pytest.raises(UserError, match=message):
        tree_files(tmp_path / "wsj", sections)


def test_a_bad_tree_is_named_by_file_and_line_and_can_be_left_out(tmp_path):
    file = tmp_path / "trees.mrg"
    bad = "(TOP (S (NN a b)))\n( (S (NN a)\n(TOP (S\n (-NONE- *)))\n"
    file.write_text(GOOD + bad + GOOD)
    with pytest.raises(UserError, match=rf"{file}:2: the leaf \(NN a b\)"):
        list(read_trees(file))
    errors = []
    trees = list(read_trees(file, on_bad=errors.append))
    assert [tree.format() for tree in trees] == [GOOD.strip()] * 2
    places = [str(error).split(": ")[0] for error in errors]
    assert places == [f"{file}:{line}" for line in (2, 3, 4)]
    reasons = [error.reason for error in errors]
    assert reasons == ["space_in_word", "unbalanced_brackets", "no_words"]


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


@pytest.mark.slow
def test_every_usable_tree_of_craft_is_read_and_the_others_are_named():
    errors = []
    path = reference("craft/train.mrg.gz")
    count = sum(1 for _ in read_trees(path, on_bad=errors.append))
    assert count + len(errors) == 18_951
    lines = [int(re.search(r":(\d+): ", str(error)).group(1)) for error in errors]
    assert lines == [17490, 17495, 17506, 17609]
    assert {error.reason for error in errors} == {"space_in_word"}
