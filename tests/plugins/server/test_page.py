"""The page of the server in a browser: explained words, changes, errors, keyboard."""

import json
import math

import pytest

pytest.importorskip("starlette", reason="the extra [serve] is not installed")
from helpers.browser import needs_chromium
from helpers.page_checks import check_page, check_tab_order
from helpers.stub_server import Stub, serving

from t2t_keras.errors import UserError
from t2t_keras.plugins.server.served_model import ServedModel
from t2t_keras.text.sentences import split_sentences

pytestmark = needs_chromium

HEBREW = "שלום עולם גדול"
PARAGRAPHS = "A dog runs. It is late.\n\nThe end."
WORDS = ".target [role=button]"


class Explained(Stub):
    """Translates each word into upper case; its sources are the words in its place."""

    def __init__(self):
        super().__init__()
        self.languages = ["en", "he"]
        self.asked = []

    def predict(self, signature, rows, options, is_wanted=lambda: True):
        if rows == [{"texts": "A test ."}]:
            return [{}]
        self.asked += [(signature, row, options) for row in rows]
        return [getattr(self, signature)(**row, **options) for row in rows]

    def explain(self, texts, prefixes, **options):
        if "poison" in texts:
            raise UserError("this one is bad")
        return {
            "sentences": [
                self.sentence(text, prefixes, **options)
                for text in split_sentences(texts)
            ]
        }

    def sentence(self, text, prefix, n_best, forbidden=(), glossary=(), **options):
        source = text.split()
        words = [dict(glossary).get(word, word.upper()) for word in source]
        words = [word for word in words if word not in forbidden]
        forced = prefix.split()
        words[: len(forced)] = forced
        return {
            "source": text,
            "source_words": source,
            "texts": [" ".join(words)] * n_best,
            "scores": [-0.5 * k if k < 3 else -math.inf for k in range(n_best)],
            "is_truncated": False,
            "words": words,
            "probabilities": [(0.9, 0.5, 0.2)[i % 3] for i in range(len(words))],
            "alignment": [[i, i] for i in range(min(len(words), len(source)))],
            "tokens": len(words),
            "log_prob": -3.0,
            "length_penalty": 1.5,
        }

    def alternatives(self, texts, prefixes, **options):
        words = ["ALPHA", "<b>", ""]
        texts = [f"{prefixes} {word}" for word in words]
        return {"words": words, "probabilities": [0.7, 0.2, 0.1], "texts": texts}


@pytest.fixture(scope="module")
def tab(chromium):
    with chromium.page() as page:
        yield page


@pytest.fixture(scope="module")
def server():
    model = Explained()
    with serving(model, "ende") as (_, port, _):
        yield model, f"http://127.0.0.1:{port}"


@pytest.fixture
def page(tab, server):
    """The page of the stub, and what the stub was asked."""
    model, url = server
    model.missing = {}
    model.asked.clear()
    open_page(tab, url)
    return tab


def open_page(page, url, width=1280, **options):
    page.open(url, width, **options)
    page.wait("document.querySelector('#model').options.length === 1")


def translate(page, text, count):
    page.submit(text)
    page.wait(f"document.querySelectorAll('article').length === {count}")
    page.wait("!document.querySelector('#ask button').disabled")


def texts(page, selector):
    script = "[...document.querySelectorAll(%s)].map(x => x.innerText.trim())"
    return page.run(script % json.dumps(selector))


def click(page, selector):
    page.run(f"document.querySelector({json.dumps(selector)}).click()")


def open_word(page, selector):
    """Opens the menu of a word, and waits for its alternatives."""
    click(page, selector)
    page.wait("document.querySelectorAll('#menu-words button').length === 2")


def changed(page):
    page.wait("!document.querySelector('[aria-busy]')")


@pytest.mark.parametrize(
    "text",
    [
        PARAGRAPHS,
        HEBREW,
        pytest.param("long words " * 450, marks=pytest.mark.slow),
        "x" * 5000,
    ],
)
def test_every_view(text, page, server):
    """Without errors and in good contrast, in both modes, on a phone."""
    for width in (1280, 390):
        for dark in (False, True):
            open_page(page, server[1], width, dark=dark)
            translate(page, text, 3 if text == PARAGRAPHS else 1)
            check_page(page)
            page.run("document.querySelectorAll('summary').forEach(x => x.click())")
            check_page(page)
            open_word(page, WORDS)
            check_page(page)


def test_what_a_word_tells(page):
    translate(page, PARAGRAPHS, 3)
    assert texts(page, "h1, #served") == ["English → Hebrew", "Model ende, version 1"]
    page.point(f"{WORDS}:nth-child(2)")
    assert texts(page, ".linked") == ["dog", "DOG"]
    assert texts(page, "#tip") == ["from dog · 50%"]
    assert texts(page, ".doubtful") == ["DOG", "IS", "END."]
    assert texts(page, ".unlikely") == ["RUNS.", "LATE."]
    page.point(".source span")
    assert texts(page, ".linked") == ["A", "A"]


def test_the_score_is_seen_with_its_meaning(page):
    """At once, without opening anything."""
    translate(page, PARAGRAPHS, 3)
    shown = texts(page, ".meaning")
    # exp(-3 / 3), and -3 over two tokens.
    assert shown[0] == "Score 0.000: the model gave each token 37% on average."
    assert shown[1] == shown[0] and "22%" in shown[2]
    box = "document.querySelector('.meaning').getBoundingClientRect()"
    assert page.run(f"{box}.height > 0 && !document.querySelector('details .meaning')")
    assert texts(page, ".tools summary")[:2] == [
        "How it is computed",
        "2 other translations",
    ]
    click(page, ".tools summary")
    (reason,) = texts(page, ".tools details[open] p")
    assert "−3.000, is divided by the length penalty for 3 tokens, 1.500" in reason


def test_another_word_is_used_and_taken_back(page, server):
    asked = server[0].asked
    translate(page, PARAGRAPHS, 3)
    open_word(page, f"{WORDS}:nth-child(2)")
    assert texts(page, "#menu-words li") == [
        "ALPHA\n70%",
        "<b>\n20%",
        "end of the output\n10%",
    ]
    assert asked[-1][:2] == ("alternatives", {"texts": "A dog runs.", "prefixes": "A"})
    click(page, "#menu-words li:nth-child(2) button")
    changed(page)
    assert texts(page, ".target")[0] == "A <b> RUNS."
    assert texts(page, ".forced") == ["A", "<b>"]
    assert page.run("document.activeElement.textContent") == "<b>"
    click(page, ".undo")
    changed(page)
    assert texts(page, ".target")[0] == "A DOG RUNS."
    click(page, WORDS)
    page.run("document.querySelector('#menu-word').value = 'ein'")
    click(page, "#menu-force button")
    changed(page)
    assert texts(page, ".target") == ["ein DOG RUNS.", "IT IS LATE.", "THE END."]
    # What is forbidden leaves the words before it as they are.
    for word, prefix in ((2, "ein"), (1, "")):
        open_word(page, f"{WORDS}:nth-child({word})")
        click(page, "#menu-forbid button")
        changed(page)
        assert asked[-1][1]["prefixes"] == prefix
    assert asked[-1][2]["forbidden"] == ("DOG", "ein")


def test_a_word_is_forbidden_and_a_term_is_added(page, server):
    asked = server[0].asked
    translate(page, "A dog runs.\nA cat.", 2)
    open_word(page, f"{WORDS}:nth-child(3)")
    assert texts(page, "#menu-forbid") == ["Never “RUNS” in this sentence"]
    click(page, "#menu-forbid button")
    changed(page)
    assert asked[-1][2]["forbidden"] == ("RUNS",)
    open_word(page, f"{WORDS}:nth-child(2)")
    assert page.run("document.querySelector('#menu-source').value") == "dog"
    page.run("document.querySelector('#menu-target').value = 'HUND'")
    click(page, "#menu-term button")
    changed(page)
    assert texts(page, ".target") == ["A HUND RUNS.", "A CAT."]
    assert texts(page, "#terms-count") == ["1 term"]
    # Each sentence keeps what was forbidden in it.
    options = {row["texts"]: options for _, row, options in asked[-2:]}
    assert options["A dog runs."]["forbidden"] == ("RUNS",)
    assert not options["A cat."].get("forbidden")
    page.run("document.querySelector('#glossary').open = true")
    check_page(page)
    click(page, "#terms button")
    changed(page)
    assert texts(page, ".target")[0] == "A DOG RUNS."


def test_an_error_takes_the_place_of_old_results(page):
    translate(page, PARAGRAPHS, 3)
    page.run("document.querySelector('#text').value = ''")
    page.run("document.querySelector('#text').focus()")
    page.submit("poison")
    page.wait("document.querySelector('[role=alert]').textContent")
    assert texts(page, "[role=alert]") == ["this one is bad"]
    assert texts(page, "article") == [] and page.run("!!results.hidden")
    assert [error for error in page.errors if "400" not in error] == []
    page.errors.clear()
    check_page(page)


def hold(page):
    """Holds the server's answers until `answer` is called, in the order of requests."""
    page.run(
        """
        window.held = [];
        window.answered = [];
        window.served = window.fetch;
        window.fetch = async (...request) => {
          const index = held.length;
          const wait = new Promise(resolve => held.push(resolve));
          const response = await served(...request);
          await wait;
          const text = await response.text();
          response.text = async () => {
            // This runs when the page has dealt with the text.
            setTimeout(() => { answered[index] = true; });
            return text;
          };
          return response;
        };
        """
    )


def answer(page, index):
    """Lets the page have an answer, and waits until it has dealt with it."""
    page.wait(f"held.length > {index}")
    page.run(f"held[{index}]()")
    page.wait(f"answered[{index}]")


def test_answers_of_another_model_are_not_shown(page):
    hold(page)
    page.submit(PARAGRAPHS)
    page.wait("held.length === 1")
    page.run("document.querySelector('#model').dispatchEvent(new Event('change'))")
    assert texts(page, "[role=status]") == [""]
    answer(page, 0)
    page.wait("!document.querySelector('#ask button').disabled")
    assert texts(page, "article") == [] and page.run("!!results.hidden")
    assert texts(page, "[role=status]") == [""]


def test_a_late_failure_leaves_newer_results(page):
    translate(page, PARAGRAPHS, 3)
    hold(page)
    page.run("document.querySelector('#text').value = ''")
    page.run("document.querySelector('#text').focus()")
    page.submit("poison")
    page.wait("held.length === 1")
    add_term(page, "dog", "HUND")
    answer(page, 1)
    answer(page, 0)
    assert texts(page, ".target") == ["A HUND RUNS.", "IT IS LATE.", "THE END."]
    assert texts(page, "[role=alert]") == [""]
    (status,) = texts(page, "[role=status]")
    assert status.startswith("3 sentences in ")


def add_term(page, source, target):
    page.run(f"document.querySelector('#term-source').value = '{source}'")
    page.run(f"document.querySelector('#term-target').value = '{target}'")
    page.run("document.querySelector('#term').requestSubmit()")


@pytest.mark.parametrize("late", ["sentence", "text"])
def test_a_sentence_shows_its_latest_request(late, page):
    translate(page, PARAGRAPHS, 3)
    hold(page)
    if late == "sentence":
        forbid(page, 1)
        page.wait("held.length === 1")
    add_term(page, "dog", "HUND")
    if late == "text":
        page.wait("held.length === 1")
        forbid(page, 1)
    answer(page, 1)
    assert texts(page, ".target")[0] == "HUND RUNS."
    answer(page, 0)
    assert texts(page, ".target") == ["HUND RUNS.", "IT IS LATE.", "THE END."]


def forbid(page, word):
    """Forbids a word of the first sentence."""
    page.run("window.fetched = fetch; window.fetch = served")  # for the alternatives
    open_word(page, f"{WORDS}:nth-child({word})")
    page.run("window.fetch = fetched")
    click(page, "#menu-forbid button")


def test_keys(page):
    translate(page, PARAGRAPHS, 3)
    # From the top: the text field had the focus.
    page.run("document.querySelector('h1').tabIndex = -1")
    page.run("document.querySelector('h1').focus()")
    check_tab_order(page)
    page.run(f"document.querySelector('{WORDS}').focus()")
    page.press("ArrowRight")
    page.press("ArrowRight")
    page.press("ArrowLeft")
    assert page.run("document.activeElement.textContent") == "DOG"
    page.press("Enter")
    page.wait("document.querySelectorAll('#menu-words button').length === 2")
    assert page.run("document.querySelector('#menu').open")
    page.press("Escape")
    assert not page.run("document.querySelector('#menu').open")
    assert page.run("document.activeElement.textContent") == "DOG"


def test_arrows_in_a_text_from_right_to_left(page):
    translate(page, HEBREW, 1)
    assert (
        page.run("getComputedStyle(document.querySelector('.target')).direction")
        == "rtl"
    )
    page.run(f"document.querySelector('{WORDS}').focus()")
    page.press("ArrowLeft")
    assert page.run("document.activeElement.textContent") == HEBREW.split()[1]


def test_the_translation_is_copied_with_its_lines(page):
    page.run("navigator.clipboard.writeText = text => { window.copied = text; }")
    translate(page, PARAGRAPHS, 3)
    click(page, "#copy")
    page.wait("window.copied")
    assert page.run("window.copied") == "A DOG RUNS. IT IS LATE.\n\nTHE END."


def test_missing_features_of_a_model_are_reported(tab, server):
    model, url = server
    names = ("probabilities", "alignment", "prefixes", "glossary", "forbidden")
    model.missing = dict.fromkeys(names, "alignment: a SavedModel returns none")
    open_page(tab, url)
    translate(tab, "A dog runs.", 1)
    assert texts(tab, "#missing") == [
        "This model does not offer probabilities, word alignment, alternatives and "
        "forced words, glossary, forbidden words (a SavedModel returns none)."
    ]
    click(tab, WORDS)
    buttons = "[...document.querySelectorAll('#menu button')]"
    assert tab.run(f"{buttons}.filter(x => x.checkVisibility()).length") == 1
    assert tab.run("glossary.checkVisibility()") is False
    assert "glossary" not in model.asked[-1][2]
    check_page(tab)
    model.missing = {"forbidden": "forbidden: the engine has no bans"}
    open_page(tab, url)
    translate(tab, "A dog runs.", 1)
    open_word(tab, WORDS)
    signature, _, options = model.asked[-1]
    assert signature == "alternatives" and "forbidden" not in options


def test_a_model(translator, tab):
    """What the stub is asked and answers is what a model understands and answers."""
    text = "<img src=x onerror=alert(1)> a dog"
    with serving(ServedModel(translator), "run") as (_, port, _):
        open_page(tab, f"http://127.0.0.1:{port}")
        translate(tab, f"{text}\nthe old dog .", 2)
        (best,) = translator.translate([text])
        assert texts(tab, ".target")[0] == " ".join(best.split())
        assert texts(tab, ".source")[0] == text
        assert tab.run("document.images.length") == 0
        click(tab, WORDS)
        tab.wait("!document.querySelector('#menu-words').innerText.includes('…')")
        click(tab, "#menu-close")
        check_page(tab)
