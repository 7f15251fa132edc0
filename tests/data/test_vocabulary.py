"""The size of a vocabulary: chosen from the data, or given and too large for them."""

import random

import pytest
from helpers.small_corpus import DEV, PROBLEM, Given, files

from t2t_keras.data.datagen import generate
from t2t_keras.data.vocabulary import proposed_size, too_large

pytestmark = pytest.mark.usefixtures("small_scale")
CHOSEN = PROBLEM.replace(vocab_size=None)


def test_the_rule():
    sizes = {1: 2_000, 10_000: 2_000, 29_000: 4_000, 160_000: 8_000, 270_000: 8_000}
    sizes |= {1_000_000: 16_000, 3_000_000: 32_000, 40_000_000: 32_000}
    assert {pairs: proposed_size(pairs) for pairs in sizes} == sizes
    # Chinese: the characters must have their place.
    assert proposed_size(5_000, 2_500) == 8_000
    assert proposed_size(5_000, 100_000) == 32_000


def test_when_it_is_too_large():
    assert too_large(8_000, 268_000, 17_000_000) is None
    assert too_large(10_000, 29_000, 900_000) is None  # Wu et al., ACL 2021
    assert too_large(37_000, 4_500_000, 260_000_000) is None
    message = too_large(28_234, 3_000, 120_000)
    assert message is not None and "try --vocab_size 2000" in message
    assert "28,234 tokens" in message and "4.3 times" in message
    assert too_large(2_000, 100, 3_000) is None  # no larger than would be chosen


def test_the_size_is_chosen_once(tmp_path, capsys):
    manifest = generate(CHOSEN, tmp_path, workers=1)
    assert manifest.vocab_size == 2_000
    assert "vocabulary: 2,000 tokens, which suit 290 tr" in capsys.readouterr().err
    contents = files(tmp_path)
    assert generate(CHOSEN, tmp_path, workers=1) == manifest
    assert generate(CHOSEN.replace(vocab_size=2_000), tmp_path, 1) == manifest
    assert files(tmp_path) == contents
    assert "warning" not in capsys.readouterr().err
    generate(CHOSEN.replace(vocab_size=2_000), tmp_path / "given", workers=1)
    assert files(tmp_path / "given") == contents


def test_a_directory_keeps_its_vocabulary_size(tmp_path):
    """Of a problem whose size was 32,000."""
    manifest = generate(PROBLEM.replace(vocab_size=32_000), tmp_path, workers=1)
    contents = files(tmp_path)
    assert generate(CHOSEN, tmp_path, workers=1) == manifest
    assert files(tmp_path) == contents
    test = CHOSEN.replace(sources={"test": Given(DEV)})
    assert generate(test, tmp_path, workers=1).vocab_size == 32_000


def test_a_vocabulary_too_large_for_the_data_is_reported(tmp_path, capsys):
    rng = random.Random(1)
    names = ["".join(rng.choices("abcdefghijklmno", k=9)) for _ in range(2_000)]
    pairs = [(" ".join(rng.choices(names, k=9)), "x") for _ in range(500)]
    sources = {"train": Given(pairs)}
    generate(PROBLEM.replace(sources=sources, vocab_size=20_000), tmp_path, workers=1)
    lines = capsys.readouterr().err.splitlines()
    (warning,) = (line for line in lines if "warning" in line)
    assert "for 500 training pairs" in warning and "--vocab_size 2000" in warning
