"""Faulty files of pairs; data/test_sources_pair_files.py has those that are read."""

import pyarrow
import pytest
from helpers.errors import refused
from pyarrow import parquet

from t2t_keras.data.sources import PairFile


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tsv", "a\tb\nc\td\te\n", ", line 2: there must be two"),
        ("x.tsv", "a\tb\n\n", ", line 2: there must be two"),
        ("x.tmx", "", ": which languages"),
        ("x.parquet", "", ": which languages"),
        ("x.csv", "", ": which languages"),
        ("x.txt", "", " is not a file of pairs"),
    ],
)
def test_faults_of_files_of_pairs(tmp_path, name, content, message):
    path = tmp_path / name
    if content:
        path.write_text(content)
    assert f"{path}{message}" in refused("", lambda: list(PairFile(path)()))


def test_parquet(tmp_path):
    path = tmp_path / "a.parquet"
    pairs = PairFile(path, ("en", "de"))

    def fails(columns, pairs=pairs):
        parquet.write_table(pyarrow.table(columns), path)
        return refused("", lambda: list(pairs()))

    parquet.write_table(pyarrow.table({"en": ["a", None], "de": ["b", "x"]}), path)
    assert list(pairs()) == [("a", "b"), ("", "x")]
    message = fails({"en": ["a"], "de": ["b"]}, PairFile(path, ("en", "fr")))
    assert f"{path} has no columns 'en' and 'fr', only " in message
    assert "de" in message.split("only ")[1]
    assert "'en' and 'de' are not texts" in fails({"en": [1], "de": [2]})
    buffers = pyarrow.array([b"\xe4"]).buffers()
    latin_1 = pyarrow.StringArray.from_buffers(1, *buffers[1:])
    assert "has a text that is not UTF-8" in fails({"en": latin_1, "de": ["a"]})
    path.write_bytes(path.read_bytes()[:-50])
    refused(f"{path} is not a Parquet file", lambda: list(pairs()))
