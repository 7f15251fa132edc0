"""Files of pairs: tab-separated values, TMX and Parquet, plain and compressed."""

import gzip
import lzma

import pyarrow
import pytest
from backports import zstd
from pyarrow import parquet

from t2t_keras.data.sources import PairFile, ParallelFiles, checksum, read_lines
from t2t_keras.option import UserError

PAIRS = [("a\u2028b", "ä ß"), ('"q', "x"), ("", "empty"), ("& < 日", "z")]
TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()
COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": zstd.compress,
}


def refused(pairs) -> str:
    with pytest.raises(UserError) as error:
        list(pairs())
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files(suffix, tmp_path):
    path = tmp_path / f"x.tsv{suffix}"
    path.write_bytes(COMPRESS[suffix](TSV))
    pairs = PairFile(path)
    assert list(pairs()) == PAIRS == list(pairs())
    lines = [source + "\t" + target for source, target in PAIRS]
    assert list(read_lines(path)) == lines
    assert list(ParallelFiles(path, path)()) == [(line, line) for line in lines]
    if suffix:
        path.write_bytes(COMPRESS[suffix](TSV * 1000)[:-9])
        assert f"{path} is not a complete" in refused(pairs)
        path.write_bytes(b"no such file " * 9)
        assert f"{path} is not a complete" in refused(pairs)


def test_a_line_that_has_not_two_columns(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_text("a\tb\nc\td\te\n")
    assert refused(PairFile(path)).startswith(f"{path}, line 2: there must be two")
    path.write_text("a\tb\n\n")
    assert f"{path}, line 2: " in refused(PairFile(path))


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
    path.write_bytes(gzip.compress(TMX.encode(encoding)[:-40]))
    assert f"{path} is not valid XML" in refused(pairs)
    for content in (b"", b'<?xml version="1.0" encoding="foo"?><a/>'):
        path.write_bytes(gzip.compress(content))
        assert f"{path} is not valid XML" in refused(pairs)
    unit = TMX[TMX.index("<tu>") : TMX.index("</tu>") + 5]
    path.write_bytes(gzip.compress(unit.encode()))
    assert len(list(pairs())) == 1
    long = TMX.replace("Drücke", "x" * 10_100_000)
    path.write_bytes(gzip.compress(long.encode(), 1))
    assert f"{path} has a unit of more than 10,000,000 bytes" in refused(pairs)
    spaced = TMX.replace("<tmx ", '<tmx xmlns="http://www.lisa.org/tmx14" ')
    path.write_bytes(gzip.compress(spaced.encode()))
    assert len(list(pairs())) == 2


def test_tmx_needs_little_memory(tmp_path):
    """The elements that are done with are not kept."""
    import tracemalloc

    unit = (
        '<tu><tuv xml:lang="en"><seg>{0}</seg></tuv>'
        '<tuv xml:lang="de"><seg>{0}</seg></tuv></tu>'
    )
    path, peaks = tmp_path / "x.tmx", []
    for count in (1_000, 20_000):
        units = "".join(unit.format(f"text {i}") for i in range(count))
        path.write_text(f"<tmx><body>{units}</body></tmx>")
        tracemalloc.start()
        assert sum(1 for _ in PairFile(path, ("en", "de"))()) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < peaks[0] + 500_000


@pytest.mark.parametrize("nested", [True, False])
def test_parquet(tmp_path, nested):
    rows = [{"en": source, "de": target} for source, target in PAIRS * 1000]
    rows.append({"en": None, "de": "x"})
    table = pyarrow.Table.from_pylist(
        [{"translation": row, "id": 1} for row in rows] if nested else rows
    )
    path = tmp_path / "train-00000-of-00001.parquet"
    parquet.write_table(table, path, row_group_size=700)
    assert list(PairFile(path, ("en", "de"))()) == [*PAIRS * 1000, ("", "x")]
    assert next(iter(PairFile(path, ("de", "en"))())) == PAIRS[0][::-1]
    message = refused(PairFile(path, ("en", "fr")))
    assert f"{path} has no columns 'en' and 'fr', only " in message
    assert "de" in message.split("only ")[1]
    numbers = tmp_path / "numbers.parquet"
    parquet.write_table(pyarrow.table({"en": [1], "de": [2]}), numbers)
    assert "'en' and 'de' are not texts" in refused(PairFile(numbers, ("en", "de")))
    path.write_bytes(path.read_bytes()[:-50])
    assert f"{path} is not a Parquet file" in refused(PairFile(path, ("en", "de")))


def test_what_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"x\.csv is not a file of pairs"):
        PairFile("x.csv")
    for name in ("x.tmx.gz", "x.parquet"):
        with pytest.raises(UserError, match=f"{name}: which languages"):
            PairFile(name)
        absent = tmp_path / name
        assert refused(PairFile(absent, ("en", "de"))) == (
            f"cannot read {absent}: No such file or directory"
        )


def test_checksums(tmp_path):
    path = tmp_path / "x.tsv"
    path.write_bytes(TSV)
    first = checksum(PairFile(path))
    assert checksum(PairFile(path, ("en", "de"))) != first
    path.write_bytes(TSV[:-9])
    assert checksum(PairFile(path)) != first
