"""JSON files with a checksum: written, read, damaged."""

import json

import pytest
from helpers.errors import refused

from t2t_keras.errors import UserError
from t2t_keras.files.json_files import open_log, read_json, read_log, write_json

FIELDS = {"a": [1, 0.1], "ü": {"b": None}, "path": "\udcfc"}


def test_json_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "file.json"
    assert read_json(path) is None
    for with_checksum in (False, True):
        write_json(path, FIELDS, with_checksum)
        assert read_json(path) == FIELDS
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields))  # other white space, the same content
    assert read_json(path) == FIELDS
    del fields["sha256"]
    path.write_text(json.dumps(fields | {"a": 5}))  # as the message advises
    assert read_json(path) == FIELDS | {"a": 5}


def test_every_flipped_bit_that_changes_the_content_is_noticed(tmp_path):
    path = tmp_path / "file.json"
    write_json(path, {"seed": 17, "names": ["train", "dev"], "x": None}, True)
    content = path.read_bytes()
    expected = read_json(path)
    for position in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                value = read_json(path)
            except UserError as error:
                assert str(path) in str(error) and "restore it from" in str(error)
            else:  # of white space, or of the checksum's name, which schemas refuse
                assert value == expected or len(value) == len(expected) + 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is not valid JSON"),
        (b"\xff", "it is not valid JSON"),
        (b"[" * 100_000, "it is not valid JSON"),
        (b"[1]", "it is not a JSON object"),
        (
            b'{"a": 1, "sha256": null}',
            "has been damaged or edited: .*remove that field",
        ),
        (b'{"a": 1, "sha256": ["x"]}', "has been damaged or edited"),
    ],
)
def test_damaged_json_is_refused(content, message, tmp_path):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    refused(f"file.json .*{message}", read_json, path, "make it again")


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
