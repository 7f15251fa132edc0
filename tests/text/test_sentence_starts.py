"""Words that begin sentences: counted in training texts, and split before."""

from collections import Counter

import pytest
import tensorflow as tf
from helpers.reference import reference

from t2t_keras.text import sentence_ends, sentences
from t2t_keras.text.sentence_starts import choose_starts, find_starts

STARTS = ("A A", "A a", "Ein A", "The a", "Человек a")

# "|" stands between sentences.
TEXTS = """
A man is walking| A dog runs.
A man is walking .| The dog runs| A Tom cat sits
He lives in The Hague| A dog runs
He runs (fast)| A dog barks "loud"| A cat sits
Ein Mann geht| Ein Hund bellt
Ein Mann geht ein Hund bellt
He said, A dog runs: The dog runs - A cat
In the USA A dog runs
A MAN RUNS A DOG BARKS
Vitamin A
it is plan A
xx| A yy A
Собака бежит| Человек идёт
he found The| A b
A manA dog
"""


@pytest.mark.parametrize("text", TEXTS.strip().split("\n"))
def test_texts_are_split_before_starts(text):
    expected = [part.strip() for part in text.split("|")]
    joined = text.replace("|", "")
    assert sentence_ends.split_sentences(joined, (), STARTS) == expected
    (parts,) = sentences.split_sentences(tf.constant([joined]), (), STARTS)
    assert [part.decode() for part in parts.numpy()] == expected
    assert sentence_ends.split_sentences(f"<x> {joined}", ["<x>"], STARTS) == [
        f"<x> {part}" for part in expected
    ]


def test_what_is_counted():
    text = "A dog runs. Then A Tom cat, The dog and the USA The dogs.\n“A dog”"
    starts = find_starts(sentence_ends.mark_sentence_ends(text))
    assert list(starts) == [("A a", True), ("Then A", True), ("A A", False)]


def test_which_words_are_chosen():
    initial = {"A a": 1000, "The a": 995, "The A": 30, "Then a": 9, "It a": 994}
    inner = {"The a": 5, "The A": 1, "It a": 6, "Tom A": 50}
    assert choose_starts(initial, inner, 100) == ["A a", "The a"]
    assert choose_starts(initial, {}, 10_000) == ["A a", "It a", "The A", "The a"]
    assert choose_starts(initial, {}, 995_000) == ["A a", "The a"]


@pytest.mark.parametrize("language", ["en", "de"])
def test_on_captions(language):
    """Single sentences stay whole, and pairs without a mark between them are split."""
    counts = (Counter(), Counter())
    train = reference(f"multi30k/train.{language}").read_text("utf-8").split("\n")[::3]
    for text in train:
        marked = sentence_ends.mark_sentence_ends(text)
        for start, is_initial in find_starts(marked):
            counts[not is_initial][start] += 1
    starts = tuple(choose_starts(*counts, len(train)))
    assert 10 < len(starts) < 60
    for name in ("multi30k/test2016", "newstest2013/newstest2013"):
        texts = reference(f"{name}.{language}").read_text("utf-8").split("\n")[:-1]
        marked = [sentence_ends.mark_sentence_ends(text) for text in texts]
        by_starts = [sentence_ends.mark_sentence_ends(x, starts) for x in texts]
        changed = sum(a != b for a, b in zip(marked, by_starts, strict=True))
        assert changed <= 0.002 * len(texts)
    texts = reference(f"multi30k/test2016.{language}").read_text("utf-8").split("\n")
    pairs = zip(texts[::2], texts[1::2], strict=False)
    unmarked = [pair for pair in pairs if pair[0].strip()[-1:].isalpha()]
    split = [sentence_ends.split_sentences(" ".join(x), (), starts) for x in unmarked]
    assert len(split) > 10
    assert sum(len(parts) > 1 for parts in split) >= 0.95 * len(split)
