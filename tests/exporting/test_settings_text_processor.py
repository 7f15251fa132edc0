"""How an export finds the text processor of its problem."""

import json

import pytest
from helpers.errors import refused

import t2t_keras
from t2t_keras import registry
from t2t_keras.exporting.directory import SUMS
from t2t_keras.exporting.saved_model import SavedModelSettings
from t2t_keras.exporting.settings import SETTINGS
from t2t_keras.files.json_files import sha256
from t2t_keras.problem import TextProcessor

SETTINGS_OF_A_MODEL = {
    "version": "0.1.0",
    "problem": "parsing_wsj",
    "languages": None,
    "hparams": {"d_model": 64},
    "decoding": {"beam_size": 4},
    "quantization": None,
    "ids_only": False,
    "verified": 0,
    "identical": 0,
    "tags": [],
}


def write_export(path, **changes):
    """Writes the files of an export that are read before TensorFlow loads it."""
    path.mkdir()
    settings = json.dumps(SETTINGS_OF_A_MODEL | changes)
    (path / SETTINGS).write_text(settings, encoding="utf-8")
    (path / "saved_model.pb").touch()
    names = (SETTINGS, "saved_model.pb")
    sums = [f"{sha256(path / name)}  {name}\n" for name in names]
    (path / SUMS).write_text("".join(sums), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("name", "tags", "expected"),
    [
        ("plain", ["<2de>"], lambda: TextProcessor(tags=("<2de>",))),
        ("registered", [], lambda: registry.problem("parsing_wsj").text_processor),
    ],
)
def test_the_settings_tell_the_text_processor(name, tags, expected, tmp_path):
    path = write_export(tmp_path / "1", text_processor=name, tags=tags)
    settings = SavedModelSettings.read(path)
    assert settings.make_text_processor(path) == expected()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("registered", "there is no 'mine'.*; give the --usr_dir that registers it"),
        ("unknown", "'mine' was not registered when .* again with its --usr_dir, or"),
    ],
)
def test_a_problem_that_is_not_registered(name, message, tmp_path):
    path = write_export(tmp_path / "1", problem="mine", text_processor=name)
    refused(f"^--export_dir: .*{message}", t2t_keras.load, path)


def test_a_saved_model_of_another_program(tmp_path):
    path = write_export(tmp_path / "1")
    (path / SETTINGS).unlink()
    (path / SUMS).unlink()
    refused("has no SHA256SUMS: `t2t export` did not write it", t2t_keras.load, path)
