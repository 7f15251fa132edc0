"""Logs: lines are added to whole lines, and damaged lines are skipped."""

import json

import pytest

from t2t_keras.files.json_files import open_log, read_log


def test_lines_are_added_to_whole_lines(tmp_path):
    path = tmp_path / "lines"
    for text in ("1\n", "2", "3\n"):  # the process that wrote 2 was killed
        with open_log(path) as file:
            file.write(text)
    assert path.read_text() == "1\n2\n3\n"


def test_an_unfinished_line_is_skipped(tmp_path, capfd):
    path = tmp_path / "lines"
    assert read_log(path) == []
    for text in ('{"a": 1}\n', '{"a": 2', '{"a": 3}\n'):
        with open_log(path) as file:
            file.write(text)
    assert read_log(path) == [{"a": 1}, {"a": 3}]
    warning = f"warning: {path}: damaged lines are passed over: 1 of 3, the first is"
    assert capfd.readouterr().err == f"{warning} line 2\n"


@pytest.mark.parametrize("line", [b"\xff", b"", b"5", b"\0\0", b"[" * 50_000, b"{}"])
def test_damaged_lines_are_skipped(tmp_path, capfd, line):
    path = tmp_path / "lines"
    objects = [{"a": 1}, {"b": "\u2028"}]
    intact = [json.dumps(x, ensure_ascii=False).encode() for x in objects]
    path.write_bytes(b"\n".join([*intact, b""]))
    assert read_log(path) == objects
    assert not capfd.readouterr().err
    path.write_bytes(b"\n".join([intact[0], line, intact[1], b""]))
    assert read_log(path) == objects
    assert "1 of 3, the first is line 2" in capfd.readouterr().err
