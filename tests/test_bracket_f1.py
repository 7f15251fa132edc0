import gzip

import pytest
from reference import reference

from t2t_keras.cli import main
from t2t_keras.option import UserError
from t2t_keras.problems.parsing.evalb import (
    COLLINS,
    ERROR,
    SKIP,
    VALID,
    EvalbParameters,
    evalb_report,
    evaluate_files,
    evaluate_trees,
    read_parameters,
)
from t2t_keras.problems.parsing.task import BracketF1
from t2t_keras.problems.parsing.tree import parse_trees
from t2t_keras.problems.parsing.treebank import read_trees, tree_files

GOLD = "(TOP (S (NP (NNP John)) (VP (VBZ sees) (NP (DT the) (NN dog))) (. .)))"

EVALB_SUMMARY = {  # how EVALB calls our keys
    "Number of sentence": "sentences",
    "Number of Error sentence": "error",
    "Number of Skip  sentence": "skip",
    "Number of Valid sentence": "valid",
    "Bracketing Recall": "recall",
    "Bracketing Precision": "precision",
    "Bracketing FMeasure": "f1",
    "Complete match": "complete_match",
    "Average crossing": "average_crossing",
    "No crossing": "no_crossing",
    "2 or less crossing": "two_or_less_crossing",
    "Tagging accuracy": "tagging_accuracy",
}


def score(gold, test, parameters=COLLINS):
    return evaluate_trees([gold], [test], parameters).sentences[0]


@pytest.mark.parametrize(
    ("gold", "test", "expected", "parameters"),
    [
        ("sample.gld", "sample.tst", "sample.expected", "sample.prm"),
        *[
            ("craft_dev500.gold", "craft_dev500.test", "craft_dev500.expected", prm)
            for prm in ("COLLINS.prm", None)
        ],
    ],
)
def test_report_is_what_the_program_printed(gold, test, expected, parameters):
    gold, test, expected = (
        reference(f"evalb/{name}") for name in (gold, test, expected)
    )
    rules = read_parameters(reference(f"evalb/{parameters}")) if parameters else COLLINS
    result = evaluate_files(gold, test, rules).to_dict()
    printed = expected.read_text()
    assert evalb_report(result) == printed

    # The same figures under their names, for programs.
    rows = printed.split("=" * 76 + "\n")[1].splitlines()
    assert len(rows) == len(result["per_sentence"]) == result["all"]["sentences"]
    for row, sentence in zip(rows, result["per_sentence"], strict=True):
        _, *values = map(float, row.split())
        assert [round(value, 2) for value in sentence.values()] == values
    for title, key in (("-- All --", "all"), ("-- len<=40 --", "len_le_40")):
        block = printed.partition(title)[2].partition("\n--")[0]
        for line in block.strip().splitlines():
            name, value = (part.strip() for part in line.split("="))
            assert f"{result[key][EVALB_SUMMARY[name]]:.2f}" == f"{float(value):.2f}"


def test_the_verb_prints_what_the_program_prints(capsys):
    files = [str(reference(f"evalb/sample.{name}")) for name in ("gld", "tst", "prm")]
    assert main(["f1", *files[:2], "--prm", files[2]]) == 0
    report, _, beyond = capsys.readouterr().out.partition("\n-- Beyond EVALB --\n")
    assert report == reference("evalb/sample.expected").read_text()
    summary = evaluate_files(*files[:2], read_parameters(files[2])).summary()
    assert f"= {summary['f1_errors_as_zero']:6.2f}  (All)" in beyond


def test_the_parameter_file_of_collins_is_the_default():
    assert read_parameters(reference("evalb/COLLINS.prm")) == COLLINS


def test_a_perfect_tree():
    result = evaluate_trees([GOLD], [GOLD]).to_dict()["all"]
    assert result["f1"] == result["f1_errors_as_zero"] == 100
    assert result["complete_match"] == result["tagging_accuracy"] == 100


def test_counts_of_one_sentence_by_hand():
    # S, NP, VP, NP against S, NP, VP and a constituent that crosses the last NP.
    test = "(TOP (S (NP (NNP John)) (VP (X (VBZ sees) (DT a)) (NN dog)) (. .)))"
    result = score(GOLD, test.replace("DT a", "DT the"))
    assert (result.gold, result.test, result.matched) == (4, 4, 3)
    assert (result.crossing, result.words, result.tags) == (1, 4, 4)
    assert result.length == 5  # the full stop counts in the length


@pytest.mark.parametrize(
    ("test", "status"),
    [
        (GOLD, VALID),
        (GOLD.replace("NP (NNP", "NP-SBJ-1 (NNP"), VALID),
        ("", SKIP),
        ("(TOP (. .))", SKIP),
        (GOLD.replace("dog", "cat"), ERROR),
        (GOLD.replace("(DT the)", ""), ERROR),
        (GOLD.replace("(. .)", "(NN .)"), ERROR),  # punctuation is known by its tag
        (GOLD[:-1], ERROR),
        (GOLD + ")", ERROR),
        (GOLD.replace("(NN dog)", "(NN dog x)"), ERROR),
    ],
)
def test_statuses(test, status):
    assert score(GOLD, test).status == status


def test_errors_and_only_errors_count_as_nothing_matched_in_one_figure():
    cat = GOLD.replace("dog", "cat")
    broken = (
        "(TOP (S (NP (NNP John)) (VP (VBZ sees)"  # two brackets, S and VP not closed
    )
    report = evaluate_trees([GOLD] * 4, [GOLD, "", cat, broken])
    result = report.to_dict()["all"]
    assert (result["error"], result["skip"], result["valid"]) == (2, 1, 1)
    assert result["f1"] == 100
    # 4 matched, of 3 x 4 in the gold trees and 4 + 4 + 3 in the test trees.
    assert result["f1_errors_as_zero"] == pytest.approx(100 * 2 * 4 / (12 + 11))
    short = evaluate_trees([GOLD] * 2, [GOLD, ""]).summary()
    assert (short["skip"], short["f1_errors_as_zero"]) == (1, 100)


def test_what_is_left_out_of_f1_is_reported_beside_it():
    metrics = BracketF1()
    cat = GOLD.replace("dog", "cat")
    found = metrics.score([""] * 3, [GOLD, "", cat], [GOLD] * 3)
    assert found == {
        "f1": 100,
        "f1_errors_as_zero": pytest.approx(100 * 2 * 4 / (8 + 8)),
        "error_sentences": 1,
        "skipped_sentences": 1,
    }
    # So that a model which fails on most sentences is not the best.
    worse = GOLD.replace("(NP (NNP John))", "(NNP John)")
    some = metrics.score([""], [worse], [GOLD])
    assert some["f1"] < found["f1"]
    assert metrics.selection_score(some) > metrics.selection_score(found)


def test_labels_equal_by_declaration_and_unlabelled_brackets():
    gold, test = "(S (ADVP (RB up)))", "(S (PRT (RB up)))"
    assert score(gold, test).matched == 2
    assert score(gold, test, EvalbParameters()).matched == 1
    assert score(gold, test, EvalbParameters(labeled=False)).matched == 2


def test_a_bracket_is_matched_once():
    gold, test = "(S (NP (NP (NN a))))", "(S (NP (NP (NP (NN a)))))"
    result = score(gold, test)
    assert (result.gold, result.test, result.matched) == (3, 4, 3)


def test_a_quotation_mark_that_one_tree_leaves_out_is_put_back():
    gold = "(S (NP (NN a) ('' ')) (VP (VB b) (NP (NN c))))"
    test = "(S (NP (NN a) (POS ')) (VP (VB b) (NP (NN c))))"
    assert score(gold, test).status == ERROR
    rules = EvalbParameters(delete_labels=("''",), quote_labels=("''", "POS"))
    for one, other in ((gold, test), (test, gold)):
        result = score(one, other, rules)
        assert (result.status, result.words, result.tags) == (VALID, 4, 3)
        assert (result.gold, result.test, result.matched) == (4, 4, 4)


def test_summary_of_short_sentences_has_the_cutoff_in_its_name():
    rules = EvalbParameters(cutoff_length=3)
    result = evaluate_trees([GOLD, "(S (NN a))"], [GOLD, "(S (NN a))"], rules).to_dict()
    assert result["all"]["sentences"] == 2
    assert result["len_le_3"]["sentences"] == 1


def test_nothing_to_score_gives_zeros():
    result = evaluate_trees([], []).to_dict()["all"]
    assert result["f1"] == result["average_crossing"] == 0


TREEBANK = """
( (S (NP-SBJ-1 (NNP John) )
    (VP (VBZ sees) (NP (-NONE- *T*-1) )
      (NP (DT the) (NN dog) ))
    (. .) ))

( (S (NP (NNP John)) (VP (VBZ sleeps)) (. .)))
"""
SLEEPS = "(TOP (S (NP (NNP John)) (VP (VBZ sleeps)) (. .)))"


def test_gold_trees_may_be_a_treebank(tmp_path):
    (tmp_path / "wsj").mkdir()
    gold, test = tmp_path / "wsj" / "gold.mrg", tmp_path / "test"
    gold.write_text(TREEBANK)
    test.write_text(f"{GOLD}\n{SLEEPS}\n")
    for path in (gold, gold.parent):
        result = evaluate_files(path, test).summary()
        assert (result["valid"], result["f1"], result["tagging_accuracy"]) == (
            *(2, 100, 100),
        )
    test.write_text(GOLD)
    with pytest.raises(UserError, match=r"gold.mrg has 2 trees and .*test has 1 lines"):
        evaluate_files(gold, test)
    gold.write_text(TREEBANK.replace("(VBZ sleeps)", "(VBZ fell asleep)"))
    with pytest.raises(UserError, match=r"gold.mrg:7: .*space"):
        evaluate_files(gold, test)


@pytest.mark.slow
def test_a_treebank_is_prepared_as_evalb_would_have_scored_it():
    """EVALB itself leaves traces out and cuts function tags: nothing changes."""
    path = reference("wsj_sample/wsj_0001.mrg").parent
    files = "".join(file.read_text() for file in tree_files(path))
    raw = [tree.format() for _, tree in parse_trees(files.split("\n"), "wsj")]
    raw = ["(TOP" + text.removeprefix("(") for text in raw]  # which COLLINS leaves out
    prepared = [tree.format() for tree in read_trees(path)]
    result = evaluate_trees(raw, prepared).summary()
    assert (result["valid"], result["complete_match"]) == (3914, 100)
    assert result["tagging_accuracy"] == 100


def test_unequal_numbers_of_trees_are_refused(tmp_path):
    with pytest.raises(UserError, match="2 gold trees and 1 test"):
        evaluate_trees([GOLD, GOLD], [GOLD])
    gold, test = tmp_path / "gold", tmp_path / "test"
    gold.write_text(f"{GOLD}\n\n{GOLD}\n")
    test.write_text(f"{GOLD}\n{GOLD}")  # the last line need not end
    with pytest.raises(UserError, match=r"gold has 3 lines and .*test has 2"):
        evaluate_files(gold, test)
    with pytest.raises(UserError, match="absent"):
        evaluate_files(gold, tmp_path / "absent")


def test_lines_that_are_no_trees_are_told(tmp_path, caplog):
    gold, test = tmp_path / "gold", tmp_path / "test"
    gold.write_text(f"{GOLD}\n\n{GOLD}\n")
    test.write_text(f"(S\n\n{GOLD[:-1]}\n")
    result = evaluate_files(gold, test).summary()
    assert (result["error"], result["skip"]) == (1, 2)
    (message,) = caplog.messages
    assert message == (
        f"{test}: 2 of 3 lines are not trees, the first of them line 1; EVALB counts "
        "them as errors, or skips them if they have no words"
    )


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("CUTOFF_LEN forty", "needs a number"),
        ("DELETE_LABEL", "needs a value"),
    ],
)
def test_a_parameter_without_its_value_is_refused(tmp_path, line, says):
    file = tmp_path / "my.prm"
    file.write_text(f"# comment\n\n{line}\n")
    with pytest.raises(UserError, match=f"my.prm:3: .*{says}"):
        read_parameters(file)


def test_what_evalb_does_not_know_in_a_parameter_file_is_left_out(tmp_path, caplog):
    file = tmp_path / "my.prm"
    file.write_text(
        "DELETE_LABELS TOP\nEQ_LABEL ADVP\n DELETE_LABEL NP\nDELETE_LABEL\tTOP\n"
        "CUTOFF_LEN 30  # words\nMAX_ERROR -1\n"
    )
    assert read_parameters(file) == EvalbParameters(
        cutoff_length=30, delete_labels=("TOP",)
    )
    assert [message.split(": ", 1)[1] for message in caplog.messages] == [
        "EVALB has no parameter 'DELETE_LABELS'",
        "EQ_LABEL needs two values, not 'ADVP'",
        "EVALB has no parameter ''",
    ]


@pytest.mark.parametrize("outer", ["", "TOP", "ROOT", "S1"])
def test_the_outer_bracket_has_many_names_beside_a_treebank(tmp_path, outer):
    """The same figures for every parser's habit, and for a treebank against itself."""
    gold, test = tmp_path / "gold.MRG", tmp_path / "test"
    gold.write_text(TREEBANK)
    lines = [f"({outer} {line.removeprefix('(TOP ')}" for line in (GOLD, SLEEPS)]
    test.write_text("\n".join(lines))
    for sides in ((gold, test), (test, gold), (gold, gold)):
        result = evaluate_files(*sides).summary()
        assert (result["valid"], result["f1"], result["complete_match"]) == (
            2,
            100,
            100,
        )


def test_a_real_treebank_against_itself():
    path = reference("craft/dev.mrg")
    result = evaluate_files(path, path).summary()
    assert (result["valid"], result["complete_match"]) == (2780, 100)


# What the program printed for these, compiled from its source.


def test_of_an_unbalanced_tree_over_the_same_words_the_counts_are_shown():
    gold = "(TOP (S (NP (NN a)) (VP (VB b))))"
    for broken in (gold[:-1], f"{gold})"):
        result = evaluate_trees([gold, GOLD], [broken, GOLD]).to_dict()
        row = evalb_report(result).splitlines()[3]
        assert row.split()[:6] == ["1", "2", "1", "100.00", "100.00", "3"]
        assert row.split()[6:] == ["3", "3", "0", "2", "2", "100.00"]
        assert evalb_report(result).splitlines()[6].split()[2:5] == ["4", "4", "4"]
        assert result["all"]["error"] == 1
        assert result["all"]["f1_errors_as_zero"] == pytest.approx(100 * 8 / 14)


def test_a_tree_without_words_is_skipped_before_quotation_marks_are_put_back():
    rules = EvalbParameters(
        delete_labels=("TOP", "''"), quote_labels=("POS", "''"), cutoff_length=40
    )
    result = score("(TOP (S (NP (POS '))))", "(TOP (S (NP ('' '))))", rules)
    assert result.status == SKIP


def test_f1_is_rounded_as_by_evalb():
    """2 * 23 / (23 + 41) is 71.875; from precision and recall it is a little less."""
    words = [f"(NN w{i})" for i in range(41)]
    gold = " ".join(f"(A {w})" if i < 23 else w for i, w in enumerate(words))
    test = " ".join(f"(A {w})" for w in words)
    result = evaluate_trees([f"(TOP {gold})"], [f"(TOP {test})"]).to_dict()
    counts = [result["per_sentence"][0][f"{k}_brackets"] for k in ("gold", "test")]
    assert counts == [23, 41]
    assert "FMeasure       =  71.87\n" in evalb_report(result)


def test_no_match_at_all_is_no_number_for_c_and_zero_for_programs():
    result = evaluate_trees([GOLD], [""]).to_dict()
    assert result["all"]["f1"] == 0
    assert evalb_report(result).count("FMeasure       =   -nan\n") == 2


def test_lines_end_in_line_feeds_and_files_may_be_gzipped(tmp_path):
    file, packed = tmp_path / "trees", tmp_path / "trees.gz"
    data = b"\xef\xbb\xbf" + GOLD.replace(" (VP", "\r (VP").encode() + b"\n"
    file.write_bytes(data)
    packed.write_bytes(gzip.compress(data))
    result = evaluate_files(file, packed).summary()
    assert (result["sentences"], result["valid"], result["f1"]) == (1, 1, 100)
