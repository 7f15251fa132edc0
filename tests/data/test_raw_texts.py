"""The raw texts of dev and test, which no vocabulary changes."""

import shutil

import pytest
import sentencepiece
from helpers.errors import refused
from helpers.small_corpus import DEV, PROBLEM, TRAIN, Given, decoded, make_pairs

from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.raw_texts import read_texts, write_texts
from t2t_keras.data.record_index import RecordIndex

pytestmark = pytest.mark.usefixtures("small_scale")


@pytest.fixture
def directory(complete, tmp_path):
    return shutil.copytree(complete, tmp_path / "data")


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


@pytest.mark.parametrize("side", ["sources", "targets"])
def test_a_changed_file_is_refused(directory, side):
    path = directory / f"small-dev.{side}"
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    refused(f"cannot use {path}: it has been changed", texts, directory, "dev")
    path.unlink()
    refused(f"cannot use {path}: No such file", texts, directory, "dev")
