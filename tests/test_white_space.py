"""White space at the ends of texts has no effect, as in tensor2tensor."""

import sys

import numpy as np
import pytest
import tensorflow as tf
from decoding_models import transformer

from t2t_keras.data.datagen import generate
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.data.records import RecordIndex
from t2t_keras.decoding.translator import Translator
from t2t_keras.problem import Problem, TextForm
from t2t_keras.text.tokenizer import load_tokenizer

PAIRS = [
    ("house river", "Haus Fluss"),
    ("river, house", "Fluss, Haus"),
    ("house  house", "Haus  Haus"),
]
SPACES = ["", " ", "\t", "\u3000", " \xa0\u2009", "\x1c\r"]
AROUND = [
    tuple(f"{before}{text}{after}" for text in pair)
    for pair in PAIRS
    for before in SPACES
    for after in SPACES
]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """The data of `AROUND`, with tensor2tensor's subwords."""
    folder = tmp_path_factory.mktemp("data")
    problem = Problem(
        name="spaces",
        summary="",
        sources={"train": lambda: AROUND},
        tokenizer="t2t_subword",
        vocab_size=60,
    )
    generate(problem, folder, workers=1)
    return folder


def test_training_data_have_none(data_dir):
    tokenizer = load_tokenizer(next(data_dir.glob("vocab.*")))
    index = RecordIndex.open(data_dir, "spaces", "train")
    found = [
        tuple(map(tokenizer.decode, pair))
        for pair in read_pairs(index, range(len(index)))
    ]
    assert sorted(found) == sorted(PAIRS * len(SPACES) ** 2)
    assert not any("\u3000" in piece for piece in tokenizer.pieces)


def test_inputs_and_targets_are_taken_without_it(data_dir):
    tokenizer = load_tokenizer(next(data_dir.glob("vocab.*")))
    problem = Problem(summary="", extra_length=4)
    translator = Translator(
        problem, transformer(tokenizer.vocab_size), tokenizer, tokenizer
    )
    (expected,) = translator.n_best(["house river"], 2)
    for found in translator.n_best([text for text, _ in AROUND[: len(SPACES) ** 2]], 2):
        assert [x.ids for x in found] == [x.ids for x in expected]
    sources, targets = zip(*AROUND, strict=True)
    scores = [x.log_prob for x in translator.score(sources, targets)]
    expected = [x.log_prob for x in translator.score(*zip(*PAIRS, strict=True))]
    np.testing.assert_allclose(scores, np.repeat(expected, len(SPACES) ** 2), rtol=1e-5)


def test_python_and_graph_remove_the_same_characters():
    characters = [chr(i) for i in range(1, sys.maxunicode + 1) if chr(i).isspace()]
    characters += ["\u200b", "\ufeff", "\u180e", "\x1b", "."]  # no white space
    texts = [f"{x}a{x}b{x}{x}" for x in characters] + ["", " ", " \n\u2029", "a"]
    form = TextForm()
    found = form.source_texts(tf.constant(texts), raw=False).numpy()
    expected = [form.source_text(text) for text in texts]
    assert [text.decode() for text in found] == expected
    assert expected[0] == "a\tb"
