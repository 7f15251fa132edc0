"""The page of `t2t compare`."""

import html

import pytest
from helpers.browser import needs_chromium
from helpers.page_checks import check_tab_order, check_views

from t2t_keras.evaluation.bleu import Bleu
from t2t_keras.plugins.reports.difference_page import ComparedSentence, difference_page


def test_the_page_marks_words_and_escapes_them():
    evil = '<script>alert("1")</script> & <b>'
    sentence = ComparedSentence(
        7, evil, f"{evil} r", [f"{evil} one two", f"{evil} two six"], [10.0, 30.0], 20.0
    )
    rows = [{"system": "<i>a", "score": "1 & 2"}]
    page = difference_page(["<i>a", "b&"], {"bl<eu a|b": rows}, "1 < 2", [sentence])
    assert "bl&lt;eu a|<wbr>b</caption>" in page
    assert "<del>one</del>" in page and "<ins>six</ins>" in page
    assert page.count(html.escape(evil)) == 4 and evil not in page
    assert page.count("<script") == 1 and "<i>" not in page
    # Nothing is loaded.
    assert "http" not in page and "url(" not in page and "src=" not in page


def test_a_sentence_bleu_of_few_words_is_not_zero():
    bleu, _ = Bleu().corpus_metrics()
    (row,) = bleu.statistics([""], ["Ein Hund"], ["Ein Hund"])
    assert bleu.sentence_score(row) == pytest.approx(100) and bleu.score(row) < 1


LONG = "überlänge " * 500
ARABIC = "الكلب يجري في الحديقة"


@needs_chromium
def test_the_page_in_a_browser(tmp_path, chromium):
    sentences = [
        ComparedSentence(1, ARABIC, LONG, [LONG, f"{LONG} x"], [10.0, 30.0], 20.0),
        ComparedSentence(2, "a" * 5000, "b", ["b c", "b d"], [1.0, 2.0], 1.0),
    ]
    rows = [{"system": "a", "score": "1"}, {"system": "b", "score": "2"}]
    page = difference_page(["a", "b"], {"bleu": rows}, "2 lines.", sentences)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with chromium.page() as shown:
        check_views(shown, (tmp_path / "page.html").as_uri())
        check_tab_order(shown)
        shown.open((tmp_path / "page.html").as_uri(), 1280)
        shown.press("j")
        shown.press("j")
        assert shown.run("document.activeElement.id") == "line-2"
        direction = "getComputedStyle(document.querySelector('dd')).direction"
        assert shown.run(direction) == "rtl"
