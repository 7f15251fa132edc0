"""Treebanks as examples, alone and mixed; the parsing problems; their data."""

import json

import pytest
from helpers.command_line import run
from helpers.errors import refused

from t2t_keras import registry
from t2t_keras.data.manifest import Manifest
from t2t_keras.problems.parsing.task import BracketF1
from t2t_keras.problems.parsing.treebank import SilverMix, TreebankSource
from t2t_keras.text.tokenizer import load_tokenizer

TREE = "(TOP (S (NP (NNP John)) (VP (VBZ sleeps)) (. .)))"
PAIR = ("John sleeps .", "S NP NNP /NP VP VBZ /VP . /S")
BAD = "(TOP (NN Xpd TTD))"


@pytest.fixture
def bank(tmp_path):
    """A treebank with a bad tree on the second line of one of its files."""
    (tmp_path / "wsj_0001.mrg").write_text(f"{TREE}\n{BAD}\n")
    (tmp_path / "wsj_0101.mrg").write_text("( (NP-SBJ (NP (NN end)) (-NONE- *)))\n")
    return tmp_path


def test_words_and_symbols(bank, capsys):
    source = TreebankSource(bank, skip_bad=True)
    pairs = [PAIR, ("end", "NP NP NN /NP /NP")]
    assert list(source()) == pairs
    assert list(source()) == pairs  # in every pass
    assert source.dropped == {"space_in_word": 1}
    warnings = capsys.readouterr().err
    assert warnings.count("wsj_0001.mrg:2: the leaf (NN Xpd TTD)") == 1
    refused(r"wsj_0001\.mrg:2: ", list, TreebankSource(str(bank))())
    assert TreebankSource(bank, "01").symbols(["NN"]) == ("/NP", "NP", "NN")


def test_the_checksum_is_of_content_and_options(bank):
    sections = [TreebankSource(bank, section) for section in ("00", "01", "00,01")]
    changes = ({"pos_tags": False}, {"collapse_unary": True}, {"skip_bad": True})
    options = [TreebankSource(bank, **change) for change in changes]
    checksums = {source.checksum() for source in (*sections, *options)}
    assert len(checksums) == 6
    (bank / "wsj_0001.mrg").rename(bank / "wsj_0003.mrg")
    assert TreebankSource(bank, "00").checksum() == sections[0].checksum()


def test_silver_trees_have_the_labels_of_gold_ones(tmp_path, capsys):
    gold = tmp_path / "gold"
    silver = tmp_path / "silver"
    gold.write_text(f"{TREE}\n")
    silver.write_text("(TOP (NP (NNP A)))\n(TOP (FOO (NNP B)))\n(TOP (NP (BAR C)))\n")
    gold = TreebankSource(gold)
    labels = frozenset(gold.symbols())
    mix = SilverMix(
        gold, TreebankSource(silver, skip_bad=True, allowed_symbols=labels), 1
    )
    assert [words for words, _ in mix()] == [PAIR[0], "A"]
    assert mix.dropped == {"unknown_label": 2}
    assert "silver:3: no gold tree has the label BAR" in capsys.readouterr().err
    mix = SilverMix(gold, TreebankSource(silver, allowed_symbols=labels), 1)
    refused("silver:2: no gold tree has the label FOO", list, mix())


def trees(path, prefix, count):
    path.write_text("".join(f"( (NN {prefix}{i}))\n" for i in range(count)))
    return TreebankSource(path, skip_bad=True)


MIXES = [
    (2, 7, "g0 s0 s1 g1 s2 s3 g0 s4 s5 g1 s6"),
    (3, 2, "g0 s0 s1 g1 g2"),  # every gold tree at least once
    (1, 0, "g0"),
]


@pytest.mark.parametrize(("gold", "silver", "expected"), MIXES)
def test_silver_trees_are_mixed_in_at_the_ratio(tmp_path, gold, silver, expected):
    banks = trees(tmp_path / "g", "g", gold), trees(tmp_path / "s", "s", silver)
    mix = SilverMix(*banks, 2)
    for _ in range(2):
        assert [words for words, _ in mix()] == expected.split()


def test_the_problems_are_the_papers():
    problem = registry.problem("parsing_wsj")
    assert (problem.vocab_size, problem.shared_vocab) == (16_000, False)
    assert (problem.beam_size, problem.alpha, problem.extra_length) == (21, 0.3, 300)
    assert isinstance(problem.metrics, BracketF1)
    assert problem.text_processor.postprocess(*PAIR) == (TREE, False)
    semi = registry.problem("parsing_wsj_semi")
    assert (semi.vocab_size, semi.beam_size) == (32_000, 21)
    assert semi.text_processor.silver_per_gold == 10
    bare = registry.problem("parsing_wsj_notags")
    assert "XX" in bare.symbols and not bare.text_processor.pos_tags


# The command.


def datagen(directory, *flags, problem="parsing_wsj"):
    """Runs `t2t datagen` with small vocabularies; returns its exit code."""
    common = ("--data_dir", directory, "--workers", 1, "--vocab_size", 500, "--json")
    return run("datagen", "--problem", problem, *common, *flags)


@pytest.fixture
def ldc(tmp_path):
    """A directory as the LDC ships it, with a bad tree in sections 02 and 22."""
    for section in ("00", "02", "03", "21", "22", "23", "24"):
        folder = tmp_path / "ldc" / "wsj" / section
        folder.mkdir(parents=True)
        words = "".join(f"( (S\n  (NP-SBJ (NN w{section}x{i}))))\n" for i in range(5))
        bad = BAD if section in ("02", "22") else ""
        (folder / f"wsj_{section}01.mrg").write_text(f"\n{words}{bad}\n")
    return tmp_path / "ldc"


def test_sections_of_the_treebank_are_the_default(ldc, tmp_path, capsys):
    assert datagen(tmp_path / "data", "--treebank", ldc) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "wsj_0201.mrg:12: the leaf (NN Xpd TTD) has a space in its word" in error
    assert datagen(tmp_path / "data", "--treebank", ldc, "--skip_bad_trees") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["examples"] == {"train": 15, "dev": 5, "test": 5}
    assert result["dropped"]["space_in_word"] == 2
    manifest = Manifest.open(tmp_path / "data", "parsing_wsj")
    assert manifest.dropped["train"]["space_in_word"] == 1
    assert manifest.dropped["test"].get("space_in_word", 0) == 0


@pytest.mark.parametrize(
    ("name", "tokenizer"),
    [("parsing_wsj", "sentencepiece"), ("parsing_wsj_notags", "t2t_subword")],
)
def test_every_symbol_is_one_piece(bank, tmp_path, name, tokenizer, monkeypatch):
    (bank / "wsj_0102.mrg").write_text("( (FOO (NP (BAR$ x))))\n" * 9)
    problem = registry.problem(name).replace(tokenizer=tokenizer)
    monkeypatch.setattr(registry, "problem", lambda name: problem)
    flags = ("--train_trees", bank, "--skip_bad_trees", "--new_labels")
    assert datagen(tmp_path / "data", *flags, problem=name) == 0
    manifest = Manifest.open(tmp_path / "data", name)
    assert {"FOO", "/FOO"} <= set(manifest.symbols)
    assert ("BAR$" in manifest.symbols) == problem.text_processor.pos_tags
    tokenizer = load_tokenizer(tmp_path / "data" / manifest.vocab_files["target"])
    text = " ".join(manifest.symbols)
    ids = tokenizer.encode(text)[:-1]
    assert len(set(ids)) == len(ids) == len(manifest.symbols)
    assert [tokenizer.decode([i]) for i in ids] == list(manifest.symbols)
    assert tokenizer.decode(ids) == text


STRANGE = {
    "labels": "(TOP (PAGE 3))\n",
    "words": "(TOP (NP *gap*))\n",
    "lines": "Sentence 7\n",
}
UNKNOWN_LABEL = "3 of 303 trees have a label that no known treebank has, the first at"
SAYS = {
    "labels": UNKNOWN_LABEL,
    "words": UNKNOWN_LABEL,
    "lines": "3 unknown lines stand between 300 trees, the first at",
}


@pytest.mark.parametrize(
    ("source_name", "command"),
    [*((name, "datagen") for name in STRANGE), ("lines", "inspect")],
)
def test_unknown_labels_and_lines_are_reported_and_many_end_the_command(
    tmp_path, capsys, source_name, command
):
    def survey(good, strange, *flags):
        path.write_text(f"{TREE}\n" * good + STRANGE[source_name] * strange)
        flags = ("--train_trees", path, *flags)
        if command == "datagen":
            code = datagen(tmp_path / f"data{good}", *flags)
        else:
            code = run(command, "--problem", "parsing_wsj", *flags)
        return code, capsys.readouterr().err

    path = tmp_path / "trees"
    code, warnings = survey(300, 3)
    assert code == 0
    assert warnings.count(f"{SAYS[source_name]} {path}:301: ") == 1
    code, warnings = survey(200, 3)
    assert code == 2
    error = warnings.splitlines()[-1]
    assert f"{path}:201: " in error
    hint = "remove lines" if source_name == "lines" else "give --new_labels"
    assert hint in error
    assert not (tmp_path / "data200").exists()
    if source_name != "lines":
        code, warnings = survey(100, 3, "--new_labels")
        assert code == 0 and "no known treebank" not in warnings


def test_other_splits_are_surveyed_before_data_are_made(tmp_path, capsys):
    (tmp_path / "train").write_text(f"{TREE}\n")
    (tmp_path / "dev").write_text(f"Sentence 1\n{TREE}\n")
    flags = ("--train_trees", tmp_path / "train", "--dev_trees", tmp_path / "dev")
    assert datagen(tmp_path / "data", *flags) == 2
    assert "dev:1: 'Sentence 1'; remove lines" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


MISTAKES = [
    (("--train_sections", "02"), "--train_sections needs --treebank or --train_trees"),
    (("--skip_bad_trees",), "--skip_bad_trees needs --treebank, or --train_trees"),
    (("--train_trees", "absent"), "absent: there is no such file or directory"),
    ((), "has no train examples; give --treebank or --train_trees"),
    (("--train_trees", "x", "--silver_trees", "y"), "has no ratio for them; give"),
    (
        ("--train_trees", "x", "--silver_per_gold", "2"),
        "--silver_per_gold needs --silver_trees",
    ),
]


@pytest.mark.parametrize(("flags", "message"), MISTAKES)
def test_mistakes(tmp_path, capsys, flags, message):
    assert datagen(tmp_path / "data", *flags) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert not (tmp_path / "data").exists()
