"""Explained translations and alternatives, against teacher forcing and the n best."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from helpers.decoding_models import LINES, SHORT, transformer, with_attributes
from helpers.errors import refused
from helpers.tokenizer_checks import ascii_words

from t2t_keras.decoding.engine import AlignmentHead, Source
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.plugins.server.explanation import missing_features, word_probabilities
from t2t_keras.plugins.server.requests import PredictRequest
from t2t_keras.plugins.server.served_model import ServedModel
from t2t_keras.problem import Problem, TextProcessor
from t2t_keras.text.tokenizer import WordListTokenizer
from t2t_keras.text.vocabulary import EOS, PAD, UNK

TEXT = "The old dog . A dog runs ."
OPTIONS = {"beam_size": 3, "n_best": 2}


@pytest.fixture(scope="module")
def model(translator):
    return ServedModel(translator, split_sentences=True)


def explain(model, text, prefix="", **options):
    row = {"texts": text, "prefixes": prefix}
    ((answer),) = model.predict("explain", [row], OPTIONS | options)
    return answer["sentences"]


def test_sentences_have_their_own_outputs(model, translator):
    sentences = explain(model, TEXT)
    texts = [sentence["source"] for sentence in sentences]
    assert texts == ["The old dog .", "A dog runs ."]
    expected = translator.n_best(texts, alignment=AlignmentHead(), **OPTIONS)
    for sentence, hypotheses in zip(sentences, expected, strict=True):
        assert sentence["source_words"] == sentence["source"].split()
        assert sentence["texts"] == [hypothesis.text for hypothesis in hypotheses]
        assert sentence["words"] == ascii_words(hypotheses[0].text)
        assert sentence["alignment"] == [[*x] for x in hypotheses[0].alignment]
        assert sentence["tokens"] == hypotheses[0].tokens
    assert [x["source"] for x in explain(ServedModel(translator), TEXT)] == [TEXT]


def test_scores_and_probabilities_match_teacher_forcing(model, translator):
    for sentence in explain(model, TEXT):
        score = sentence["log_prob"] / sentence["length_penalty"]
        assert score == pytest.approx(sentence["scores"][0], abs=1e-4)
        (forced,) = translator.n_best([sentence["source"]], token_scores=True)
        eos_log_prob = 0.0
        if forced[0].ids[-1] == EOS:
            eos_log_prob = forced[0].token_log_probs[-1]
        product = math.prod(sentence["probabilities"]) * math.exp(eos_log_prob)
        assert math.log(product) == pytest.approx(sentence["log_prob"], abs=1e-3)
        assert len(sentence["probabilities"]) == len(sentence["words"])


def test_the_probability_of_a_word_matches_its_tokens(translator):
    tokenizer = translator.target_tokenizer
    ids = tokenizer.encode("the woman reads")
    log_probs = [-0.1 * (k + 1) for k in range(len(ids))]
    sizes = [len(tokenizer.encode(word)) - 1 for word in ("the", "woman", "reads")]
    assert sum(sizes) == len(ids) - 1 and max(sizes) > 1
    bounds = [0, *itertools.accumulate(sizes)]
    expected = [math.exp(sum(log_probs[a:b])) for a, b in itertools.pairwise(bounds)]
    assert word_probabilities(tokenizer, ids, log_probs) == pytest.approx(expected)


def test_a_text_that_is_too_long_has_all_of_its_words(translator):
    long = ServedModel(translator, **SHORT)
    (sentence,) = explain(long, LINES[3])
    assert len(sentence["probabilities"]) == len(sentence["words"])
    assert sentence["log_prob"] == pytest.approx(
        sentence["scores"][0] * sentence["length_penalty"], rel=1e-4
    )


def test_prefixes_belong_to_the_first_sentence(model):
    sentences = explain(model, TEXT, "a book")
    assert sentences[0]["texts"][0].startswith("a book")
    assert sentences[1] == explain(model, TEXT)[1]
    (blank,) = explain(model, " ")
    assert (blank["words"], blank["texts"][0], blank["alignment"]) == ([], "", [])


@pytest.mark.parametrize("prefix", ["", "a", "the old"])
def test_next_tokens_are_the_likeliest(translator, prefix):
    source = translator.source_tokenizer.encode(LINES[0])
    ids = translator.target_tokenizer.encode(prefix)[:-1]
    rows = translator.engine.next_tokens(
        [Source(source, LINES[0], ids), Source(source[2:], "", ids[:1])],
        5,
        translator.options,
    )
    logits = np.array(translator.model(np.array([source]), np.array([[*ids, EOS]])))
    logits[0, -1, PAD] = -np.inf
    assert rows[0] == np.argsort(-logits[0, -1], kind="stable")[:5].tolist()
    assert len(rows[1]) == 5
    rows = translator.engine.next_tokens([Source(source, "")], 999, translator.options)
    assert sorted(rows[0]) == [*range(1, translator.target_tokenizer.vocab_size)]


class Words(WordListTokenizer):
    """Every token is a word."""

    def split_words(self, text):
        return text.split()

    def word_id(self, word):
        return self.pieces.index(word) if word in self.pieces else UNK


@pytest.fixture(scope="module")
def words():
    """A translator with random weights whose tokens are words."""
    pieces = ["<pad>", "</s>", "<unk>", *sorted({*" ".join(LINES).split()})]
    tokenizer = Words(pieces)
    problem = Problem(summary="", languages=("en", "de"))
    return ModelTranslator(problem, transformer(len(pieces)), tokenizer, tokenizer)


def test_sentences_are_those_that_the_model_searches(translator):
    """The tags are those of the text processor."""
    text_processor = TextProcessor(tags=("<2de>",))
    tagged = with_attributes(translator, text_processor=text_processor)
    text = "<2de> A man is walking. A dog runs"
    parts = [x["source"] for x in explain(ServedModel(tagged), text)]
    assert parts == [text]
    (searched,) = tagged.n_best([text], split_sentences=True)
    model = ServedModel(tagged, split_sentences=True)
    parts = [x["source"] for x in explain(model, text)]
    assert parts == ["<2de> A man is walking.", "<2de> A dog runs"]
    assert searched[0].sentences == len(parts)


@pytest.mark.parametrize("prefix", ["", "a", "the old"])
def test_alternatives_are_the_words_of_the_model(words, prefix):
    """Where tokens are words, the probabilities are those of the softmax."""
    row = {"texts": LINES[0], "prefixes": prefix}
    (answer,) = ServedModel(words).predict("alternatives", [row], {"beam_size": 3})
    tokenizer = words.target_tokenizer
    ids = np.array([tokenizer.encode(prefix)])
    logits = words.model(np.array([tokenizer.encode(LINES[0])]), ids)
    softmax = np.array(tf.nn.softmax(logits)[0, -1])
    softmax[PAD] = 0.0
    best = np.argsort(-softmax)[:8]
    pieces = ["" if i == EOS else tokenizer.pieces[i] for i in best]
    assert answer["words"] == pieces
    assert answer["probabilities"] == pytest.approx(softmax[best], rel=1e-3)
    for word, text in zip(answer["words"], answer["texts"], strict=True):
        assert f"{text} ".startswith(f"{prefix} {word} ".lstrip() if word else prefix)


def test_the_output_of_an_alternative_matches_its_prefix(words):
    row = {"texts": LINES[0], "prefixes": "a"}
    (answer,) = ServedModel(words).predict("alternatives", [row], {"beam_size": 3})
    for word, text in zip(answer["words"], answer["texts"], strict=True):
        if word:
            assert words.translate([LINES[0]], [f"a {word}"], beam_size=3) == [text]


def test_forbidden_words_and_terms_hold_for_alternatives(words):
    model = ServedModel(words)
    row = {"texts": LINES[0], "prefixes": ""}
    (free,) = model.predict("alternatives", [row], {})
    word = free["words"][0] or free["words"][1]
    assert word != "book"
    options = {"forbidden": (word,), "glossary": (("river", "book"),)}
    (answer,) = model.predict("alternatives", [row], options)
    assert word not in answer["words"]
    texts = [text for text in answer["texts"] if text]
    assert texts and all("book" in text.split() for text in texts)


def test_what_a_saved_model_lacks(exported, translator):
    model = ServedModel(exported)
    assert {*model.missing} == {"alignment", "prefixes"}
    (sentence,) = explain(model, LINES[8])
    (expected,) = explain(ServedModel(translator), LINES[8])
    assert sentence["alignment"] is None
    assert sentence["texts"] == expected["texts"]
    assert sentence["probabilities"] == pytest.approx(
        expected["probabilities"], rel=1e-3
    )
    row = {"texts": "a", "prefixes": "b"}
    for signature in ("alternatives", "explain"):
        refused("a SavedModel cannot force them", model.predict, signature, [row], {})


def test_a_run_lacks_nothing_and_has_languages(words, translator):
    assert missing_features(translator) == {}
    assert ServedModel(words).languages == ["en", "de"]
    assert ServedModel(translator).languages is None


def test_prefixes_of_requests():
    def rows(signature, *instances):
        body = {"signature_name": signature, "instances": [*instances]}
        return PredictRequest.parse(body).rows

    assert rows("explain", "a", {"texts": "b", "prefixes": "c"}) == [
        {"texts": "a", "prefixes": ""},
        {"texts": "b", "prefixes": "c"},
    ]
    refused("'alternatives' has the inputs texts, prefixes", rows, "alternatives", "a")
    refused("prefixes.0. must be", rows, "explain", {"texts": "a", "prefixes": 3})
    refused(
        "has the inputs texts; 'translate'", rows, "", {"texts": "a", "prefixes": ""}
    )
