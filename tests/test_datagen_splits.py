"""Splits that are added to a data directory, and the runs trained there."""

import hashlib
import json
import shutil

import pytest
import sentencepiece
from errors import refused
from small_corpus import (
    DEV,
    PROBLEM,
    TRAIN,
    Given,
    decoded,
    faults,
    files,
    interrupt,
    make_pairs,
)

from t2t_keras.data.datagen import generate
from t2t_keras.data.languages import guessed_languages, parse_languages
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.raw_texts import read_texts, write_texts
from t2t_keras.data.record_index import RecordIndex
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


def digest_of_all(manifest: dict) -> str:
    """What earlier versions kept in a run's config.json as `data_sha256`."""
    of_later_versions = {"given_vocabularies", "tags", "corpora", "license"}
    of_later_versions |= {"languages", "text_sha256", "index_sha256", "sha256"}
    of_later_versions |= {"single_sentences"}
    fields = {k: v for k, v in manifest.items() if k not in of_later_versions}
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()


def test_a_split_is_added(complete, directory, tmp_path):
    """The new split may be given alone or together with the existing ones."""
    alone = PROBLEM.replace(sources={"test": Given(TEST)}, max_length=7)
    generate(alone, directory, workers=1)
    generate(WITH_TEST, tmp_path / "at once", workers=1)
    assert files(directory) == files(tmp_path / "at once")
    assert decoded(directory, "test") == TEST
    contents = files(complete)
    contents.pop(MANIFEST)
    assert contents.items() <= files(directory).items()
    for problem in (WITH_TEST, PROBLEM, alone):
        generate(problem, directory, workers=1)
    assert files(directory) == files(tmp_path / "at once")


def test_a_licence_is_added_to_data_that_are_there(directory, capsys):
    original = Manifest.open(directory, "small")
    licensed = PROBLEM.replace(license="cc-by-4.0")
    updated = generate(licensed, directory, workers=1)
    assert "now has the license of this command" in capsys.readouterr().err
    assert updated == Manifest.open(directory, "small")
    assert (original.license, updated.license) == ("", "cc-by-4.0")
    assert original.fingerprints("train") == updated.fingerprints("train")
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
    for text in ("english-german", "en", "en-", "en-DE"):
        refused(f"two codes such as en-de, not '{text}'", parse_languages, text)
    assert parse_languages("en-pt_BR") == ("en", "pt_BR")


def test_interrupted_anywhere(complete, directory, tmp_path):
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
    assert updated.fingerprints("train")[0] == original.fingerprints("train")[0]
    original_digest = digest_of_all(json.loads((complete / MANIFEST).read_text()))
    assert original_digest in original.fingerprints(
        "train"
    ) and original_digest in original.fingerprints("dev")
    assert original_digest in updated.fingerprints(
        "train"
    ) and original_digest in updated.fingerprints("dev")
    assert original_digest not in updated.fingerprints("test")
    first_fingerprints = [updated.fingerprints(split)[0] for split in updated.examples]
    assert len(set(first_fingerprints)) == 3


# The raw texts of dev and test, which no vocabulary changes.


# Texts that a normalising vocabulary changes, with line ends other than "\n".
ODD = [("A  ﬁne Cat", "Eine ﬀ KATZE "), ("", "①")]
ODD += [("next\u2028line\x85 and\r", "\ttab")]
RAW_TEST = [*make_pairs(25, 3), *ODD]
NORMALISED = PROBLEM.replace(
    sources={"train": Given(TRAIN), "dev": Given([*ODD, *DEV]), "test": Given(RAW_TEST)}
)


def texts(directory, split):
    index = RecordIndex.open(directory, "small", split)
    checksums = Manifest.open(directory, "small").text_sha256.get(split)
    return read_texts(directory, "small", split, index, checksums)


def pairs(directory, split: str) -> list[tuple[str, str]]:
    return list(zip(*texts(directory, split), strict=True))


def test_raw_texts_are_kept_where_the_vocabulary_changes_them(tmp_path):
    """A SentencePiece model that normalises and lower-cases."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(text for pair in TRAIN for text in pair),
        model_prefix=str(tmp_path / "lower"),
        normalization_rule_name="nmt_nfkc_cf",
        **{"model_type": "bpe", "vocab_size": 330, "byte_fallback": True},
        **{"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
        **{"hard_vocab_limit": False, "minloglevel": 2},
    )
    (tmp_path / "data").mkdir()
    vocabulary = tmp_path / "data/vocab.small.330.spm"
    (tmp_path / "lower.model").rename(vocabulary)
    generate(NORMALISED, vocabulary.parent, workers=1)
    assert pairs(vocabulary.parent, "dev") == [*ODD, *DEV]
    assert pairs(vocabulary.parent, "test") == RAW_TEST
    records = decoded(vocabulary.parent, "dev")
    assert len(records) == len(ODD) + len(DEV)
    assert records[0] == ("a fine cat", "eine ff katze")
    assert texts(vocabulary.parent, "train") is None


def test_a_line_for_each_text(tmp_path):
    odd = [("two\nlines\n", "\ud800 is alone"), ("\n", "")]
    paths = [tmp_path / "sources", tmp_path / "targets"]
    assert write_texts(paths, odd) == 2
    sources, targets = (path.read_bytes() for path in paths)
    assert sources == b"two lines \n \n"
    assert targets.decode("utf-8", "surrogatepass") == "\ud800 is alone\n\n"


def test_a_split_that_is_added_has_its_own(directory):
    for side in ("sources", "targets"):  # as earlier versions left the directory
        (directory / f"small-dev.{side}").unlink()
    path = Manifest.path(directory, "small")
    fields = json.loads(path.read_text())
    for name in ("text_sha256", "index_sha256", "languages", "sha256"):
        del fields[name]
    path.write_text(json.dumps(fields | {"bpe_dropout": 0.0, "copies": 1}))
    contents = files(directory)
    problem = PROBLEM.replace(sources=PROBLEM.sources | {"test": Given(RAW_TEST)})
    generate(problem, directory, workers=1)
    assert pairs(directory, "test") == RAW_TEST
    assert texts(directory, "dev") is None
    assert set(files(directory)) - set(contents) == {
        *("small-test-00000-of-00001", "small-test.index.npz"),
        *("small-test.sources", "small-test.targets"),
    }


DAMAGE = {
    "cut off": (lambda content: content[:-2], "has 29 lines for 30 records"),
    "shorter": (lambda content: content[content.index(b"\n") + 1 :], "29 lines for 30"),
    "longer": (lambda content: content + b"x\n", "31 lines for 30 records"),
    "not text": (lambda content: b"\xff" + content, "cannot use .* not valid UTF-8"),
    "changed": (lambda content: bytes([content[0] ^ 1]) + content[1:], "been changed"),
    "gone": (None, "cannot use .*No such file"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("side", ["sources", "targets"])
def test_files_that_are_damaged(directory, side, damage):
    path = directory / f"small-dev.{side}"
    change, message = DAMAGE[damage]
    content = path.read_bytes()
    path.unlink()
    if change:
        path.write_bytes(change(content))
    assert str(path) in refused(message, texts, directory, "dev")
