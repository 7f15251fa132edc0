"""Required and forbidden phrases, against enumeration and in the text of outputs."""

import re

import numpy as np
import pytest
import tensorflow as tf
from command_line import run, write
from decoding_models import (
    EOS,
    all_targets,
    log_probs_of,
    numpy_of,
    outputs,
    penalty,
    transformer,
)

import t2t_keras
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.phrases import ForbiddenPhrases, RequiredPhrases
from t2t_keras.decoding.translator import Translator
from t2t_keras.export.saved_model import export_saved_model
from t2t_keras.option import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.protected import find_protected, protected_pattern
from t2t_keras.text.sentence_piece import SentencePieceTokenizer, train_sentence_piece
from t2t_keras.text.subword import SubwordTokenizer
from t2t_keras.text.subword_training import train_subwords

SOURCES = [[3, 4, 2, 5, 1], [2, 1, 0, 0, 0], [5, 5, 1, 0, 0]]
TERMS = [("cat", [2, 3]), ("dog", [4]), ("red dog", [3, 3])]
TEXTS = ["a cat and a dog .", "a doggy", "the red dog"]
NEEDED = [[[2, 3], [4]], [], [[4], [3, 3]]]
SENTENCES = [
    "the old house stands near the river .",
    "a dog runs .",
    "the woman with the green hat reads a very long book about the old river .",
    "the dog reads a book .",
    "the old dog .",
    "naïve café",
]


def contains(target, phrase):
    return any(target[i : i + len(phrase)] == phrase for i in range(len(target)))


def search(model, beam_size, limit, n_best=1):
    """Beam search with the terms above; returns it as NumPy arrays, and the limits."""
    limits = tf.fill([3], limit)
    required = RequiredPhrases(TERMS, tf.constant(TEXTS), None, limits, 0, 6)
    found = tf.function(
        lambda: beam_search(
            model,
            tf.constant(SOURCES),
            beam_size=beam_size,
            alpha=0.6,
            max_length=required.max_length,
            n_best=n_best,
            required=required,
        )
    )()
    return numpy_of(found), required.max_length.numpy()


def test_required_phrases_equal_exhaustive_enumeration():
    model = transformer(6)
    found, limits = search(model, 200, 5, 5)
    np.testing.assert_array_equal(limits, 5)
    targets = all_targets(6, 5)
    for row, source in enumerate(SOURCES):
        log_probs = log_probs_of(model, source, targets)
        scores = log_probs / [penalty(len(t), 0.6) for t in targets]
        ended = [
            t[-1] == EOS and all(contains(t, phrase) for phrase in NEEDED[row])
            for t in targets
        ]
        scores = np.where(ended, scores, -np.inf)
        best = np.argsort(-scores)[: min(5, sum(ended))]
        assert outputs(found, row)[: len(best)] == [targets[i] for i in best]
        np.testing.assert_allclose(
            found.scores[row][: len(best)], scores[best], atol=1e-4
        )


@pytest.mark.parametrize("limit", [1, 3, 12])
@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_required_phrases_are_in_every_output(beam_size, limit):
    model = transformer(6)
    found, limits = search(model, beam_size, limit, beam_size)
    np.testing.assert_array_equal(limits, np.maximum(limit, [4, 1, 4]))
    for row, phrases in enumerate(NEEDED):
        every = outputs(found, row)
        assert every
        for target in every:
            for phrase in phrases:
                assert contains(target, phrase), (target, phrase)


def test_sources_without_terms_have_the_outputs_of_an_ordinary_search():
    model = transformer(6)
    found, _ = search(model, 4, 12, 4)
    plain = numpy_of(
        beam_search(
            model,
            tf.constant(SOURCES[1:2]),
            beam_size=4,
            alpha=0.6,
            max_length=tf.constant([12]),
            n_best=4,
        )
    )
    assert outputs(found, 1) == outputs(plain, 0)


@pytest.mark.parametrize(
    ("phrases", "text", "is_found"),
    [
        (["dog"], "the dog", True),
        (["dog"], "the dog .", True),
        (["dog"], "dog", True),
        (["dog"], "(dog)", True),
        (["dog"], "dogs, hotdog", False),
        (["dog"], "the DOG", False),
        (["old dog", "dogs"], "the old dogs", True),
        (["old dog", "dogs"], "the old doggy", False),
        (["a a b"], "a a a b", True),
        (["..."], "well...then", True),
        (["naïve"], "naïveté", False),
        (["naïve"], "naïve té", True),
        (["dog"], "„dog“", True),
        (["dog"], "«dog»", True),
        (["dog"], "a—dog…", True),
        (["parer"], "préparer", False),
        (["a“"], "a“b", True),
    ],
)
def test_forbidden_phrases_are_found_in_any_tokens(phrases, text, is_found):
    """The automaton against a regular expression, with tokens drawn at random."""
    pattern = "|".join(
        (r"(?<!\w)" if p[0].isalnum() else "")
        + re.escape(p)
        + (r"(?!\w)" if p[-1].isalnum() else "")
        for p in phrases
    )
    assert bool(re.search(pattern, text)) == is_found
    rng = np.random.default_rng(0)
    content = f" {text}".encode()
    for _ in range(20):
        cuts = np.flatnonzero(rng.random(len(content) - 1) < 0.4) + 1
        tokens = [bytes(x) for x in np.split(np.frombuffer(content, np.uint8), cuts)]
        vocabulary = [b"", b"", *dict.fromkeys(tokens)]
        constraint = ForbiddenPhrases(phrases, vocabulary)
        state = constraint.init(tf.zeros([1, 1]), tf.constant(1))
        is_allowed = True
        for token in [*map(vocabulary.index, tokens), EOS]:
            if token == 0:
                continue
            is_allowed &= bool(constraint.mask(state, tf.constant(0))[0, 0, token])
            state = constraint.advance(state, [[0]], [[token]])
        assert is_allowed != is_found


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.spm"
    train_sentence_piece(SENTENCES * 2, path, 340)
    tokenizer = SentencePieceTokenizer(path)
    problem = Problem(summary="", extra_length=10)
    return Translator(problem, transformer(tokenizer.vocab_size), tokenizer, tokenizer)


def test_glossary_in_python_and_in_an_export(translator, tmp_path):
    glossary = (("dog", "Hund"), ("old river", "alter Fluss"), ("café", "Kaffee"))
    found = translator.translate(SENTENCES, glossary=glossary)
    for text, output in zip(SENTENCES, found, strict=True):
        for source, target in glossary:
            assert (source not in text) or target in output, (text, output)
    assert found != translator.translate(SENTENCES)
    forced = translator.translate(
        SENTENCES[:2], ["the Hund", "a"], glossary=glossary, extra_length=0
    )
    assert forced[0].startswith("the Hund") and "Hund" in forced[1]

    export = tmp_path / "1"
    export_saved_model(translator, export, glossary=glossary)
    assert t2t_keras.load(export).translate(SENTENCES) == found


def test_phrases_of_the_sources_count_like_terms():
    """A search with the same phrases, given as terms or for each source."""
    model = transformer(6)

    def outputs_of(required):
        found = beam_search(
            model,
            tf.constant(SOURCES),
            beam_size=4,
            alpha=0.6,
            max_length=required.max_length,
            n_best=4,
            required=required,
        )
        return numpy_of(found)

    texts, limits = tf.constant(TEXTS), tf.fill([3], 7)
    copied = tf.ragged.constant(NEEDED, tf.int32).to_tensor()
    expected = outputs_of(RequiredPhrases(TERMS, texts, None, limits, 0, 6))
    for terms, phrases in (
        ([], copied),
        (TERMS[1:], tf.constant([[[2, 3]], [[0, 0]], [[3, 3]]])),
    ):
        found = outputs_of(RequiredPhrases(terms, texts, phrases, limits, 0, 6))
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)


PROTECTED = [
    ("see http://a.b/c?d=e&f. Or (www.x-y.org)!", "url",
     ["http://a.b/c?d=e&f", "www.x-y.org"]),
    ("https://例え.jp/日本, ftp://h", "url", ["https://例え.jp/日本", "ftp://h"]),
    ("mail a.b+c@d-e.co.uk, or me@x", "email", ["a.b+c@d-e.co.uk"]),
    ("<b class='x'>a</b> < c & d &amp; {{n}} {0} %s %d", "markup",
     ["<b class='x'>", "</b>", "&amp;", "{{n}}", "{0}", "%s", "%d"]),
    ("3 of 1,000.50 on 2014-05-06, 12:30. x2 ٣", "number",
     ["3", "1,000.50", "2014-05-06", "12:30", "2", "٣"]),
    ("a 😀👍🏽 b ❤️ © c", "symbol", ["😀👍🏽", "❤️", "©"]),
    ("no such thing, here!", "url,email,markup,number,symbol", []),
    ("a@b.c http://x.y/1 7", "number,url,email", ["a@b.c", "http://x.y/1", "7"]),
    ("", "url", []),
    ("abba 日本 ab^-]c \x07x", "unknown", ["日本", "^-", "c", "\x07x"]),
    ("ab http://日.jp 日 7", "unknown,url", ["http://日.jp", "日", "7"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kinds", "expected"), PROTECTED)
def test_what_is_protected(text, kinds, expected):
    pattern = protected_pattern(kinds.split(","), ["▁a", "b", "]", "a"])
    found = find_protected(tf.constant([text, "a"]), pattern)
    assert [part.decode() for part in found.to_list()[0]] == expected
    assert found.to_list()[1] == []


HARD = [
    "the dog reads http://a.b/c?d=1 .",
    "a <b>dog</b> runs 😀 .",
    "",
    "mail me@x.org , or 12 35 ! 日本 ©",
    "the old dog .",
]


@pytest.mark.parametrize("kind", ["sentence_piece", "subword"])
def test_protected_parts_are_in_the_outputs(kind, translator, tmp_path):
    if kind == "subword":
        train_subwords(SENTENCES * 2, tmp_path / "v.subwords", 80)
        tokenizer = SubwordTokenizer(tmp_path / "v.subwords")
        model = transformer(tokenizer.vocab_size)
        problem = translator.problem
        translator = Translator(problem, model, tokenizer, tokenizer)
    kinds = ("url", "email", "markup", "number", "symbol", "unknown")
    plain = translator.translate(HARD)
    found = translator.n_best(HARD, 3, protect=kinds)
    wanted = [
        ["http://a.b/c?d=1"],
        ["<b>", "</b>", "😀"],
        [],
        ["me@x.org", "12", "35", "日本", "©"],
        [],
    ]
    for outputs_, parts in zip(found, wanted, strict=True):
        for output in outputs_:
            text = output.text
            if kind == "subword":  # may have spaces between punctuation
                text = "".join(text.split())
            assert all(part in text for part in parts), (output.text, parts)
    assert [plain[2], plain[4]] == [found[2][0].text, found[4][0].text]
    if kind == "subword":
        return
    greedy = translator.translate(HARD, protect=kinds, beam_size=1, extra_length=0)
    assert "http://a.b/c?d=1" in greedy[0]

    both = {"protect": kinds, "glossary": (("dog", "Hund"),)}
    for text, output in zip(HARD, translator.translate(HARD, **both), strict=True):
        assert ("dog" not in text) or "Hund" in output
    export_saved_model(translator, tmp_path / "1", protect=kinds)
    again = t2t_keras.load(tmp_path / "1")
    assert again.translate(HARD) == translator.translate(HARD, protect=kinds)


def test_protect_and_ids_only(translator, tmp_path):
    with pytest.raises(UserError, match="ids_only: protect needs texts"):
        export_saved_model(translator, tmp_path, protect=["url"], ids_only=True)


def test_forbidden_in_python_and_in_an_export(translator, tmp_path):
    plain = translator.translate(SENTENCES)
    shown = " ".join(plain).replace("�", "x")  # bytes beyond ASCII
    words = sorted({word for word in re.findall(r"\w+", shown) if "x" not in word})
    words = words[:6]
    assert words
    phrases = (*words, "old dog")
    found = translator.n_best(SENTENCES, 3, forbidden=phrases)
    for outputs_ in found:
        for output in outputs_:
            for phrase in phrases:
                pattern = rf"(?<!\w){re.escape(phrase)}(?!\w)"
                text = output.text.replace("�", "x")  # bytes beyond ASCII
                assert not re.search(pattern, text), (phrase, text)
    assert [row[0].text for row in found] != plain

    export = tmp_path / "1"
    export_saved_model(translator, export, forbidden=phrases)
    best = [row[0].text for row in translator.n_best(SENTENCES, forbidden=phrases)]
    assert t2t_keras.load(export).translate(SENTENCES) == best


def test_dictionaries_and_lists_of_phrases():
    options = DecodingOptions(glossary={"a": "b"}, forbidden=["c"])
    same = DecodingOptions(glossary=[["a", "b"]], forbidden=("c",))
    assert options == same
    assert hash(options) == hash(same)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"glossary": (("a", " "),)}, "glossary: a phrase is empty; leave it out"),
        ({"forbidden": ("",)}, "forbidden: a phrase is empty; leave it out"),
        ({"glossary": (("a", "b"),), "sampling": True}, "glossary has no effect on"),
        (
            {"protect": ["url", "name"]},
            "protect: there is no 'name'; the choice is url",
        ),
        ({"protect": "url"}, "protect: give a list of strings"),
        ({"protect": ["url"], "sampling": True}, "protect has no effect on samples"),
        ({"glossary": "a=b"}, "glossary: give pairs of a source and a target term"),
        ({"glossary": [("a", "b", "c")]}, "glossary: give pairs"),
        ({"glossary": {"a": 1}}, "glossary: give pairs"),
        ({"forbidden": "a"}, "forbidden: give a list of strings, not 'a'"),
        ({"forbidden": [1]}, "forbidden: give a list"),
    ],
)
def test_bad_phrases(options, message):
    with pytest.raises(UserError, match=message):
        DecodingOptions(**options)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[a=b=c]", "glossary: term 1 is not SOURCE=TARGET"),
        ("missing.tsv", "glossary: cannot read missing.tsv"),
        ("bad.tsv", "bad.tsv: term 2 is not `source TAB target`"),
    ],
)
def test_bad_glossary_flags(value, message, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "bad.tsv", "a\tb", "", "c")
    assert (
        run("translate", "--output_dir", "x", "--decode_hparams", f"glossary={value}")
        != 0
    )
    assert message in capfd.readouterr().err
