import re

import pytest
from helpers.errors import refused
from helpers.reference import reference

from t2t_keras.cli import main
from t2t_keras.problems.parsing.evalb import (
    COLLINS,
    EvalbParameters,
    evaluate_files,
    evaluate_trees,
    read_parameters,
)
from t2t_keras.problems.parsing.evalb_scores import ERROR, SKIP, VALID, evalb_report
from t2t_keras.problems.parsing.task import BracketF1

GOLD = "(TOP (S (NP (NNP John)) (VP (VBZ sees) (NP (DT the) (NN dog))) (. .)))"


def score(gold, test, parameters=COLLINS):
    return evaluate_trees([gold], [test], parameters).sentences[0]


@pytest.mark.parametrize(
    ("gold", "test", "parameters"),
    [
        ("sample.gld", "sample.tst", ["sample.prm"]),
        ("craft_dev500.gold", "craft_dev500.test", []),
    ],
)
def test_the_command_prints_what_the_program_printed(gold, test, parameters, capsys):
    files = [reference(f"evalb/{name}") for name in (gold, test)]
    flags = [f"--prm={reference(f'evalb/{name}')}" for name in parameters]
    assert main(["f1", *map(str, files), *flags]) == 0
    report, _, appendix = capsys.readouterr().out.partition("\n-- Beyond EVALB --\n")
    printed = files[0].with_suffix(".expected").read_text()
    assert report == printed
    (name,) = parameters or ["COLLINS.prm"]
    rules = read_parameters(reference(f"evalb/{name}"))
    assert (rules == COLLINS) == (not parameters)
    summary = evaluate_files(*files, rules).summary()
    assert f"= {summary['f1_errors_as_zero']:6.2f}  (All)" in appendix
    total = float(re.search(r"Bracketing FMeasure *= *([\d.]+)", printed)[1])
    assert round(summary["f1"], 2) == total


def test_parameters_may_be_a_table(tmp_path):
    """Ten lines with a tab each are refused where texts are expected."""
    (tmp_path / "x.prm").write_text("DELETE_LABEL\tX\n" * 9 + "LABELED\t0\n")
    parameters = read_parameters(tmp_path / "x.prm")
    (tmp_path / "text").write_text("the dog\n")
    refused("text has no parameter of EVALB", read_parameters, tmp_path / "text")
    assert parameters == EvalbParameters(delete_labels=("X",) * 9, labeled=False)


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


def test_what_is_left_out_of_f1_is_reported_beside_it():
    metrics = BracketF1()
    cat = GOLD.replace("dog", "cat")
    scores = metrics.score([""] * 3, [GOLD, "", cat], [GOLD] * 3)
    counts = {"f1": 100, "error_sentences": 1, "skipped_sentences": 1}
    assert scores == counts | {
        "f1_errors_as_zero": pytest.approx(100 * 2 * 4 / (8 + 8))
    }
    # So that a model which fails on most sentences is not the best.
    worse = GOLD.replace("(NP (NNP John))", "(NNP John)")
    imperfect = metrics.score([""], [worse], [GOLD])
    assert imperfect["f1"] < scores["f1"]
    assert metrics.selection_score(imperfect) > metrics.selection_score(scores)


def test_a_quotation_mark_that_one_tree_leaves_out_is_put_back():
    gold = "(S (NP (NN a) ('' ')) (VP (VB b) (NP (NN c))))"
    test = "(S (NP (NN a) (POS ')) (VP (VB b) (NP (NN c))))"
    assert score(gold, test).status == ERROR
    rules = EvalbParameters(delete_labels=("''",), quote_labels=("''", "POS"))
    for complete_tree, tree in ((gold, test), (test, gold)):
        result = score(complete_tree, tree, rules)
        assert (result.status, result.words, result.tags) == (VALID, 4, 3)
        assert (result.gold, result.test, result.matched) == (4, 4, 4)


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
    gold = tmp_path / "wsj" / "gold.mrg"
    test = tmp_path / "test"
    gold.write_text(TREEBANK)
    test.write_text(f"{GOLD}\n{SLEEPS}\n")
    for path in (gold, gold.parent):
        result = evaluate_files(path, test).summary()
        scores = result["valid"], result["f1"], result["tagging_accuracy"]
        assert scores == (2, 100, 100)
    test.write_text(GOLD)
    refused(r"gold.mrg has 2 trees and .*test has 1 line;", evaluate_files, gold, test)
    gold.write_text(TREEBANK.replace("(VBZ sleeps)", "(VBZ fell asleep)"))
    refused(r"gold.mrg:7: .*space", evaluate_files, gold, test)
    text = tmp_path / "text"
    text.write_text("the dog\n")
    refused("text has no tree", evaluate_files, text, text)


# What the program printed for these, compiled from its source.


def test_counts_of_an_unbalanced_tree_over_the_same_words_are_shown():
    gold = "(TOP (S (NP (NN a)) (VP (VB b))))"
    for broken in (gold[:-1], f"{gold})"):
        result = evaluate_trees([gold, GOLD], [broken, GOLD]).to_dict()
        row = evalb_report(result).splitlines()[3]
        assert row.split()[:6] == ["1", "2", "1", "100.00", "100.00", "3"]
        assert row.split()[6:] == ["3", "3", "0", "2", "2", "100.00"]
        assert evalb_report(result).splitlines()[6].split()[2:5] == ["4", "4", "4"]
        assert result["all"]["error"] == 1
        assert result["all"]["f1_errors_as_zero"] == pytest.approx(100 * 8 / 14)


def test_f1_is_rounded_as_by_evalb():
    """2 * 23 / (23 + 41) is 71.875; from precision and recall it is a little less."""
    words = [f"(NN w{i})" for i in range(41)]
    gold = " ".join(f"(A {w})" if i < 23 else w for i, w in enumerate(words))
    test = " ".join(f"(A {w})" for w in words)
    result = evaluate_trees([f"(TOP {gold})"], [f"(TOP {test})"]).to_dict()
    counts = [result["per_sentence"][0][f"{k}_brackets"] for k in ("gold", "test")]
    assert counts == [23, 41]
    assert "FMeasure       =  71.87\n" in evalb_report(result)


def test_without_matches_c_prints_nan_and_programs_0():
    result = evaluate_trees([GOLD], [""]).to_dict()
    assert result["all"]["f1"] == 0
    assert evalb_report(result).count("FMeasure       =   -nan\n") == 2
