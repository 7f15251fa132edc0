"""The words of treebanks: raw sentences, and punctuation, also in the graph."""

import random

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.problems.parsing import graph
from t2t_keras.problems.parsing.words import (
    KIND_OF_TAG,
    WORD,
    mark_tags,
    treebank_text,
)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("He didn't pay $1,000.5 (net).", "He did n't pay $ 1,000.5 -LRB- net -RRB- ."),
        ('"Why?" she asked at 10:30.', "`` Why ? '' she asked at 10:30 ."),
        ("AT&T and S&P paid US$500 & more", "AT&T and S&P paid US$ 500 & more"),
        ("They'll see John's dogs' food; so", "They 'll see John 's dogs ' food ; so"),
        ("I cannot go, and 'tis late...", "I can not go , and 't is late ..."),
        ("He lives in the U.S.", "He lives in the U.S. ."),
        ("Mr. Smith of Inc. left -- at last!", "Mr. Smith of Inc. left -- at last !"),
        ("“Hi,” she’s gone—now.", "`` Hi , '' she 's gone — now ."),
        ("  two   spaces\tand a tab ", "two spaces and a tab"),
        ("a set {x} and (y)", "a set -LCB- x -RCB- and -LRB- y -RRB-"),
        ("", ""),
    ],
)
def test_raw_sentences(raw, words):
    assert treebank_text(raw, raw=True) == words


def test_graph_equals_python():
    generator = random.Random(3)
    characters = "ab.,'\"()[]-:;1\u00a0\u2014’“” \t!$%&?ſKn't"
    texts = ["".join(generator.choices(characters, k=n % 30)) for n in range(2_000)]
    for raw in (False, True):
        found = graph.treebank_texts(tf.constant(texts), raw).numpy()
        assert [x.decode() for x in found] == [treebank_text(x, raw) for x in texts]


def test_punctuation_in_the_graph():
    generator = random.Random(4)
    words = ["a", "dogs", "AER", "7", "x3", ".", ",", ":", "'", "’", "`", "-", "''"]
    words += ["--", ""]
    sentences = [generator.choices(words, k=1 + n % 12) for n in range(3_000)]
    tags = graph.mark_tags(tf.ragged.constant(sentences)).numpy()
    for sentence, row in zip(sentences, tags, strict=True):
        graph_tags = [tag.decode() or None for tag in row[: len(sentence)]]
        assert graph_tags == mark_tags(sentence), sentence
    assert np.unique(tags).size > 5
    kinds = graph.word_kinds(tf.ragged.constant(sentences)).numpy()
    for sentence, row in zip(sentences, kinds.tolist(), strict=True):
        tags = mark_tags(sentence)
        assert row[: len(sentence)] == [KIND_OF_TAG.get(tag, WORD) for tag in tags]
        assert not any(row[len(sentence) :])
