"""Files of pairs: tab-separated values and Parquet, plain and compressed."""

import gzip
import lzma

import pyarrow
import pytest
from backports import zstd
from helpers.errors import refused
from pyarrow import parquet

from t2t_keras.data.sources import PairFile, ParallelFiles
from t2t_keras.files.text_files import read_lines


def write(path, content: str | bytes):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def fails(pairs) -> str:
    return refused("", lambda: list(pairs()))


FILE_PAIRS = [("a\u2028b", "ä ß"), ('"q', "x"), ("", "empty"), ("& < 日", "z")]
TSV = "".join(f"{source}\t{target}\n" for source, target in FILE_PAIRS).encode()
COMPRESS = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
COMPRESS |= {".zst": zstd.compress}


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files(suffix, tmp_path):
    path = tmp_path / f"x.tsv{suffix}"
    path.write_bytes(COMPRESS[suffix](TSV))
    pairs = PairFile(path)
    assert list(pairs()) == FILE_PAIRS == list(pairs())
    lines = [source + "\n" + target for source, target in FILE_PAIRS]
    text = tmp_path / f"x.txt{suffix}"
    text.write_bytes(COMPRESS[suffix]("\n".join(lines).encode()))
    lines = [text for pair in FILE_PAIRS for text in pair]
    assert list(read_lines(text)) == lines
    assert list(ParallelFiles(text, text)()) == [(line, line) for line in lines]
    if suffix:
        text.write_bytes(COMPRESS[suffix](TSV * 1000)[:-9])
        assert f"{text} is not a complete" in fails(ParallelFiles(text, text))
        path.write_bytes(b"no such file " * 9)
        assert f"{path} does not begin as a" in fails(pairs)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tsv", b"a\tb\nc\td\te\n", ", line 2: there must be two"),
        ("x.tsv", b"a\tb\n\n", ", line 2: there must be two"),
        ("x.tmx", None, ": which languages"),
        ("x.parquet", None, ": which languages"),
        ("x.csv", None, ": which languages"),
        ("x.txt", None, " is not a file of pairs"),
    ],
)
def test_faults_of_files_of_pairs(tmp_path, name, content, message):
    path = tmp_path / name
    if content:
        write(path, content)
    assert f"{path}{message}" in refused("", lambda: list(PairFile(path)()))


@pytest.mark.parametrize("nested", [True, False])
def test_parquet(tmp_path, nested):
    rows = [{"en": source, "de": target} for source, target in FILE_PAIRS * 1000]
    rows.append({"en": None, "de": "x"})
    table = pyarrow.Table.from_pylist(
        [{"translation": row, "id": 1} for row in rows] if nested else rows
    )
    path = tmp_path / "train-00000-of-00001.parquet"
    parquet.write_table(table, path, row_group_size=700)
    assert list(PairFile(path, ("en", "de"))()) == [*FILE_PAIRS * 1000, ("", "x")]
    assert next(iter(PairFile(path, ("de", "en"))())) == FILE_PAIRS[0][::-1]
    message = fails(PairFile(path, ("en", "fr")))
    assert f"{path} has no columns 'en' and 'fr', only " in message
    assert "de" in message.split("only ")[1]
    numbers_file = tmp_path / "numbers.parquet"
    parquet.write_table(pyarrow.table({"en": [1], "de": [2]}), numbers_file)
    assert "'en' and 'de' are not texts" in fails(PairFile(numbers_file, ("en", "de")))
    latin_1 = pyarrow.StringArray.from_buffers(
        1, *pyarrow.array([b"\xe4"]).buffers()[1:]
    )
    parquet.write_table(pyarrow.table({"en": latin_1, "de": ["a"]}), numbers_file)
    assert "has a text that is not UTF-8" in fails(PairFile(numbers_file, ("en", "de")))
    path.write_bytes(path.read_bytes()[:-50])
    assert f"{path} is not a Parquet file" in fails(PairFile(path, ("en", "de")))
