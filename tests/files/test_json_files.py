"""JSON files with a checksum: written, read, damaged."""

import json

import pytest
from helpers.errors import refused

from t2t_keras.errors import UserError
from t2t_keras.files.json_files import read_json, write_json

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
