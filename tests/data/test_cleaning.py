"""Cleaning: each rule and its counts, whatever else is configured."""

import collections
import dataclasses

import pytest
from helpers.errors import refused
from helpers.small_corpus import PROBLEM, TRAIN, Given, decoded, files

from t2t_keras.data import encode_splits
from t2t_keras.data.cleaning import (
    LENGTH_FILTERS,
    TEXT_FILTERS,
    active_filters,
    drop_reason,
    parse_cleaning,
    reasons,
)
from t2t_keras.data.datagen import generate
from t2t_keras.data.encoding import EncodingConfig
from t2t_keras.data.manifest import Manifest
from t2t_keras.problem import Cleaning

pytestmark = pytest.mark.usefixtures("small_scale")

ALL = Cleaning(
    **dict.fromkeys(("identical", "control", "entities", "duplicates"), True),
    **{"letters": 0.5, "word": 20, "ratio": 2.0},
)


def text_reason(pair, cleaning):
    filters = active_filters(TEXT_FILTERS, cleaning)
    return drop_reason(pair, filters, EncodingConfig(1, cleaning=cleaning))


def length_reason(source, target, cleaning):
    filters = active_filters(LENGTH_FILTERS, cleaning)
    config = EncodingConfig(1, max_length=10, cleaning=cleaning)
    return drop_reason((source, target), filters, config)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("A dog.", "Ein Hund."), None),
        ((" ", "x"), "empty"),
        (("x", "\u3000"), "empty"),
        (("It\x92s late", "Es ist spät"), "control"),  # Windows's apostrophe
        (("late", "sp\ufffdt"), "control"),
        (("a\tdog", "ein\tHund"), None),
        (("R &amp; D", "F und E"), "entities"),
        (("the dog &apos;s", "des Hundes"), "entities"),  # Moses
        (("a well @-@ known dog", "ein Hund"), "entities"),
        (("R&D; one a@-@b", "F & E"), None),
        (("The  same ", "the same"), "identical"),
        (("3.14 = 22/7?", "Drei Komma vier"), "few_letters"),
        (("ab 12", "ab zwei"), None),  # one half
        (("犬がいる。", "Собака тут."), None),
        (("see " + "x" * 21, "siehe da"), "long_word"),
        (("see " + "x" * 20, "siehe da"), None),
    ],
)
def test_texts(pair, reason):
    assert text_reason(pair, ALL) == reason
    if reason != "empty":
        assert text_reason(pair, Cleaning()) is None


@pytest.mark.parametrize(
    ("lengths", "reason"),
    [
        ((10, 10), None),
        ((11, 10), "over_length"),
        ((3, 5), None),  # 2 and 4 pieces and an EOS each
        ((3, 6), "ratio"),
        ((6, 3), "ratio"),
    ],
)
def test_lengths(lengths, reason):
    source, target = ([7] * (n - 1) + [1] for n in lengths)
    assert length_reason(source, target, ALL) == reason
    if reason == "ratio":
        assert length_reason(source, target, Cleaning()) is None


def brute_force(pairs):
    """The first of every pair that differs in more than spaces."""
    first_index = {}
    for pair in pairs:
        first_index.setdefault(tuple(" ".join(side.split()) for side in pair), pair)
    return list(first_index.values())


# The 40 repetitions stand behind, before and beside what they repeat.
REPEATED = [TRAIN[2], *TRAIN[:30], ("a  cat saw .", "!"), ("a cat saw .", "!")]
REPEATED += [*TRAIN[20:], TRAIN[200], *TRAIN[200:229], ("a cat saw .", "!")]
CLEAN = PROBLEM.replace(
    sources={"train": Given(REPEATED), "dev": Given(REPEATED[:50])},
    cleaning=Cleaning(duplicates=True),
)


def test_the_first_duplicate_stays_and_dev_keeps_all(tmp_path):
    manifest = generate(CLEAN, tmp_path, workers=1)
    train = decoded(tmp_path, "train")
    expected = []
    for pair in brute_force(REPEATED):
        source, target = pair
        if source.strip() and target.strip() and pair != TRAIN[40]:  # over length
            expected.append(pair)
    assert collections.Counter(train) == collections.Counter(expected)
    stripped = [(source.strip(), target.strip()) for source, target in REPEATED[:50]]
    assert decoded(tmp_path, "dev") == stripped
    dropped = manifest.dropped["train"]
    assert dropped["duplicate"] == len(REPEATED) - len(expected) - sum(
        dropped[reason] for reason in ("empty", "over_length")
    )
    assert manifest.examples["train"] == len(expected)
    assert manifest.dropped["dev"] == dict.fromkeys(dropped, 0)
    assert manifest == Manifest.open(tmp_path, "small")


def test_cleaning_does_not_depend_on_workers_or_memory(tmp_path, monkeypatch):
    problem = CLEAN.replace(cleaning=dataclasses.replace(ALL, ratio=1.2))
    manifest = generate(problem, tmp_path / "1", workers=1)
    assert manifest.dropped["train"]["ratio"] > 0
    expected = files(tmp_path / "1")
    generate(problem, tmp_path / "2", workers=2)
    assert files(tmp_path / "2") == expected
    monkeypatch.setattr(encode_splits, "_HASHES", 16)
    generate(problem, tmp_path / "3", workers=1)
    assert files(tmp_path / "3") == expected


def test_parse():
    text = "identical,control,entities,letters=0.5, word=20,ratio=2,duplicates"
    assert parse_cleaning(text) == ALL
    assert parse_cleaning("none") == Cleaning()
    assert reasons(parse_cleaning("none")) == ["empty", "over_length"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("copies", "no rule 'copies'; they are identical, control"),
        ("ratio", "write ratio=NUMBER, not 'ratio'"),
        ("identical=1", "write identical, not"),
        ("word=x", "'x' is not a number for word"),
        ("ratio=0.5", "ratio must be at least 1"),
        ("ratio=nan", "ratio must be a finite number, not nan"),
        ("letters=2", "letters must be at least 0 and at most 1,"),
        ("word=-1", "word must be at least 0"),
    ],
)
def test_mistakes(text, message):
    refused(message, parse_cleaning, text)
