"""The files of the index of records: every flipped bit is noticed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.errors import refused
from helpers.small_corpus import PROBLEM, decoded

from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.files.json_files import write_json


def index_with(directory: Path, position: int, bit: int) -> int | None:
    """Returns the number of records with a flipped bit; None: it was refused."""
    path = directory / "small-train.index.npz"
    content = path.read_bytes()
    damaged = bytearray(content)
    damaged[position] ^= 1 << bit
    path.write_bytes(damaged)
    try:
        return len(Manifest.open(directory, "small").open_index(directory, "train"))
    finally:
        assert path.read_bytes() in (content, bytes(damaged))
        path.write_bytes(content)


@pytest.mark.parametrize("version", ["this", "earlier"])
def test_no_bit_of_an_index_loses_records(complete, tmp_path, version, capsys):
    """NumPy reads fewer rows of a table if its header says so, without an error."""
    directory = shutil.copytree(complete, tmp_path / "data")
    if version == "earlier":
        path = Manifest.path(directory, "small")
        fields = json.loads(path.read_text())
        del fields["sha256"], fields["index_sha256"]
        path.write_text(json.dumps(fields))
    content = (directory / "small-train.index.npz").read_bytes()
    with np.load(directory / "small-train.index.npz") as arrays:
        rows = [len(arrays[str(shard)]) for shard in range(3)]
    for index in rows:
        header = content.index(b"'shape': (%d" % index)
        for position in range(header + 10, header + 14):
            for bit in range(8):
                assert index_with(directory, position, bit) == sum(rows)
    assert "is damaged; building it again" in capsys.readouterr().err


def test_records_are_counted(complete, tmp_path):
    directory = shutil.copytree(complete, tmp_path / "data")
    manifest = Manifest.open(directory, "small")
    miscounted = {**manifest.examples, "train": manifest.examples["train"] + 1}
    path = Manifest.path(directory, "small")
    write_json(path, json.loads(path.read_text()) | {"examples": miscounted}, True)
    message = "has 287 train examples of 'small', and small.manifest.json says 288"
    refused(message, Manifest.open(directory, "small").open_index, directory, "train")


@pytest.mark.usefixtures("small_scale")
def test_other_shards_are_noticed(complete, tmp_path):
    """Those of another order of the same examples, with its index."""
    generate(PROBLEM, tmp_path / "other", workers=1, seed=1)
    orders = [decoded(path, "train") for path in (complete, tmp_path / "other")]
    assert orders[0] != orders[1] and sorted(orders[0]) == sorted(orders[1])
    directory = shutil.copytree(complete, tmp_path / "data")
    for path in directory.glob("small-train*"):
        path.unlink()
    for path in (tmp_path / "other").glob("small-train*"):
        shutil.copy(path, directory)
    message = "the train data of 'small' in .* are not those"
    refused(message, Manifest.open(directory, "small").open_index, directory, "train")
