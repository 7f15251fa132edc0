"""Pairs of parallel text files, intact and damaged."""

import gzip
import os
import tracemalloc

import pytest
from helpers.errors import refused

from t2t_keras.data.sources import PairFile, ParallelFiles, checksum
from t2t_keras.files.text_files import read_lines
from t2t_keras.problems.parsing.treebank import tree_files


def write(path, content: str | bytes):
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("source", [ParallelFiles, PairFile, tree_files])
def test_a_pipe_cannot_be_read_in_every_pass(source, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    paths = (pipe, tmp_path / "absent") if source is ParallelFiles else (pipe,)
    refused("pipe is a pipe or a device, which can be read only once", source, *paths)


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
    """It may have any length, even in a compressed file of one megabyte."""
    opened = gzip.open if name == "text.gz" else open
    with opened(tmp_path / name, "wb") as file:
        file.write(b"short\n")
        for _ in range(60):
            file.write(b"a" * 1_000_000)
    tracemalloc.start()
    refused("line 2 has more than 10,000,000 bytes", list, read_lines(tmp_path / name))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


FILE_PAIRS = [("a\u2028b", "ä ß"), ('"q', "x"), ("", "empty"), ("& < 日", "z")]
TSV = "".join(f"{source}\t{target}\n" for source, target in FILE_PAIRS).encode()
