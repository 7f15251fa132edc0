"""The page of `t2t compare`."""

import html

import pytest
from helpers.browser import needs_chromium
from helpers.page_checks import check_tab_order, check_views

from t2t_keras.evaluation.bleu import Bleu
from t2t_keras.plugins.reports.compare_page import difference_page
from t2t_keras.plugins.reports.significance import Comparison, SentenceDifference
from t2t_keras.plugins.reports.systems import System, Texts


def page_of(names, sources, references, outputs, differences, metric="bleu"):
    """The page of two systems, without scores of the corpus that matter."""
    systems = [System(name, texts) for name, texts in zip(names, outputs, strict=True)]
    rows = [{"system": name, "score": 30.0, "mean": 30.0, "ci": 1.0} for name in names]
    rows[1] |= {"difference": 0.0, "p_bootstrap": 1.0, "p_randomization": 1.0}
    result = {"signature": "a|b", "higher_is_better": True, "systems": rows}
    comparison = Comparison({metric: result}, differences)
    return difference_page(Texts(sources, references, systems), comparison, "1 < 2")


def test_the_page_marks_words_and_escapes_them():
    evil = '<script>alert("1")</script> & <b>'
    outputs = [f"{evil} one two"], [f"{evil} two six"]
    differences = [SentenceDifference(0, [10.0, 30.0], 20.0)]
    texts = [evil], [f"{evil} r"], outputs
    page = page_of(["<i>a", "b&"], *texts, differences, "bl<eu")
    assert "bl&lt;eu a|<wbr>b</caption>" in page
    assert "1 &lt; 2. The bl&lt;eu scores of 1 of 1 sentences" in page
    assert "<del>one</del>" in page and "<ins>six</ins>" in page
    assert page.count(html.escape(evil).replace("&quot;", "&#34;")) == 4
    assert evil not in page
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
    sources = [ARABIC, "a" * 5000]
    outputs = [LONG, "b c"], [f"{LONG} x", "b d"]
    differences = [
        SentenceDifference(0, [10.0, 30.0], 20.0),
        SentenceDifference(1, [1.0, 2.0], 1.0),
    ]
    page = page_of(["a", "b"], sources, [LONG, "b"], outputs, differences)
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
