"""Splits that are added to a data directory, and the runs trained there."""

import shutil

import pytest
from helpers.errors import refused
from helpers.small_corpus import (
    PROBLEM,
    Given,
    decoded,
    faults,
    files,
    interrupt,
    make_pairs,
)

from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.sources import guessed_languages, parse_languages
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.run.config import config_for

pytestmark = pytest.mark.usefixtures("small_scale")

TEST = make_pairs(25, 3)
TEST[2] = ("", "kept")
WITH_TEST = PROBLEM.replace(sources=PROBLEM.sources | {"test": Given(TEST)})
MANIFEST = "small.manifest.json"


@pytest.fixture
def directory(complete, tmp_path):
    return shutil.copytree(complete, tmp_path / "data")


def test_a_split_is_added(complete, directory, tmp_path):
    """The new split may be given alone or together with the existing ones."""
    test_only = PROBLEM.replace(sources={"test": Given(TEST)}, max_length=7)
    generate(test_only, directory, workers=1)
    generate(WITH_TEST, tmp_path / "at once", workers=1)
    assert files(directory) == files(tmp_path / "at once")
    assert decoded(directory, "test") == TEST
    contents = files(complete)
    contents.pop(MANIFEST)
    assert contents.items() <= files(directory).items()
    for problem in (WITH_TEST, PROBLEM, test_only):
        generate(problem, directory, workers=1)
    assert files(directory) == files(tmp_path / "at once")


def test_a_licence_is_added_to_data_that_are_there(directory, capsys):
    original = Manifest.open(directory, "small")
    licensed = PROBLEM.replace(license="cc-by-4.0")
    updated = generate(licensed, directory, workers=1)
    assert "now has the license of this command" in capsys.readouterr().err
    assert updated == Manifest.open(directory, "small")
    assert (original.license, updated.license) == ("", "cc-by-4.0")
    assert original.fingerprint("train") == updated.fingerprint("train")
    assert generate(PROBLEM, directory, workers=1) == updated


def test_languages_are_recorded_and_used_or_stay_unknown(directory, tmp_path):
    """They are given, or those of the problem, or found in the texts."""
    assert Manifest.open(directory, "small").languages is None
    assert metrics_of(PROBLEM).languages is None
    french = PROBLEM.replace(languages=("en", "fr"))
    assert generate(french, directory, workers=1).languages == ("en", "fr")
    config = config_for(PROBLEM.reversed(), "tiny", directory, 0)
    assert config.languages == ["fr", "en"]
    english = "the old dog sees a new house near the river and is happy"
    german = "der Hund sieht heute das Haus an dem Fluss und freut sich sehr"
    pairs = [(f"{english} {i}", f"{german} {i}") for i in range(512)]
    assert guessed_languages(Given(pairs)) == ("en", "de")
    mixed = pairs[:300] + [pair[::-1] for pair in pairs[300:]]
    assert guessed_languages(Given(mixed)) is None
    assert guessed_languages(Given(pairs[:100])) is None  # too few
    sources = {"train": Given(pairs), "test": Given(pairs[:9])}
    with_languages = generate(
        PROBLEM.replace(sources=sources), tmp_path / "new", workers=1
    )
    assert with_languages.languages == ("en", "de")
    for text in ("english-german", "en", "en-", "EN"):
        refused(f"two codes such as en-de, not '{text}'", parse_languages, text)
    for text in ("en-DE", "EN-DE"):
        refused(f"in lower case: en-de, not '{text}'", parse_languages, text)
    assert parse_languages("en-pt_BR") == ("en", "pt_BR")


def test_an_interrupted_split_leaves_the_directory_as_it_was(
    complete, directory, tmp_path
):
    """Until the new manifest is there, the directory holds what it held."""
    expected = tmp_path / "expected"
    shutil.copytree(complete, expected)
    generate(WITH_TEST, expected, workers=1)
    manifest = files(complete)[MANIFEST]
    for at in range(1, 100):
        copy = shutil.copytree(complete, tmp_path / str(at))
        try:
            with faults(at, interrupt):
                generate(WITH_TEST, copy, workers=1)
            break
        except KeyboardInterrupt:
            manifests = manifest, files(expected)[MANIFEST]
            assert files_but_work(copy)[MANIFEST] in manifests
            assert len(decoded(copy, "train")) == 287
        generate(WITH_TEST, copy, workers=1)
        assert files(copy) == files(expected), f"interrupted at {at}"
    assert 10 < at < 99


def files_but_work(directory):
    return {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file()}


def test_fingerprints(complete, directory):
    original = Manifest.open(complete, "small")
    generate(WITH_TEST, directory, workers=1)
    updated = Manifest.open(directory, "small")
    assert updated.fingerprint("train") == original.fingerprint("train")
    assert updated.fingerprint("dev") == original.fingerprint("dev")
    assert len({updated.fingerprint(split) for split in updated.examples}) == 3
