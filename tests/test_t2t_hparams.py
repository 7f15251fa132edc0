"""tensor2tensor's hparams.json in our terms."""

import json

import numpy as np
import pytest
from reference import reference
from t2t_oracle import write_hparams

from t2t_keras.errors import UserError
from t2t_keras.hparam import PAPER_SCHEDULE, HParams
from t2t_keras.interop.t2t_hparams import load_t2t_hparams
from t2t_keras.training.optimizer import learning_rate


@pytest.mark.parametrize("name", ["transformer_base", "transformer_base_v1"])
def test_hparams(name, tmp_path):
    sets = json.loads(reference("t2t/oracle/misc/hparams.json").read_text())
    path = tmp_path / "hparams.json"
    path.write_text(json.dumps(sets[name]))
    expected = {
        "transformer_base_v1": HParams(position="t2t"),
        "transformer_base": HParams(
            position="t2t",
            norm="pre",
            attention_dropout=0.1,
            ffn_dropout=0.1,
            learning_rate=2.0,
            schedule="constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
            warmup_steps=8000,
            adam_beta2=0.997,
        ),
    }
    assert not load_t2t_hparams(path).difference(expected[name])


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("transformer_base_v2", 1),
        ("transformer_big", 0),
        ("transformer_base_single_gpu", 0),
        ("transformer_parsing_base", 0),
    ],
)
def test_learning_rates_of_its_hparam_sets(name, first, tmp_path):
    sets = json.loads(reference("t2t/oracle/misc/hparams.json").read_text())
    tables = json.loads(reference("t2t/oracle/misc/lr_schedules.json").read_text())
    path = tmp_path / "hparams.json"
    path.write_text(json.dumps(sets[name]))
    hparams = load_t2t_hparams(path)
    for step, expected in zip(tables["_steps"], tables[name]["values"], strict=True):
        if step + first:
            rate = learning_rate(hparams, step + first)
            np.testing.assert_allclose(rate, expected, rtol=1e-5)


def test_a_schedule_that_we_do_not_have_is_not_taken_over(tmp_path):
    path = write_hparams(tmp_path, learning_rate_schedule="constant*cosdecay")
    hparams = load_t2t_hparams(path)
    assert (hparams.learning_rate, hparams.schedule) == (1.0, PAPER_SCHEDULE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pos": "emb"}, "pos 'emb', only with 'timing'"),
        ({"self_attention_type": "dot_product_relative"}, "'dot_product_relative'"),
        ({"ffn_layer": "conv_hidden_relu"}, "ffn_layer 'conv_hidden_relu'"),
        ({"layer_preprocess_sequence": "nd"}, "'nd' and layer_postprocess_sequence"),
        ({"norm_type": "batch"}, "norm_type 'batch'"),
        ({"attention_variables_3d": True}, "attention_variables_3d True"),
        ({"num_decoder_layers": 1}, "6 encoder layers and 1 decoder layers"),
        ({"attention_key_channels": 30}, "attention_key_channels 30 is not divisible"),
        ({"hidden_size": 66}, "d_model 66 is not divisible by num_heads 8"),
        ({"dropout": 0.5, "relu_dropout": 2}, r"ffn_dropout must be in \[0, 1\)"),
    ],
    ids=str,
)
def test_hparams_that_cannot_be_read(changes, message, tmp_path):
    path = write_hparams(tmp_path, **changes)
    with pytest.raises(UserError, match=message):
        load_t2t_hparams(path)


def test_files_that_are_no_hparams(tmp_path):
    path = tmp_path / "hparams.json"
    with pytest.raises(UserError, match=r"cannot read .*No such file"):
        load_t2t_hparams(path)
    path.write_text("{")
    with pytest.raises(UserError, match="is not valid JSON"):
        load_t2t_hparams(path)
    path.write_text("{}")
    with pytest.raises(UserError, match="no 'num_hidden_layers'"):
        load_t2t_hparams(path)
    path.write_text('{"num_hidden_layers": 2}')
    with pytest.raises(UserError, match="has no 'layer_preprocess_sequence'"):
        load_t2t_hparams(path)
