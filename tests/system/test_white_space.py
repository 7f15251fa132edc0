"""White space at the ends of texts has no effect, as in tensor2tensor.

Nor has a text of nothing but white space and invisible characters.
"""

import sys
import unicodedata

import pytest
import tensorflow as tf

from t2t_keras.data.cleaning import empty
from t2t_keras.data.datagen import generate
from t2t_keras.data.encoding import EncodingConfig
from t2t_keras.data.pipeline import read_pairs
from t2t_keras.data.record_index import RecordIndex
from t2t_keras.problem import Problem, TextProcessor
from t2t_keras.text.sentences import BLANK, is_blank
from t2t_keras.text.tokenizer import load_tokenizer

PAIRS = [
    ("house river", "Haus Fluss"),
    ("river, house", "Fluss, Haus"),
    ("house  house", "Haus  Haus"),
]
SPACES = ["", " ", "\t", "\u3000", " \xa0\u2009", "\x1c\r"]
AROUND = [
    (f"{prefix}{source}{suffix}", f"{prefix}{target}{suffix}")
    for source, target in PAIRS
    for prefix in SPACES
    for suffix in SPACES
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
    texts = [
        tuple(map(tokenizer.decode, pair))
        for pair in read_pairs(index, range(len(index)))
    ]
    assert sorted(texts) == sorted(PAIRS * len(SPACES) ** 2)
    assert not any("\u3000" in piece for piece in tokenizer.pieces)


def test_python_and_graph_remove_the_same_characters():
    characters = [chr(i) for i in range(1, sys.maxunicode + 1) if chr(i).isspace()]
    characters += ["\u200b", "\ufeff", "\u180e", "\x1b", "."]  # no white space
    texts = [f"{x}a{x}b{x}{x}" for x in characters] + ["", " ", " \n\u2029", "a"]
    processor = TextProcessor()
    stripped = processor.preprocess_graph(tf.constant(texts), raw=False).numpy()
    expected = [processor.preprocess(text) for text in texts]
    assert [text.decode() for text in stripped] == expected
    assert expected[0] == "a\tb"


# Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties.txt.
IGNORABLE = """00AD 034F 061C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E
2060-206F 3164 FE00-FE0F FEFF FFA0 FFF0-FFF8 1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"""


def ignorable() -> set[str]:
    characters = set()
    for item in IGNORABLE.split():
        start, _, stop = item.partition("-")
        characters.update(map(chr, range(int(start, 16), int(stop or start, 16) + 1)))
    return characters


def test_python_and_graph_agree_on_what_is_blank():
    codes = set(range(sys.maxunicode + 1)) - set(range(0xD800, 0xE000))
    characters = [chr(i) for i in sorted(codes)]
    invisible = ignorable() | set("\ufff9\ufffa\ufffb\u2800")
    expected = [
        x.isspace() or x in invisible or unicodedata.category(x) == "Cc"
        for x in characters
    ]
    assert [is_blank(x) for x in characters] == expected
    matches = tf.strings.regex_full_match(tf.constant(characters), BLANK)
    assert matches.numpy().tolist() == expected
    # A visible character among them.
    texts = [
        "",
        "\0",
        "\u200b\0 \ufeff",
        "\u200ba\u200b",
        "نمی\u200cدانم",
        "\0.",
        "-",
        "]",
    ]
    expected = [True] * 3 + [False] * 5
    assert [is_blank(text) for text in texts] == expected
    matches = tf.strings.regex_full_match(tf.constant(texts), BLANK)
    assert matches.numpy().tolist() == expected


def test_invisible_sides_are_empty():
    for pair in (("a", "\u200b"), ("\ufeff", "b"), ("\0", "b"), ("a", "\u2060\xa0")):
        assert empty(pair, EncodingConfig(1))
    assert not empty(("\u200ba", "نمی\u200cدانم"), EncodingConfig(1))
