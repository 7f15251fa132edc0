"""The page of `t2t compare`."""

import html

import pytest

from t2t_keras.evaluation.bleu import Bleu
from t2t_keras.plugins.reports.difference_page import ComparedSentence, difference_page


def test_the_page_marks_words_and_escapes_them():
    evil = '<script>alert("1")</script> & <b>'
    sentence = ComparedSentence(
        7, evil, f"{evil} r", [f"{evil} one two", f"{evil} two six"], [10.0, 30.0], 20.0
    )
    rows = [{"system": "<i>a", "score": "1 & 2"}]
    page = difference_page(["<i>a", "b&"], {"bl<eu": rows}, "1 < 2", [sentence])
    assert "<del>one</del>" in page and "<ins>six</ins>" in page
    assert page.count(html.escape(evil)) == 4 and evil not in page
    assert page.count("<script") == 1 and "<i>" not in page
    # Nothing is loaded.
    assert "http" not in page and "url(" not in page and "src=" not in page


def test_a_sentence_bleu_of_few_words_is_not_zero():
    bleu, _ = Bleu().corpus_metrics()
    (row,) = bleu.statistics([""], ["Ein Hund"], ["Ein Hund"])
    assert bleu.sentence_score(row) == pytest.approx(100) and bleu.score(row) < 1
