"""The word-level tokenizer; the model that is biased towards the next word."""

import numpy as np
import pytest
from helpers.errors import refused
from helpers.model_checks import small_model
from helpers.small_layers import normal
from helpers.tokenizer_checks import (
    LINES,
    assert_graph_equals_python,
    assert_runs_on_cpu,
    random_ids,
    random_lines,
)

from t2t_keras import registry
from t2t_keras.plugins.parsing.next_word import rotate
from t2t_keras.plugins.parsing.words import WordTokenizer, word_classes
from t2t_keras.problems.parsing.linearise import BRACKETS
from t2t_keras.text.tokenizer import load_tokenizer
from t2t_keras.text.vocabulary import EOS, UNK

# Of 20 rare lower-case words, 15 end in "ated".
TEXTS = [f"{chr(97 + i) * 3}ated the dog" for i in range(15)] + ["xx 7 zz yy ww vv"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "text.words"
    WordTokenizer.train(TEXTS, path, 100, symbols=("S", "/S"))
    return load_tokenizer(path)


def test_vocabulary(tokenizer, tmp_path):
    """Symbols, then frequent classes, then words that occur at least twice."""
    classes = ["<a>", "<a-ated>", "<a-d>", "<a-ed>", "<a-ted>"]
    tokens = ["<pad>", "</s>", "<unk>", "S", "/S", *classes, "dog", "the"]
    assert tokenizer.pieces == tokens
    tokenizer.save(tmp_path / "copy.words")
    assert load_tokenizer(tmp_path / "copy.words").pieces == tokens
    ids = tokenizer.encode(" the  S baited cat 7 <pad>")
    assert ids == [11, 3, 9, 5, UNK, UNK, EOS]
    assert tokenizer.decode([3, 5, 0, 6, EOS, 4]) == "S <a> <a-ated>"


def test_classes_of_words():
    longest_first = ["<0a-fold>", "<0a-old>", "<0a-ld>", "<0a-d>", "<0a>"]
    assert list(word_classes("1,234.5-fold")) == longest_first
    assert list(word_classes("IOPs")) == ["<Aa-s>", "<Aa>"]
    words = ("α-Élan", "Pax6", "BMP-4", "!")
    assert [next(word_classes(word)) for word in words] == [
        *("<a-a-lan>", "<Aa0>", "<A-0>", "<!>")
    ]


def test_graph_equals_python(tokenizer):
    lines = [*LINES, *random_lines(200), *TEXTS, "baited IOPs", "the é日ated"]
    graph = tokenizer.graph()
    assert_graph_equals_python(tokenizer, graph, lines, random_ids(tokenizer, 50))
    assert_runs_on_cpu(graph)


def test_invalid_vocabularies_are_refused(tmp_path):
    path = tmp_path / "v.words"
    path.write_bytes(b"the\ndog\n")
    refused("is not a vocabulary of words: it does not begin", load_tokenizer, path)
    path.write_bytes(b"\xff")
    refused("line 1: byte 0xff is not valid UTF-8", load_tokenizer, path)
    refused("no text to train", WordTokenizer.train, [" "], path, 9)
    refused("symbols need 5; raise", WordTokenizer.train, "a", path, 4, ["S", "/S"])


def test_attention_is_biased_towards_the_next_word():
    """Ids from 5 on stand for words; the last head has no bias."""
    model = small_model(model="next_word_transformer", num_brackets=2, num_heads=4)
    shifted = np.array([[0, 3, 5, 4, 9, 2]])
    padding = np.array([0.0, 0.0, 0.0, -1e9], "float32").reshape(1, 1, 1, 4)
    bias = model.cross_attention_bias(padding, shifted)
    distance = abs(np.arange(4) - np.array([0, 0, 1, 1, 2, 2])[:, None])
    expected = -np.array([2, 0.5, 0.125, 0])[:, None, None] * distance + padding[0]
    np.testing.assert_array_equal(bias[0], expected.astype("float32"))
    hparams = registry.hparams("parsing_next_word")
    assert hparams.num_brackets == len(BRACKETS)
    for change in ("attention_window=2", "position=learned", "d_k=3"):
        refused("the model has rotary positions", hparams.parse, change)


def test_rotary_products_are_of_complex_numbers_turned_by_the_distance():
    query = normal(1, 1, 1, 8)
    key = normal(1, 1, 1, 8, seed=1)
    pairs = (query[..., :4] + 1j * query[..., 4:]) * (key[..., :4] - 1j * key[..., 4:])
    for m, n in ((0, 0), (2, 5), (9, 2)):
        turned = pairs * np.exp(1j * (m - n) * 10000.0 ** (-np.arange(4) / 4))
        products = np.sum(rotate(query, [[m]]) * rotate(key, [[n]]))
        np.testing.assert_allclose(products, turned.real.sum(), atol=1e-5)
