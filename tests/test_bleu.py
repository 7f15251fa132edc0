import json
import math

import pytest
from reference import reference
from sacrebleu.metrics import BLEU, CHRF

from t2t_keras.errors import UserError
from t2t_keras.evaluation.bleu import bleu_scores, paper_tokenize
from t2t_keras.evaluation.metrics import score_outputs
from t2t_keras.problem import Problem


def lines(name):
    text = reference(name).read_bytes().decode("utf-8")
    return text.split("\n")


@pytest.mark.parametrize(
    "system", ["newstest2013.system_a.de", "newstest2013.system_b.de"]
)
def test_scores_of_real_systems_are_those_of_the_programs(system, monkeypatch):
    # TER takes many seconds, and is not among the expected figures.
    monkeypatch.setattr("sacrebleu.metrics.TER", CHRF)
    expected = json.loads(reference("bleu/expected.json").read_text())[system]
    hypotheses = lines(f"bleu/{system}")[:3000]
    references = lines("newstest2013/newstest2013.de")[:3000]
    scores = bleu_scores(hypotheses, references)
    for name in ("13a", "intl", "13a_lc"):
        name = f"sacrebleu_{name}"
        assert scores[name] == pytest.approx(expected[name], abs=1e-4)
    name = "tokenized_compound_split"
    assert scores[name] == pytest.approx(expected[name], abs=0.01)
    assert "tok:13a" in scores["signature"] and "case:mixed" in scores["signature"]
    # The parts of the last one, as multi-bleu.perl prints them.
    ours, theirs = paper_tokenize(hypotheses), paper_tokenize(references)
    parts = BLEU(tokenize="none", smooth_method="none", force=True)
    parts = parts.corpus_score(ours, [theirs])
    assert parts.precisions == pytest.approx(expected["precisions"], abs=0.0501)
    assert parts.bp == pytest.approx(expected["bp"], abs=0.000501)
    # sacremoses splits seven words less than tokenizer.perl.
    assert parts.sys_len == pytest.approx(expected["hyp_len"], abs=7)
    assert parts.ref_len == pytest.approx(expected["ref_len"], abs=7)


@pytest.mark.parametrize(
    "name",
    ["noisy", "identical", "empty_hyp", "punct", "trigram_none", "shorter", "longer"],
)
def test_international_tokenisation_scores_as_tensor2tensor(name):
    cases = json.loads(reference("t2t/oracle/misc/bleu.json").read_text())["files"]
    (case,) = (case for case in cases if case["name"] == name)
    hypotheses, references = (
        lines(f"t2t/oracle/misc/bleu_{name}.{side}") for side in ("hyp", "ref")
    )
    scores = bleu_scores(hypotheses, references)
    assert scores["sacrebleu_intl"] == pytest.approx(100 * case["cased"], abs=1e-3)


def test_the_papers_tokens():
    text = "Er sagte: “z.B. EU-Länder & US-Dollar…”"
    (tokens,) = paper_tokenize([text])
    assert tokens.split(" ") == [
        *("Er", "sagte", ":", "&quot;", "z.B.", "EU", "##AT##-##AT##", "Länder"),
        *("&amp;", "US", "##AT##-##AT##", "Dollar", "...", "&quot;"),
    ]


def test_the_language_decides_on_apostrophes():
    assert paper_tokenize(["c'est"], "fr") == ["c&apos; est"]
    assert paper_tokenize(["c'est"], "de") == ["c &apos; est"]
    with pytest.raises(UserError, match="not a language's code"):
        paper_tokenize(["x"], "../de")


def test_identical_text_scores_a_hundred_in_every_convention():
    text = ["Ein Hund läuft über die Wiese .", "Zwei Männer spielen Gitarre ."]
    scores = bleu_scores(text, text)
    figures = {k: v for k, v in scores.items() if isinstance(v, float)}
    assert figures.pop("ter") == 0
    assert {round(value, 6) for value in figures.values()} == {100}


def test_every_figure_has_its_signature():
    scores = bleu_scores(["Un chien ."], ["Un chat ."], "fr", "none")
    signatures = scores["signatures"]
    figures = {k for k, v in scores.items() if isinstance(v, float)}
    assert signatures.keys() == figures
    assert signatures["sacrebleu_13a"] == scores["signature"]
    for name, part in (
        ("sacrebleu_13a", "case:mixed|eff:no|tok:13a"),
        ("sacrebleu_intl", "tok:intl"),
        ("sacrebleu_13a_lc", "case:lc|eff:no|tok:13a"),
        ("sacrebleu_none", "tok:none|smooth:exp"),
        ("tokenized_compound_split", "tok:paper-fr|smooth:none"),
        ("chrf", "nc:6|nw:0"),
        ("ter", "tok:tercom"),
    ):
        assert part in signatures[name] and "version:" in signatures[name]


def test_text_that_is_tokenised_already_is_not_tokenised_again():
    # Two words of the reference are one here, and nothing else is wrong: of n-grams
    # match 4 of 5, 3 of 4, 2 of 3 and 1 of 2; the brevity penalty is exp(1 - 6/5).
    scores = bleu_scores(["a b c d e."], ["a b c d e ."], tokens="none")
    precisions = 4 / 5 * 3 / 4 * 2 / 3 * 1 / 2
    expected = 100 * precisions**0.25 * math.exp(1 - 6 / 5)
    assert scores["sacrebleu_none"] == pytest.approx(expected)
    assert scores["sacrebleu_13a"] == pytest.approx(100)


def test_characters_and_edits_by_hand():
    # chrF: of 1, 2 and 3 characters match 2 of 3, 1 of 2 and 0 of 1, on both sides.
    scores = bleu_scores(["abc"], ["abd"])
    assert scores["chrf"] == pytest.approx(100 * (2 / 3 + 1 / 2 + 0) / 3)
    # TER: one word moved and one replaced, of five.
    scores = bleu_scores(["e a b c x"], ["a b c d e"])
    assert scores["ter"] == pytest.approx(100 * 2 / 5)


def test_a_problem_says_how_its_bleu_is_tokenised():
    problem = Problem(summary="tokenised text", bleu_tokens="none")
    outputs, references = ["a b c d e."], ["a b c d e ."]
    scores = bleu_scores(outputs, references, tokens="none")
    assert score_outputs(problem, outputs, references) == {
        "bleu": scores["sacrebleu_none"]
    }
    plain = score_outputs(problem.replace(bleu_tokens="13a"), outputs, references)
    assert plain["bleu"] == pytest.approx(100)
    with pytest.raises(UserError, match="bleu_tokens must be one of 13a, intl"):
        problem.replace(bleu_tokens="14a")


def test_case_counts_except_where_it_is_said_not_to():
    scores = bleu_scores(
        ["ein hund läuft über die wiese"], ["Ein Hund läuft über die Wiese"]
    )
    assert scores["sacrebleu_13a_lc"] == pytest.approx(100)
    assert scores["sacrebleu_13a"] < 50 and scores["sacrebleu_intl"] < 50


def test_what_cannot_be_scored_is_refused():
    with pytest.raises(UserError, match="2 hypotheses and 1 references"):
        bleu_scores(["a", "b"], ["a"])
    with pytest.raises(UserError, match="no sentences"):
        bleu_scores([], [])
