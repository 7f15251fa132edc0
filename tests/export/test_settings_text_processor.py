"""How an export finds the text processor of its problem."""

import json

import pytest

from t2t_keras import registry
from t2t_keras.export.saved_model import SavedModelSettings
from t2t_keras.export.settings import SETTINGS
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


@pytest.mark.parametrize(
    ("name", "tags", "expected"),
    [
        ("plain", ["<2de>"], lambda: TextProcessor(tags=("<2de>",))),
        ("registered", [], lambda: registry.problem("parsing_wsj").text_processor),
        ("unknown", [], lambda: None),
    ],
)
def test_the_settings_tell_the_text_processor(name, tags, expected, tmp_path):
    fields = SETTINGS_OF_A_MODEL | {"text_processor": name, "tags": tags}
    (tmp_path / SETTINGS).write_text(json.dumps(fields), encoding="utf-8")
    settings = SavedModelSettings.read(tmp_path)
    assert settings.make_text_processor() == expected()
