"""Sources of pairs: text files with all their accidents, and tensorflow-datasets."""

import dataclasses
import gzip
import lzma
import tracemalloc

import pyarrow
import pytest
import tensorflow_datasets as tfds
from backports import zstd
from command_line import run, run_json
from errors import refused
from pyarrow import parquet
from small_corpus import decoded

from t2t_keras import registry
from t2t_keras.data.lines import read_lines
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.pair_files import PairFile
from t2t_keras.data.parallel_files import ParallelFiles
from t2t_keras.data.sources import checksum


def write(path, content: str | bytes):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_only_a_newline_ends_a_line(tmp_path, name):
    lines = ["a\x85b", "c\u2028d", "e\x0bf\x0cg", "h\ri", "", " j\t", "\u00a0"]
    path = write(tmp_path / name, "\n".join(lines) + "\n")
    assert list(read_lines(path)) == lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\n", ["a\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    ],
)
def test_ends_of_lines_and_files(tmp_path, content, lines):
    assert list(read_lines(write(tmp_path / "text", content))) == lines


def fails(pairs) -> str:
    return refused("", lambda: list(pairs()))


FAULTS = [
    (b"x\n" * 3, b"x\n" * 5, "{0} has only 3 lines and {1} has 5: line by line"),
    (b"x\n" * 5, b"x\n" * 3, "{1} has only 3 lines and {0} has 5: line by line"),
    (b"x\n" * 5, b"", "{1} has only 0 lines"),
    (b"x\n" * 3, b"gut\nsch\xf6n\n", "{1}, line 2: byte 0xf6 is not valid UTF-8"),
    ("gut".encode("utf-16"), b"x\n", "{0} is in UTF-16"),
    (b"x\n", None, "cannot read {1}: No such file or directory"),
]


@pytest.mark.parametrize(("source", "target", "message"), FAULTS)
def test_faults_of_parallel_files(tmp_path, source, target, message):
    paths = tmp_path / "a", tmp_path / "b"
    for path, content in zip(paths, (source, target), strict=True):
        if content is not None:
            write(path, content)
    assert fails(ParallelFiles(*paths)).startswith(message.format(*paths))


def test_checksums_are_of_content_and_meaning(tmp_path):
    a = write(tmp_path / "a", "one\n")
    b = write(tmp_path / "b", "eins\n")
    table = write(tmp_path / "x.tsv", TSV)
    sources = [ParallelFiles(a, b), ParallelFiles(b, a), ParallelFiles(a, a)]
    sources += [PairFile(table), PairFile(table, ("en", "de"))]
    sums = [checksum(source) for source in sources]
    write(table, TSV[:-9])
    assert len({*sums, checksum(PairFile(table))}) == 6
    renamed = a.rename(tmp_path / "renamed")
    assert checksum(ParallelFiles(renamed, b)) == sums[0]
    refused(f"cannot read {a}", ParallelFiles(a, b).checksum)


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_line_without_an_end_is_refused_before_it_is_read(tmp_path, name):
    """It may have any length, and a compressed file of a megabyte may have it."""
    opened = gzip.open if name == "text.gz" else open
    with opened(tmp_path / name, "wb") as file:
        file.write(b"short\n")
        for _ in range(60):
            file.write(bytes(1_000_000))
    tracemalloc.start()
    refused("line 2 has more than 10,000,000 bytes", list, read_lines(tmp_path / name))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


# Files of pairs: tab-separated values, TMX and Parquet, plain and compressed.


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
        assert f"{path} is not a complete" in fails(pairs)


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
    unit = '<tu><tuv xml:lang="en"><seg>a</seg></tuv><tuv xml:lang="de"/></tu>'
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
    path.write_bytes(path.read_bytes()[:-50])
    assert f"{path} is not a Parquet file" in fails(PairFile(path, ("en", "de")))


# The paper's problems through tensorflow-datasets, prepared by its own machinery.


LANGUAGES = ("de", "fr")
SIZES = {"train": 300, "validation": 20, "test": 30}
DIRTY = {  # number in `train` -> what the web has
    5: ("Cookies", "Cookies"),
    6: ("It\x92s here.", "Hier ist es."),
    7: ("+49 (0)30 / 12-34", "Telefon 030"),
    8: ("see www." + "x" * 120, "siehe dort"),
    9: ("yes", "ja " * 20),
    10: ("Yes, sentence 3 of train.", "Ja, sentence 3 of train."),  # again
}


def pairs(split: str, language: str) -> list[tuple[str, str]]:
    """English and a word of the other language before it."""
    word = {"de": "Ja", "fr": "Oui"}[language]
    texts = [f"sentence {i} of {split}." for i in range(SIZES[split])]
    made = [(f"Yes, {text}", f"{word}, {text}") for text in texts]
    for index, dirty in DIRTY.items() if split == "train" else ():
        made[index] = dirty
    return made


class Wmt14Translate(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """A small dataset of the name, configurations, features and splits of WMT 2014."""

    BUILDER_CONFIGS = [  # noqa: RUF012
        tfds.core.BuilderConfig(name=f"{language}-en", version="1.0.0")
        for language in LANGUAGES
    ]

    @property
    def language(self) -> str:
        return self.builder_config.name.partition("-")[0]

    def _info(self):
        features = tfds.features.Translation(languages=(self.language, "en"))
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in SIZES}

    def _generate_examples(self, split):
        for i, (english, foreign) in enumerate(pairs(split, self.language)):
            yield i, {"en": english, self.language: foreign}


@pytest.fixture(scope="module")
def tfds_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("tfds")
    for language in LANGUAGES:
        Wmt14Translate(data_dir=path, config=f"{language}-en").download_and_prepare()
    return path


def prepared_in(path, problem):
    """The problem, with its datasets in a folder."""
    moved = {
        split: dataclasses.replace(source, data_dir=path)
        for split, source in problem.sources.items()
    }
    return problem.replace(sources=moved)


@pytest.mark.parametrize(
    ("language", "vocab_size", "flags"),
    [("de", 37_000, {}), ("fr", 32_000, {"ratio": 1, "duplicate": 0})],
)
def test_datagen(capfd, tmp_path, tfds_dir, language, vocab_size, flags, monkeypatch):
    problem = registry.problem(f"translate_en{language}")
    assert (problem.vocab_size, problem.shared_vocab) == (vocab_size, True)
    subsets = tfds.builder(problem.sources["dev"].name).subsets  # of the real one
    assert subsets["validation"] == ["newstest2013"]
    assert subsets["test"] == ["newstest2014"] and "europarl_v7" in subsets["train"]
    problem = prepared_in(tfds_dir, problem)
    monkeypatch.setattr(registry, "problem", lambda name: problem)
    argv = ("datagen", "--problem", problem.name, "--workers", 1)
    argv += ("--data_dir", tmp_path, "--vocab_size", 330)
    result = run_json(capfd, *argv)
    noise = dict.fromkeys(("identical", "control", "few_letters", "long_word"), 1)
    expected = {"empty": 0, "over_length": 0} | noise | flags
    assert result["dropped"] == expected
    num_examples = SIZES["train"] - sum(expected.values())
    assert result["examples"] == {"train": num_examples, "dev": 20, "test": 30}
    name = f"translate_en{language}"
    for split, stored in {"dev": "validation", "test": "test"}.items():
        texts = decoded(tmp_path, split, name)
        assert sorted(texts) == sorted(pairs(stored, language))
    manifest = Manifest.open(tmp_path, name)
    assert manifest.sources["dev"] == (
        f"tfds wmt14_translate/{language}-en/1.0.0 validation en {language}"
    )


def test_no_network(capfd, tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise ConnectionError("Name or service not known")

    for name in ("download", "download_and_extract"):
        monkeypatch.setattr(tfds.download.DownloadManager, name, offline)
    problem = prepared_in(tmp_path / "tfds", registry.problem("translate_enfr"))
    monkeypatch.setattr(registry, "problem", lambda name: problem)
    argv = ("datagen", "--problem", "translate_enfr", "--workers", 1)
    assert run(*argv, "--data_dir", tmp_path / "data") == 2
    err = capfd.readouterr().err
    message = err.strip().splitlines()[-1]
    assert "cannot download wmt14_translate/fr-en: " in message
    assert "Traceback" not in err
