"""Sources of pairs: text files with all their accidents, and tensorflow-datasets."""

import gzip
import tracemalloc

import pytest
import tensorflow_datasets as tfds

from t2t_keras import registry
from t2t_keras.data.sources import ParallelFiles, checksum, read_lines
from t2t_keras.option import UserError


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


def test_parallel_files_start_from_the_beginning_every_time(tmp_path):
    source = write(tmp_path / "a", "one\ntwo\n")
    target = write(tmp_path / "b.gz", "eins\nzwei")
    pairs = ParallelFiles(source, str(target))
    assert list(pairs()) == [("one", "eins"), ("two", "zwei")]
    assert next(iter(pairs())) == ("one", "eins")
    assert list(pairs()) == [("one", "eins"), ("two", "zwei")]


def fails(pairs) -> str:
    with pytest.raises(UserError) as error:
        list(pairs())
    message = str(error.value)
    assert "\n" not in message
    return message


def test_unequal_files_are_told_apart(tmp_path):
    three, five = write(tmp_path / "3", "x\n" * 3), write(tmp_path / "5", "x\n" * 5)
    for pairs in (ParallelFiles(three, five), ParallelFiles(five, three)):
        assert fails(pairs).startswith(
            f"{three} has only 3 lines and {five} has 5: line by line"
        )
    empty = write(tmp_path / "0", "")
    assert f"{empty} has only 0 lines" in fails(ParallelFiles(five, empty))


def test_invalid_utf8_is_found_in_its_line(tmp_path):
    good = write(tmp_path / "good", "x\n" * 3)
    latin1 = write(tmp_path / "latin1.gz", "gut\nschön\nauch\n".encode("latin-1"))
    message = fails(ParallelFiles(good, latin1))
    assert message.startswith(f"{latin1}, line 2: byte 0xf6 is not valid UTF-8")
    utf16 = write(tmp_path / "utf16", "gut".encode("utf-16"))
    assert f"{utf16}, line 1: byte 0xff" in fails(ParallelFiles(utf16, good))


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_line_without_an_end_is_refused_before_it_is_read(tmp_path, name):
    """It may have any length, and a compressed file of a megabyte may have it."""
    opened = gzip.open if name == "text.gz" else open
    with opened(tmp_path / name, "wb") as file:
        file.write(b"short\n")
        for _ in range(60):
            file.write(bytes(1_000_000))
    tracemalloc.start()
    with pytest.raises(UserError, match="line 2 has more than 10,000,000 bytes"):
        list(read_lines(tmp_path / name))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


def test_files_that_cannot_be_read(tmp_path):
    good = write(tmp_path / "good", "x\n")
    absent = tmp_path / "absent"
    assert fails(ParallelFiles(good, absent)) == (
        f"cannot read {absent}: No such file or directory"
    )
    with pytest.raises(UserError, match=f"cannot read {absent}"):
        ParallelFiles(good, absent).checksum()
    assert "Is a directory" in fails(ParallelFiles(tmp_path, good))
    text = write(tmp_path / "text.gz.txt", "no gzip\n").rename(tmp_path / "text.gz")
    assert "not a complete gzip file" in fails(ParallelFiles(text, good))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"x\n" * 1000)[:-10])
    assert f"{cut} is not a complete gzip file" in fails(ParallelFiles(cut, good))


def test_checksum_is_about_content(tmp_path):
    a, b = write(tmp_path / "a", "one\n"), write(tmp_path / "b", "eins\n")
    pairs = ParallelFiles(a, b)
    before = checksum(pairs)
    a.rename(tmp_path / "renamed")
    assert checksum(ParallelFiles(tmp_path / "renamed", b)) == before
    assert checksum(ParallelFiles(b, tmp_path / "renamed")) != before
    write(b, "zwei\n")
    assert checksum(ParallelFiles(tmp_path / "renamed", b)) != before


PAIRS = [(f"sentence {i} — 日本\u2028", f"Satz {i} ß\n") for i in range(2500)]


@pytest.mark.parametrize(
    ("problem", "language", "vocab_size"),
    [("translate_ende", "de", 37_000), ("translate_enfr", "fr", 32_000)],
)
def test_the_papers_problems_are_wmt_2014(problem, language, vocab_size):
    problem = registry.problem(problem)
    assert (problem.vocab_size, problem.shared_vocab) == (vocab_size, True)
    subsets = {"dev": ["newstest2013"], "test": ["newstest2014"]}
    for split, source in problem.sources.items():
        builder = tfds.builder(source.name)
        assert builder.info.full_name == f"wmt14_translate/{language}-en/1.0.0"
        assert set(builder.info.features) == {"en", language}
        assert (source.source_feature, source.target_feature) == ("en", language)
        contents = builder.subsets[source.split]
        assert contents == subsets.get(split, contents)
        assert len(contents) >= 1
    assert "europarl_v7" in builder.subsets[problem.sources["train"].split]


def test_translate_text_has_no_examples_of_its_own():
    with pytest.raises(UserError, match="--train_source and --train_target"):
        registry.problem("translate_text").source("train")
