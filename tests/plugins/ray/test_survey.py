"""Text files that are read by ranges: every line once, from any line on."""

import gzip

import pytest
from helpers.command_line import write

from t2t_keras.files import text_files
from t2t_keras.files.text_files import read_lines
from t2t_keras.plugins.ray import survey
from t2t_keras.plugins.ray.survey import (
    ByteRange,
    byte_ranges,
    count_lines,
    line_positions,
    read_lines_from,
)

TEXTS = {
    "ends": b"one\ntwo\r\n\n\xc3\xbc\xe2\x82\xac\xf0\x9f\x98\x80 three\n",
    "open": b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n\n\nlonger line\xe2\x80\xa8with one\nc",
    "blank": b"\n\n\n",
    "single": b"x",
}


@pytest.mark.parametrize("name", TEXTS)
def test_ranges_have_each_line_once(tmp_path, monkeypatch, name):
    path = tmp_path / name
    path.write_bytes(TEXTS[name])
    lines = list(read_lines(path))
    for size in (1, 2, 3, 5, 8, 1000):
        monkeypatch.setattr(survey, "_RANGE", size)
        counts = list(map(count_lines, byte_ranges(path)))
        assert sum(count.lines for count in counts) == len(lines)
        characters = frozenset().union(*(count.characters for count in counts))
        assert characters == set("".join(line.strip() for line in lines))
        positions = line_positions(counts)
        for index in range(len(lines) + 1):
            assert list(read_lines_from(path, index, positions)) == lines[index:]


def test_faulty_lines_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(survey, "_RANGE", 4)
    monkeypatch.setattr(text_files, "LONGEST_LINE", 10)
    monkeypatch.setattr(survey, "LONGEST_LINE", 10)
    for content in (b"ab\ncd\xff\nef\n", b"ab\n" + b"c" * 12 + b"\nde\n"):
        path = tmp_path / "text"
        path.write_bytes(content)
        assert any(count_lines(part).is_faulty for part in byte_ranges(path))


def test_compressed_files_have_no_ranges(tmp_path):
    for name, content in {"a.gz": b"text\n", "b": b"text\n"}.items():
        path = tmp_path / name
        path.write_bytes(gzip.compress(content))
        assert byte_ranges(path) is None
    path = write(tmp_path / "empty", "")
    assert byte_ranges(path) in ([], [ByteRange(path, 0, 1)])
