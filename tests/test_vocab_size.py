"""The size of a vocabulary: chosen from the data, or given and too large for them."""

import random

import pytest
from command_line import run, write
from small_corpus import DEV, PROBLEM, TRAIN, Given, files

from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import proposed_size, too_large
from t2t_keras.option import UserError

CHOSEN = PROBLEM.replace(vocab_size=None)


def corpus(tmp_path, lines: int, words: int):
    """Two files of random words; returns the flags that name them."""
    rng = random.Random(1)
    names = ["".join(rng.choices("abcdefghijklmno", k=9)) for _ in range(words)]
    flags = []
    for side in ("source", "target"):
        text = [" ".join(rng.choices(names, k=6)) for _ in range(lines)]
        flags += [f"--train_{side}", write(tmp_path / side, *text)]
    common = ["datagen", "--problem", "translate_text", "--workers", "1"]
    return [*common, *flags, "--data_dir", tmp_path / "data"]


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


def test_it_is_chosen_once(tmp_path, capsys):
    manifest = generate(CHOSEN, tmp_path, workers=1)
    assert manifest.vocab_size == 2_000
    assert "vocabulary: 2,000 tokens, which suit 290 tr" in capsys.readouterr().err
    before = files(tmp_path)
    assert generate(CHOSEN, tmp_path, workers=1) == manifest
    assert generate(CHOSEN.replace(vocab_size=2_000), tmp_path, 1) == manifest
    assert files(tmp_path) == before
    assert "warning" not in capsys.readouterr().err
    generate(CHOSEN.replace(vocab_size=2_000), tmp_path / "given", workers=1)
    assert files(tmp_path / "given") == before


def test_a_directory_of_another_size_is_known_again(tmp_path):
    """Of an earlier version, say, whose size was 32,000."""
    manifest = generate(PROBLEM.replace(vocab_size=32_000), tmp_path, workers=1)
    before = files(tmp_path)
    assert generate(CHOSEN, tmp_path, workers=1) == manifest
    assert files(tmp_path) == before
    test = CHOSEN.replace(sources={"test": Given(DEV)})
    assert generate(test, tmp_path, workers=1).vocab_size == 32_000
    with pytest.raises(UserError, match="sources 'train' has changed"):
        generate(CHOSEN.replace(sources={"train": Given(TRAIN[1:])}), tmp_path, 1)


def test_a_given_vocabulary_tells_its_size(complete, tmp_path):
    name = "vocab.small.330.spm"
    (tmp_path / name).write_bytes((complete / name).read_bytes())
    manifest = generate(CHOSEN, tmp_path, workers=1)
    assert manifest.vocab_size == 330
    assert manifest.given_vocabularies.keys() == {name}


def test_own_text_with_too_large_a_vocabulary(tmp_path, capfd):
    argv = corpus(tmp_path, lines=500, words=2_000)
    assert run(*argv, "--vocab_size", "20000") == 0
    (warning,) = [
        line for line in capfd.readouterr().err.splitlines() if "warning" in line
    ]
    assert "for 500 training pairs" in warning and "--vocab_size 2000" in warning
