"""WMT 2014 from its archives: miniatures with the names of the real members."""

import collections
import gzip
import io
import itertools
import json
import tarfile
import zipfile
from pathlib import Path

import pytest
from helpers.command_line import run_json, run_refused
from helpers.errors import refused

from t2t_keras import registry
from t2t_keras.data.sources import checksum
from t2t_keras.plugins.corpus.archives import ArchivedPairs

LINES = 40


def texts(corpus: str, language: str, lines: int = LINES) -> list[str]:
    return [f"{corpus} sentence {i} in {language} — ß" for i in range(lines)]


def lines(corpus: str, language: str) -> bytes:
    return "".join(f"{text}\n" for text in texts(corpus, language)).encode()


def sgm(corpus: str, language: str) -> bytes:
    """As WMT writes a test set: entities, documents, white space around texts."""
    segments = "".join(
        f'<seg id="{i}">{" " * (i % 2)}R&amp;D &quot;{text}&quot; &lt; 1</seg>\n'
        for i, text in enumerate(texts(corpus, language))
    )
    return (
        f'<srcset setid="newstest2014" srclang="any">\n<doc sysid="ref" '
        f'docid="a-b.com-1" genre="news" origlang="en">\n<p>\n{segments}</p>\n</doc>\n'
        "</srcset>\n"
    ).encode()


def members() -> dict[str, dict[str, bytes]]:
    """Returns the content of every member, by archive; also members never used."""
    archives: dict[str, dict[str, bytes]] = collections.defaultdict(dict)
    for language in ("cs", "de", "fr"):
        for side in (language, "en"):
            for archive, member, corpus in (
                ("europarl-v7", "training/europarl-v7", "europarl"),
                ("commoncrawl", "commoncrawl", "crawl"),
                ("nc-v9", "training/news-commentary-v9", "news"),
            ):
                content = lines(f"{corpus} {language}", side)
                name = f"training-parallel-{archive}.tgz"
                archives[name][f"{member}.{language}-en.{side}"] = content
            archives["dev.tgz"][f"dev/newstest2013.{side}"] = lines("dev", side)
    for side in ("fr", "en"):
        content = lines("un", side)
        archives["training-parallel-un.tgz"][f"un/undoc.2000.fr-en.{side}"] = content
        name = f"giga-fren.release2.fixed.{side}.gz"
        archives["training-giga-fren.tar"][name] = gzip.compress(lines("giga", side))
    # The test sets of both directions are there; each has both languages.
    for language, ending in itertools.product(("de", "fr"), ("src", "ref")):
        for side in ("en", language):
            name = f"test-full/newstest2014-{language}en-{ending}.{side}.sgm"
            archives["test-full.tgz"][name] = sgm(f"test {language}", side)
    return archives


@pytest.fixture(scope="module")
def raw_dir(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("raw")
    for name, contents in members().items():
        with tarfile.open(path / name, "w:gz" if name.endswith("gz") else "w") as file:
            for member, content in contents.items():
                info = tarfile.TarInfo(f"./{member}" if "nc-v9" in name else member)
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
    return path


@pytest.mark.parametrize(
    ("problem", "corpora"),
    [
        ("translate_ende_wmt", ["europarl de", "crawl de", "news de"]),
        ("translate_enfr_wmt", ["europarl fr", "crawl fr", "news fr", "un", "giga"]),
    ],
)
def test_the_pairs_of_wmt_2014(raw_dir, problem, corpora):
    task = registry.problem(problem)
    language = problem.removesuffix("_wmt")[-2:]
    sources = task.archives(raw_dir)
    assert list(sources["train"]()) == [
        pair
        for corpus in corpora
        for pair in zip(texts(corpus, "en"), texts(corpus, language), strict=True)
    ]
    assert list(sources["dev"]()) == list(
        zip(texts("dev", "en"), texts("dev", language), strict=True)
    )
    test_pairs = zip(
        texts(f"test {language}", "en"),
        texts(f"test {language}", language),
        strict=True,
    )
    assert list(sources["test"]()) == [
        (f'R&D "{source}" < 1', f'R&D "{target}" < 1') for source, target in test_pairs
    ]


ARGV = ["datagen", "--problem", "translate_ende_wmt", "--vocab_size", "400"]


def test_datagen_and_its_manifest(raw_dir, tmp_path, capfd):
    argv = [*ARGV, "--raw_dir", raw_dir, "--data_dir", tmp_path / "data"]
    counts = {"train": 3 * LINES, "dev": LINES, "test": LINES}
    assert run_json(capfd, *argv)["examples"] == counts
    manifest = tmp_path / "data" / "translate_ende_wmt.manifest.json"
    corpora = json.loads(manifest.read_text())["corpora"]["train"]
    assert corpora == {
        name: {"pairs": LINES, "examples": LINES, "share": 1 / 3}
        for name in ("europarl_v7", "commoncrawl", "newscommentary_v9")
    }
    references = (tmp_path / "data" / "translate_ende_wmt-test.targets").read_text()
    assert references.startswith('R&D "test de sentence 0 in de')
    assert not [path for path in raw_dir.iterdir() if path.is_dir()]  # nothing unpacked


def test_missing_archives_are_named_with_their_addresses(raw_dir, tmp_path, capfd):
    for name in ("training-parallel-nc-v9.tgz", "dev.tgz"):
        (tmp_path / name).symlink_to(raw_dir / name)
    argv = [*ARGV, "--raw_dir", tmp_path, "--data_dir", tmp_path / "data"]
    message = run_refused(capfd, *argv)
    assert f"{tmp_path} lacks 3 of 5 archives" in message
    assert message.endswith(
        "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz "
        "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz "
        "http://www.statmt.org/wmt14/test-full.tgz\n"
    )
    assert not (tmp_path / "data").exists()


def test_a_damaged_zip_file(tmp_path):
    pairs = ArchivedPairs(tmp_path, "http://x/a.zip", "a.en", "a.de")
    with zipfile.ZipFile(pairs.path, "w") as file:
        file.writestr("a.en", "A dog.\n")
        file.writestr("a.de", "Ein Hund.\n")
    assert list(pairs()) == [("A dog.", "Ein Hund.")]
    pairs.path.write_bytes(pairs.path.read_bytes().replace(b"Hund", b"Mund"))
    refused("a.zip is not a complete zip file; copy", lambda: list(pairs()))


def test_damaged_archives(raw_dir, tmp_path):
    for name, source, target in (
        ("training-parallel-nc-v9.tgz", *["training/news-commentary-v9.de-en.en"] * 2),
        ("training-giga-fren.tar", *["giga-fren.release2.fixed.en.gz"] * 2),
    ):
        content = (raw_dir / name).read_bytes()
        pairs = ArchivedPairs(tmp_path, f"http://x/{name}", source, target)
        read = lambda pairs=pairs: list(pairs())  # noqa: E731
        refused(f"^cannot read {pairs.path}: No such file or directory$", read)
        refused("cannot read", checksum, pairs)
        for part in (content[:300], b"no archive", b""):
            pairs.path.write_bytes(part)
            refused(f"{pairs.path} is not a complete", read)
        pairs.path.write_bytes(content)
        assert len(read()) == LINES
        absent = ArchivedPairs(tmp_path, pairs.url, source, "training/none.de")
        refused(f"^{pairs.path} has no member training/none.de$", read, absent)
