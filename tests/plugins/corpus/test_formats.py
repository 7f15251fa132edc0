"""Files of pairs: tab-separated values, TMX and Parquet, plain and compressed."""

import gzip
import lzma
import tracemalloc

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


TMX = """<?xml version="1.0"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en"><note>n</note></header><body>
<tu><prop type="x">1</prop>
 <tuv xml:lang="EN-us"><seg>Press <bpt i="1">&lt;b&gt;</bpt>R&amp;D<ept i="1">&lt;/b&gt;
 </ept> now <hi>please</hi>.</seg></tuv>
 <tuv xml:lang="de_DE"><seg>Drücke
   R&amp;D.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>alone</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>bonjour</seg></tuv>
    <tuv lang="de"><seg>hallo</seg></tuv><tuv lang="en"><seg/></tuv></tu>
</body></tmx>"""


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_tmx(tmp_path, encoding):
    path = tmp_path / "x.tmx.gz"
    path.write_bytes(gzip.compress(TMX.encode(encoding)))
    pairs = PairFile(path, ("en", "de"))
    assert list(pairs()) == [("Press R&D now please.", "Drücke R&D."), ("", "hallo")]
    assert pairs.dropped == {"no_translation": 1}
    assert list(PairFile(path, ("de", "fr"))()) == [("hallo", "bonjour")]
    for languages in (("en-US", "de-de"), ("en_US", "de")):
        assert len(list(PairFile(path, languages)())) == 1
    # `en` stands for `en-US`, but not the other way round.
    message = fails(PairFile(path, ("en_GB", "deu")))
    languages = "en-us and de-de and en and fr and de"
    assert message == f"{path} has no unit with en_GB and deu, only {languages}"
    assert "has no unit with en-us and fr, only" in fails(
        PairFile(path, ("en-us", "fr"))
    )
    path.write_bytes(gzip.compress(TMX.encode(encoding)[:-40]))
    assert f"{path} is not valid XML" in fails(pairs)
    for content in (b"", b'<?xml version="1.0" encoding="foo"?><a/>'):
        path.write_bytes(gzip.compress(content))
        assert f"{path} is not valid XML" in fails(pairs)
    unit = TMX[TMX.index("<tu>") : TMX.index("</tu>") + 5]
    path.write_bytes(gzip.compress(unit.encode()))
    assert len(list(pairs())) == 1
    long = TMX.replace("Drücke", "x" * 10_100_000)
    path.write_bytes(gzip.compress(long.encode(), 1))
    assert f"{path} has a unit of more than 10,000,000 bytes" in fails(pairs)
    spaced = TMX.replace("<tmx ", '<tmx xmlns="http://www.lisa.org/tmx14" ')
    path.write_bytes(gzip.compress(spaced.encode()))
    assert len(list(pairs())) == 2


def test_tmx_needs_little_memory(tmp_path):
    unit = (
        '<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="de"><seg/></tuv></tu>'
    )
    path = tmp_path / "x.tmx"
    peaks = []
    for count in (1_000, 20_000):
        path.write_text(f"<tmx><body>{unit * count}</body></tmx>")
        tracemalloc.start()
        sum(1 for _ in PairFile(path, ("en", "de"))())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 500_000


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
