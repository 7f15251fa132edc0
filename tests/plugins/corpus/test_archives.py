"""WMT 2014 from its archives: miniatures with the names of the real members."""

import collections
import gzip
import hashlib
import http.server
import io
import itertools
import json
import tarfile
import threading
from pathlib import Path
from typing import ClassVar

import pytest
from helpers.errors import refused

from t2t_keras import registry
from t2t_keras.cli import main
from t2t_keras.data.sources import checksum
from t2t_keras.plugins.corpus import archives
from t2t_keras.plugins.corpus.archives import ArchivedPairs, download_archive

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


ARGV = ["datagen", "--problem", "translate_ende_wmt", "--vocab_size", "400", "--json"]


def test_datagen_and_its_manifest(raw_dir, tmp_path, capfd):
    argv = [*ARGV, "--raw_dir", str(raw_dir), "--data_dir", str(tmp_path / "data")]
    assert main(argv) == 0
    counts = {"train": 3 * LINES, "dev": LINES, "test": LINES}
    assert json.loads(capfd.readouterr().out)["examples"] == counts
    manifest = tmp_path / "data" / "translate_ende_wmt.manifest.json"
    corpora = json.loads(manifest.read_text())["corpora"]["train"]
    assert corpora == {
        name: {"pairs": LINES, "examples": LINES, "share": 1 / 3}
        for name in ("europarl_v7", "commoncrawl", "newscommentary_v9")
    }
    references = (tmp_path / "data" / "translate_ende_wmt-test.targets").read_text()
    assert references.startswith('R&D "test de sentence 0 in de')
    assert not [path for path in raw_dir.iterdir() if path.is_dir()]  # nothing unpacked


def error_of(argv, capfd) -> str:
    assert main(argv) == 2
    return capfd.readouterr().err.strip().splitlines()[-1]


def test_missing_archives_are_named_with_their_addresses(raw_dir, tmp_path, capfd):
    for name in ("training-parallel-nc-v9.tgz", "dev.tgz"):
        (tmp_path / name).symlink_to(raw_dir / name)
    argv = [*ARGV, "--raw_dir", str(tmp_path), "--data_dir", str(tmp_path / "data")]
    message = error_of(argv, capfd)
    assert f"{tmp_path} lacks 3 of 5 archives" in message
    assert message.endswith(
        "http://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz "
        "http://www.statmt.org/wmt13/training-parallel-commoncrawl.tgz "
        "http://www.statmt.org/wmt14/test-full.tgz"
    )
    assert not (tmp_path / "data").exists()


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


class Server(http.server.BaseHTTPRequestHandler):
    """Serves one content, with ranges, and breaks connections off on demand."""

    content = bytes(range(256)) * 4000
    breaks: ClassVar[list[int]] = []  # the bytes after which a connection is broken off
    ranges: ClassVar[list[str]] = []
    ignores_ranges = False

    def do_GET(self):
        if self.path != "/x.tgz":
            self.send_error(404)
            return
        asked = self.headers["Range"]
        self.ranges.append(asked)
        start = 0 if self.ignores_ranges else int(asked[6:-1])
        if start >= len(self.content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(self.content)}")
            self.end_headers()
            return
        self.send_response(200 if self.ignores_ranges else 206)
        remainder = self.content[start:]
        self.send_header("Content-Length", str(len(remainder)))
        self.end_headers()
        self.wfile.write(remainder[: self.breaks.pop(0)] if self.breaks else remainder)

    def log_message(self, *args):
        pass


@pytest.fixture
def address():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Server.breaks = []
    Server.ranges = []
    Server.ignores_ranges = False
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_download_resumes_where_it_stopped(address, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "_BLOCK", 1 << 16)
    sha256 = hashlib.sha256(Server.content).hexdigest()
    archive = ArchivedPairs(tmp_path / "raw", f"{address}/x.tgz", "a", "b", sha256)
    Server.breaks = [300_000]
    message = r"x\.tgz: the connection was closed too early"
    refused(message, download_archive, archive)
    assert not archive.path.exists()
    download_archive(archive)
    assert Server.ranges == ["bytes=0-", "bytes=300000-"]
    assert archive.path.read_bytes() == Server.content
    names = sorted(path.name for path in archive.directory.iterdir())
    assert names == ["x.tgz", "x.tgz.lock"]
    download_archive(archive)  # another process has downloaded it meanwhile
    assert len(Server.ranges) == 2


def test_downloads_that_fail(address, tmp_path):
    for url, message in (
        (f"{address}/x.tgz", "its SHA-256 is not 0000"),
        (f"{address}/y.tgz", r"cannot download .*y\.tgz: Not Found; run"),
        ("http://127.0.0.1:9/x.tgz", "Connection refused"),
    ):
        archive = ArchivedPairs(tmp_path, url, "a", "b", "0" * 64)
        refused(message, download_archive, archive)
    assert all(path.suffix == ".lock" for path in tmp_path.iterdir())
