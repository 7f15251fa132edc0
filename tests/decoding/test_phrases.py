"""Required and forbidden phrases, against enumeration and in the text of outputs."""

import re
import unicodedata
from collections import Counter

import numpy as np
import pytest
import tensorflow as tf
from helpers.command_line import write
from helpers.decoding_models import (
    EOS,
    HARD,
    KINDS,
    all_targets,
    log_probs_of,
    numpy_of,
    outputs,
    penalty,
    transformer,
)
from helpers.errors import refused

from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.forbidden_phrases import ForbiddenPhrases, ForbiddenTables
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.phrases import Phrases, protected_parts, whole_word_patterns
from t2t_keras.decoding.required_phrases import RequiredPhrases
from t2t_keras.options import parse_options

SOURCES = [[3, 4, 2, 5, 1], [2, 1, 0, 0, 0], [5, 5, 1, 0, 0]]
TERMS = [("cat", [2, 3]), ("dog", [4]), ("red dog", [3, 3])]
TEXTS = ["a cat and a dog .", "a doggy, 2dog, dog2, édog", "the red dog"]
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


@pytest.fixture(scope="module")
def model():
    return transformer(6)


@pytest.fixture(scope="module")
def search(model):
    """Beam search with the terms above; returns it as NumPy arrays, and the limits."""
    needed = tf.ragged.constant(NEEDED, tf.int32).to_tensor()
    scalar = tf.TensorSpec([], tf.int32)

    @tf.function(input_signature=[scalar] * 3, autograph=False)
    def traced(beam_size, limit, n_best):
        required = RequiredPhrases(needed, tf.fill([3], limit), 0, 6)
        options = {"beam_size": beam_size, "n_best": n_best, "alpha": 0.6}
        options |= {"max_length": required.max_length, "allocation": required}
        hypotheses = beam_search(model, tf.constant(SOURCES), **options)
        return hypotheses, required.max_length

    def run(beam_size, limit, n_best):
        hypotheses, limits = traced(beam_size, limit, n_best)
        return numpy_of(hypotheses), limits.numpy()

    return run


def test_required_phrases_equal_exhaustive_enumeration(model, search):
    hypotheses, limits = search(200, 5, 5)
    np.testing.assert_array_equal(limits, 5)
    targets = all_targets(6, 5)
    for row, source in enumerate(SOURCES):
        log_probs = log_probs_of(model, source, targets)
        scores = log_probs / [penalty(len(t), 0.6) for t in targets]
        is_allowed = np.array([target[-1] == EOS for target in targets])
        for phrase in NEEDED[row]:
            is_allowed &= [contains(target, phrase) for target in targets]
        scores = np.where(is_allowed, scores, -np.inf)
        best = np.argsort(-scores)[: min(5, sum(is_allowed))]
        assert outputs(hypotheses, row)[: len(best)] == [targets[i] for i in best]
        np.testing.assert_allclose(
            hypotheses.scores[row][: len(best)], scores[best], atol=1e-4
        )


@pytest.mark.parametrize(("beam_size", "limit"), [(1, 1), (1, 12), (2, 3), (4, 12)])
def test_required_phrases_are_in_every_output(search, beam_size, limit):
    hypotheses, limits = search(beam_size, limit, beam_size)
    np.testing.assert_array_equal(limits, np.maximum(limit, [4, 1, 4]))
    for row, phrases in enumerate(NEEDED):
        all_outputs = outputs(hypotheses, row)
        assert all_outputs
        for target in all_outputs:
            for phrase in phrases:
                assert contains(target, phrase), (target, phrase)


@pytest.mark.parametrize(
    ("phrases", "text", "is_found"),
    [
        (["dog"], "the dog .", True),
        (["dog"], "dog", True),
        (["dog"], "dogs, hotdog", False),
        (["old dog", "dogs"], "the old dogs", True),
        (["a a b"], "a a a b", True),
        (["..."], "well...then", True),
        (["..."], "well then", False),
        (["..."], "well, then..", False),
        (["!", "then."], "well then", False),
        (["-dog"], "a dog-", False),
        (["-dog"], "hot-dogs", False),
        (["dog?", "x"], "a dog", False),
        (["naïve"], "naïveté", False),
        (["dog"], "„dog“", True),
        (["dog"], "a—dog…", True),
        (["parer"], "préparer", False),
        (["a“"], "a“b", True),
        # Letters and digits in blocks of punctuation.
        (["m²"], "5 m²", True),
        (["ª"], "nª", False),
        (["々"], "日々", False),
        (["々"], "。々", True),
    ],
)
def test_forbidden_phrases_are_found_in_any_tokens(phrases, text, is_found):
    """With tokens drawn at random."""
    rng = np.random.default_rng(0)
    for _ in range(3):
        tokens = random_tokens(rng, f" {text}".encode())
        vocabulary = [b"", b"", *dict.fromkeys(tokens)]
        tables = ForbiddenTables(vocabulary)(tf.constant([*phrases, ""]))
        ids = [token for token in map(vocabulary.index, tokens) if token]
        assert is_allowed(tables, [*ids, EOS]) != is_found


def is_allowed(tables, ids):
    """Whether the constraint allows each of the tokens after those before it."""
    constraint = ForbiddenPhrases(*tables)
    state = constraint.init(tf.zeros([1, 1]), tf.constant(1))
    allowed = True
    for token in ids:
        allowed &= bool(constraint.mask(state, tf.constant(0))[0, 0, token])
        state = constraint.advance(state, [[0]], [[token]])
    return allowed


def is_in_words(phrases, text):
    """The rule of `ForbiddenTables`: beyond ASCII, all but three blocks are letters."""

    def is_letter(c):
        blocks = ((0x80, 0xC0), (0x2000, 0x2080), (0x3000, 0x3040))
        in_block = any(start <= ord(c) < stop for start, stop in blocks)
        return c.isalnum() if c.isascii() else not in_block

    for phrase in phrases:
        for i in range(len(text) - len(phrase) + 1):
            before, after = text[:i][-1:], text[i + len(phrase) :][:1]
            if (
                text[i:].startswith(phrase)
                and not (is_word(phrase[0]) and before and is_letter(before))
                and not (is_word(phrase[-1]) and after and is_letter(after))
            ):
                return True
    return False


def is_word(character):
    return unicodedata.category(character)[0] in "LN"


def random_tokens(rng, content):
    cuts = np.flatnonzero(rng.random(len(content) - 1) < 0.6) + 1
    return [bytes(x) for x in np.split(np.frombuffer(content, np.uint8), cuts)]


@pytest.mark.slow
def test_forbidden_phrases_of_random_characters():
    """Letters, punctuation and spaces, in ASCII and beyond, in tokens of any bytes."""
    rng = np.random.default_rng(1)
    characters = list("ab.- é…²€々日")
    counts = Counter()
    for _ in range(25):
        phrases = [
            "".join(rng.choice(characters, rng.integers(1, 4))).strip() or "a"
            for _ in range(rng.integers(1, 4))
        ]
        texts = ["".join(rng.choice(characters, 1 + i % 7)) for i in range(7)]
        token_rows = [random_tokens(rng, text.encode()) for text in texts]
        vocabulary = [b"", b"", *{token for row in token_rows for token in row}]
        tables = ForbiddenTables(vocabulary)(tf.constant(phrases))
        for text, row in zip(texts, token_rows, strict=True):
            ids = list(map(vocabulary.index, row))
            expected = is_in_words(phrases, text)
            assert is_allowed(tables, [*ids, EOS]) != expected, (phrases, text)
            counts[expected] += 1
    assert min(counts.values()) > 20


def test_the_tables_of_forbidden_phrases_grow_with_their_number():
    """Not with the square; that they are the same is in the test above."""
    letters = [chr(0x4E00 + i) for i in range(800)]
    pieces = [f"{a}{b}".encode() for a in "▁aeinr,." for b in "abcdefghijklmno日本語"]
    tables = ForbiddenTables([b"", b"", *pieces, *(bytes([i]) for i in range(256))])
    sizes = [
        sum(tf.size(table).numpy() for table in tables(tf.constant(letters[:count])))
        for count in (200, 400, 800)
    ]
    assert sizes[2] - sizes[1] < 2.2 * (sizes[1] - sizes[0])
    assert sizes[2] < 800 * 50


def test_many_forbidden_phrases_equal_those_that_occur(translator):
    few = ("e", "the", "dog")
    absent = [chr(0x4E00 + i) for i in range(300)]
    expected = translator.n_best(SENTENCES, 3, forbidden=few)
    actual = translator.n_best(SENTENCES, 3, forbidden=[*absent, *few, *absent])
    assert actual == expected


def test_glossary(translator):
    glossary = (("dog", "Hund"), ("old river", "alter Fluss"), ("café", "Kaffee"))
    translations = translator.translate(SENTENCES, glossary=glossary)
    for text, output in zip(SENTENCES, translations, strict=True):
        for source, target in glossary:
            assert (source not in text) or target in output, (text, output)
    assert translations != translator.translate(SENTENCES)
    forced = translator.translate(
        SENTENCES[:2], ["the Hund", "a"], glossary=glossary, extra_length=0
    )
    assert forced[0].startswith("the Hund") and "Hund" in forced[1]


def unpadded_phrases(phrases):
    unpadded = [phrase[phrase != 0].tolist() for phrase in phrases]
    return [phrase for phrase in unpadded if phrase]


def test_a_glossary_finds_whole_words():
    ids = tf.constant([[2, 3], [4, 0], [3, 3]])
    patterns = whole_word_patterns(tf.constant([source for source, _ in TERMS]))
    phrases = Phrases((patterns, ids), ())
    copied = tf.constant([[[0, 0, 0]], [[5, 5, 5]], [[0, 0, 0]]])
    for copied_phrases in (None, copied):
        required = phrases.required(tf.constant(TEXTS), copied_phrases).numpy()
        found_rows = [unpadded_phrases(row) for row in required]
        second_row = [] if copied_phrases is None else [[5, 5, 5]]
        assert found_rows == [NEEDED[0], second_row, NEEDED[2]]


def test_a_term_that_is_not_utf8_is_in_no_text():
    patterns = whole_word_patterns(tf.constant([b"\xff", b"a\xe9", "é".encode()]))
    texts = [b"\xff", b"a\xe9 b", b"", "é".encode()]
    found = [tf.strings.regex_full_match(texts, p).numpy() for p in patterns.numpy()]
    np.testing.assert_array_equal(found, [[0] * 4, [0] * 4, [0, 0, 0, 1]])


def test_a_glossary_has_the_ids_of_its_terms_without_eos(translator):
    terms = {"dog": "Hund", "old river": "alter Fluss"}
    tokenizer = translator.target_tokenizer
    _, ids = Phrases.from_options(DecodingOptions(glossary=terms), tokenizer).glossary
    expected = [tokenizer.encode(target)[:-1] for target in terms.values()]
    assert unpadded_phrases(ids.numpy()) == expected


def test_the_number_of_tokens_that_a_hypothesis_has_of_its_phrases():
    """Of [2, 3] and [4]; a phrase that has begun counts until it is broken off."""
    phrases = RequiredPhrases(tf.constant([[[2, 3], [4, 0]]]), tf.constant([9]), 0, 6)
    state = phrases.init(tf.constant(1))
    counts = []
    for token in (5, 2, 5, 2, 2, 3, 5, 4):
        step = tf.constant([[0]]), tf.constant([[token]])
        counts.append(float(phrases.num_matched_tokens(state, *step)[0, 0]))
        state = phrases.advance(state, *step)
    assert counts == [0, 1, 0, 1, 1, 2, 2, 3]  # the second 2 in a row begins again


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
    pieces = ["▁a", "b", "]", "a"]
    spans = protected_parts(tf.constant([text, "a"]), kinds.split(","), pieces)
    assert [part.decode() for part in spans.to_list()[0]] == expected
    assert spans.to_list()[1] == []


def test_protected_parts_are_in_the_outputs(translator, tmp_path):
    plain = translator.translate([*HARD])
    n_best = translator.n_best([*HARD], 3, protect=KINDS)
    for outputs_, parts in zip(n_best, HARD.values(), strict=True):
        for output in outputs_:
            assert all(part in output.text for part in parts), (output.text, parts)
    assert [plain[2], plain[4]] == [n_best[2][0].text, n_best[4][0].text]
    combined = {"protect": KINDS, "glossary": (("dog", "Hund"),)}
    for text, output in zip(
        HARD, translator.translate([*HARD], **combined), strict=True
    ):
        assert ("dog" not in text) or "Hund" in output


def test_forbidden(translator):
    plain = translator.translate(SENTENCES)
    shown = " ".join(plain).replace("�", "x")  # bytes beyond ASCII
    words = sorted({word for word in re.findall(r"\w+", shown) if "x" not in word})
    words = words[:6]
    assert words
    phrases = (*words, "old dog")
    n_best = translator.n_best(SENTENCES, 3, forbidden=phrases)
    for outputs_ in n_best:
        for output in outputs_:
            if output.ids[-1] == EOS:  # otherwise, the last word may go on
                text = output.text.replace("�", "x")
                assert not re.search(rf"\b({'|'.join(phrases)})\b", text), text
    assert [row[0].text for row in n_best] != plain


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"glossary": (("a", " "),)}, "glossary: a phrase is empty; leave it out"),
        ({"glossary": (("a", "b"),), "sampling": True}, "glossary has no effect on"),
        ({"protect": ["url", "name"]}, "protect: there is no 'name'; the choice is"),
        ({"protect": ["url"], "sampling": True}, "protect has no effect on samples"),
        ({"glossary": "a=b"}, "glossary: give pairs of a source and a target term"),
        ({"glossary": {"a": 1}}, "glossary: give pairs"),
        ({"forbidden": "a"}, "forbidden: give a list of strings, not 'a'"),
    ],
)
def test_bad_phrases(options, message):
    lists = DecodingOptions(glossary=[["a", "b"]], forbidden=["c"])
    assert lists == DecodingOptions(glossary={"a": "b"}, forbidden=("c",))
    refused(message, DecodingOptions, **options)


def test_lists_in_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "terms.tsv", "a\tb", "", "c d\te")
    write(tmp_path / "bad.tsv", "a\tb", "", "c")
    options = parse_options(DecodingOptions, "glossary=terms.tsv,forbidden=[x,y z]")
    assert options["glossary"] == (("a", "b"), ("c d", "e"))
    assert options["forbidden"] == ("x", "y z")
    for value, message in (
        ("[a=b=c]", "glossary: term 1 is not SOURCE=TARGET"),
        ("missing.tsv", "glossary: cannot read missing.tsv"),
        ("bad.tsv", "bad.tsv: line 3 is not `source TAB target`"),
    ):
        refused(message, parse_options, DecodingOptions, f"glossary={value}")
