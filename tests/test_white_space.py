"""White space at the ends of texts has no effect, as in tensor2tensor."""

import sys

import pytest
import tensorflow as tf

from t2t_keras.data.datagen import generate
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.data.records import RecordIndex
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
    """The data of `AROUND`."""
    folder = tmp_path_factory.mktemp("data")
    problem = Problem(
        name="spaces", summary="", sources={"train": lambda: AROUND}, vocab_size=300
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


def test_python_and_graph_remove_the_same_characters():
    characters = [chr(i) for i in range(1, sys.maxunicode + 1) if chr(i).isspace()]
    characters += ["\u200b", "\ufeff", "\u180e", "\x1b", "."]  # no white space
    texts = [f"{x}a{x}b{x}{x}" for x in characters] + ["", " ", " \n\u2029", "a"]
    form = TextForm()
    found = form.source_texts(tf.constant(texts), raw=False).numpy()
    expected = [form.source_text(text) for text in texts]
    assert [text.decode() for text in found] == expected
    assert expected[0] == "a\tb"
