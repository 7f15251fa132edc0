"""The raw texts of dev and test, which no vocabulary changes."""

import json
import re

import pytest
import sentencepiece
from small_corpus import (
    DEV,
    PROBLEM,
    TRAIN,
    Given,
    decoded,
    files,
    make_pairs,
)

from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.records import RecordIndex, read_texts, write_texts
from t2t_keras.option import UserError

pytestmark = pytest.mark.usefixtures("small_scale")

# Texts that a normalising vocabulary changes, with line ends other than "\n".
ODD = [
    ("A  ﬁne Cat", "Eine ﬀ KATZE "),
    ("", "①"),
    ("next\u2028line\x85 and\r", "\ttab"),
]
TEST = [*make_pairs(25, 3), *ODD]
NORMALISED = PROBLEM.replace(
    sources={
        "train": Given(TRAIN),
        "dev": Given([*ODD, *DEV]),
        "test": Given(TEST),
    }
)


def texts(directory, split):
    index = RecordIndex.open(directory, "small", split)
    checksums = Manifest.open(directory, "small").text_sha256.get(split)
    return read_texts(directory, "small", split, index, checksums)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory) -> bytes:
    """A SentencePiece model that normalises and lower-cases."""
    stem = tmp_path_factory.mktemp("given") / "lower"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(text for pair in TRAIN for text in pair),
        model_prefix=str(stem),
        normalization_rule_name="nmt_nfkc_cf",
        **{"model_type": "bpe", "vocab_size": 330, "byte_fallback": True},
        **{"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1},
        **{"hard_vocab_limit": False, "minloglevel": 2},
    )
    return stem.with_suffix(".model").read_bytes()


@pytest.fixture
def given(vocabulary, tmp_path):
    """Makes directories that have the vocabulary."""

    def make(name: str):
        directory = tmp_path / name
        directory.mkdir()
        (directory / "vocab.small.330.spm").write_bytes(vocabulary)
        return directory

    return make


def pairs(directory, split: str) -> list[tuple[str, str]]:
    return list(zip(*texts(directory, split), strict=True))


def test_raw_texts_are_kept_where_the_vocabulary_changes_them(given):
    directory = given("data")
    generate(NORMALISED, directory, workers=1)
    assert pairs(directory, "dev") == [*ODD, *DEV]
    assert pairs(directory, "test") == TEST
    records = decoded(directory, "dev")
    assert len(records) == len(ODD) + len(DEV)
    assert records[0] == ("a fine cat", "eine ff katze")
    assert texts(directory, "train") is None


def test_a_line_for_each_text(tmp_path):
    odd = [("two\nlines\n", "\ud800 is alone"), ("\n", "")]
    paths = [tmp_path / "sources", tmp_path / "targets"]
    assert write_texts(paths, odd) == 2
    sources, targets = (path.read_bytes() for path in paths)
    assert sources == b"two lines \n \n"
    assert targets.decode("utf-8", "surrogatepass") == "\ud800 is alone\n\n"


def test_a_split_that_is_added_has_its_own(tmp_path):
    generate(PROBLEM, tmp_path, workers=1)
    for side in ("sources", "targets"):  # as earlier versions left the directory
        (tmp_path / f"small-dev.{side}").unlink()
    path = Manifest.path(tmp_path, "small")
    fields = json.loads(path.read_text())
    for name in ("text_sha256", "languages"):
        del fields[name]
    path.write_text(json.dumps(fields | {"bpe_dropout": 0.0, "copies": 1}))
    before = files(tmp_path)
    problem = PROBLEM.replace(sources=PROBLEM.sources | {"test": Given(TEST)})
    generate(problem, tmp_path, workers=1)
    assert pairs(tmp_path, "test") == TEST
    assert texts(tmp_path, "dev") is None
    assert set(files(tmp_path)) - set(before) == {
        *("small-test-00000-of-00001", "small-test.index.npz"),
        *("small-test.sources", "small-test.targets"),
    }


def test_a_source_that_has_changed(tmp_path):
    # Counted, encoded; once more, written, and read to find the languages.
    passes = iter([DEV, DEV[:-1], DEV, DEV, DEV])

    class Changing(Given):
        def __call__(self):
            return iter(next(passes))

        def checksum(self):
            return "the same"

    problem = PROBLEM.replace(sources={"train": Given(TRAIN), "dev": Changing([])})
    with pytest.raises(UserError, match="dev source gave 30 pairs at first and 29"):
        generate(problem, tmp_path, workers=1)
    generate(problem, tmp_path, workers=1)
    assert pairs(tmp_path, "dev") == DEV


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
def test_files_that_are_damaged(tmp_path, side, damage):
    generate(PROBLEM, tmp_path, workers=1)
    path = tmp_path / f"small-dev.{side}"
    change, message = DAMAGE[damage]
    if change is None:
        path.unlink()
    else:
        path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match=message) as error:
        texts(tmp_path, "dev")
    assert re.search(re.escape(str(path)), str(error.value))
