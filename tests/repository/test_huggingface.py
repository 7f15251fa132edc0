"""The example whose pairs come from a dataset of Hugging Face, on local files."""

import json
import sys
from pathlib import Path

import pyarrow.parquet
import pytest
from helpers.errors import refused

from t2t_keras import registry
from t2t_keras.data.datagen import generate
from t2t_keras.data.manifest import Manifest
from t2t_keras.usr_dir import load_usr_dir

PAIRS = [(f"a house {i}", f"ein Haus {i}") for i in range(30)]


@pytest.fixture
def hub():
    """The example's module."""
    load_usr_dir(Path(__file__).parents[2] / "examples" / "huggingface")
    return sys.modules["hub_pairs"]


def write_json(path):
    """Nested, as the sets of WMT are."""
    rows = [json.dumps({"translation": {"en": a, "de": b}}) for a, b in PAIRS]
    path.write_text("\n".join(rows))


def write_csv(path):
    path.write_text("\n".join(["id,en,de", *(f"7,{a},{b}" for a, b in PAIRS)]))


def write_parquet(path):
    en, de = zip(*PAIRS, strict=True)
    pyarrow.parquet.write_table(pyarrow.table({"en": en, "de": de}), path)


@pytest.mark.parametrize("write", [write_json, write_csv, write_parquet])
def test_pairs_of_local_files(write, hub, tmp_path, monkeypatch):
    pytest.importorskip("datasets", reason="needs `pip install datasets`")
    file_format = write.__name__.removeprefix("write_")
    file = tmp_path / f"train.{file_format}"
    write(file)
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    pairs = hub.HubPairs(file_format, "en", "de", data_files=str(file))
    streamed = hub.HubPairs(
        file_format, "en", "de", data_files=str(file), streaming=True
    )
    part = hub.HubPairs(
        file_format, "en", "de", data_files=str(file), split="train[:10%]"
    )
    assert list(pairs()) == list(streamed()) == PAIRS
    assert list(part()) == PAIRS[:3]
    french = hub.HubPairs(file_format, "en", "fr", data_files=str(file))
    refused("json|csv|parquet has no column 'fr', only .*en, de", list, french())
    absent = hub.HubPairs(file_format, "en", "de", data_files=str(tmp_path / "absent"))
    refused(f"datasets: {file_format}: ", list, absent())
    if file_format == "json":
        problem = registry.problem("wmt16_roen").replace(
            sources={"train": pairs, "dev": part}, vocab_size=300
        )
        generate(problem, tmp_path / "data", workers=1)
        manifest = Manifest.open(tmp_path / "data", "wmt16_roen")
        assert manifest.examples == {"train": 30, "dev": 3}


def test_without_the_library_there_is_a_sentence(hub, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused("run `pip install datasets`", list, hub.HubPairs("json", "en", "de")())
