import json

import pytest
from reference import reference

from t2t_keras.errors import UserError
from t2t_keras.evaluation.bleu import bleu_scores, paper_tokenize


def lines(name):
    text = reference(name).read_bytes().decode("utf-8")
    return text.split("\n")


@pytest.mark.parametrize(
    "system", ["newstest2013.system_a.de", "newstest2013.system_b.de"]
)
def test_scores_of_real_systems_are_those_of_the_programs(system):
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
    assert {round(v, 6) for k, v in scores.items() if k != "signature"} == {100}


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
