"""Translation memories: their texts, their languages and what is refused."""

import gzip
import tracemalloc

import pytest
from helpers.errors import refused

from t2t_keras.data.sources import PairFile


def fails(pairs) -> str:
    return refused("", lambda: list(pairs()))


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
