"""tensor2tensor's hparams.json in our terms."""

import json
import re

import pytest
from helpers.errors import refused
from helpers.reference import reference
from helpers.t2t_oracle import write_hparams

from t2t_keras import registry
from t2t_keras.hparam import PAPER_SCHEDULE, HParams
from t2t_keras.plugins.interop.t2t.hparams import load_t2t_hparams
from t2t_keras.plugins.interop.t2t.t2t_sets import SETS


@pytest.mark.parametrize("name", [name for name in SETS if "description" in SETS[name]])
def test_registered_sets_have_its_values(name, tmp_path):
    sets = json.loads(reference("t2t/oracle/misc/hparams.json").read_text())
    path = tmp_path / "hparams.json"
    path.write_text(json.dumps(sets[name]))
    expected, (left_out,) = load_t2t_hparams(path)
    assert re.match(r"batch_size \d+ counted tokens on each GPU", left_out)
    hparams = registry.hparams(name)
    gpus = 1 if name.endswith(("_gpu", "_tiny", "_small")) else 8
    assert hparams.batch_tokens == gpus * expected.batch_tokens
    different_fields = {"batch_tokens", "train_steps"}
    assert hparams.difference(expected).keys() <= different_fields
    assert hparams.train_steps == 250_000


def test_a_schedule_that_we_do_not_have_is_not_taken_over(tmp_path):
    path = write_hparams(tmp_path, learning_rate_schedule="constant*cosdecay")
    hparams, left_out = load_t2t_hparams(path)
    assert (hparams.learning_rate, hparams.schedule) == (1.0, PAPER_SCHEDULE)
    assert left_out == [
        "the learning_rate_schedule is 'constant*cosdecay'; the paper's replaces it"
    ]


def test_what_is_left_out_of_training(tmp_path):
    path = write_hparams(tmp_path, optimizer="yellow_fin", weight_decay=0.1)
    hparams, left_out = load_t2t_hparams(path)
    assert hparams.optimizer == "adam"
    assert "'yellow_fin'" in left_out[0] and "weight_decay 0.1" in left_out[1]
    path = write_hparams(tmp_path, batch_size=32, use_fixed_batch_size=True)
    hparams, left_out = load_t2t_hparams(path)
    assert hparams.batch_tokens == HParams().batch_tokens
    assert left_out == ["batch_size, which counts sentences (use_fixed_batch_size)"]


@pytest.mark.parametrize(
    ("t2t_name", "ours", "rate"),
    [("Adam", "adam", 2.0), ("TrueAdam", "adam", 2.0), ("Adafactor", "adafactor", 1e3)],
)
def test_older_names_of_optimizers(t2t_name, ours, rate, tmp_path):
    legacy = {"learning_rate_schedule": "legacy", "learning_rate": 0.2}
    legacy["learning_rate_decay_scheme"] = "noam"
    path = write_hparams(tmp_path, optimizer=t2t_name, **legacy)
    hparams, left_out = load_t2t_hparams(path)
    assert (hparams.optimizer, hparams.learning_rate) == (ours, pytest.approx(rate))
    assert not any("optimizer" in sentence for sentence in left_out)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pos": "emb"}, "pos 'emb', only with 'timing'"),
        ({"symbol_modality_skip_top": True}, "skip_top True, only with False"),
        ({"self_attention_type": "dot_product_relative"}, "'dot_product_relative'"),
        ({"attention_variables_3d": True}, "attention_variables_3d True"),
        ({"vocab_divisor": 64}, "vocab_divisor 64: its embeddings have more rows"),
        ({"attention_key_channels": 30}, "attention_key_channels 30 is not divisible"),
        ({"num_heads": 0}, "not have a value as tensor2tensor writes it"),
        ({"optimizer": ["adam"]}, "not have a value as tensor2tensor writes it"),
    ],
    ids=str,
)
def test_hparams_that_cannot_be_read(changes, message, tmp_path):
    path = write_hparams(tmp_path, **changes)
    refused(message, load_t2t_hparams, path)


def test_files_without_hparams(tmp_path):
    path = tmp_path / "hparams.json"
    refused(r"cannot read .*No such file", load_t2t_hparams, path)
    path.write_text('{"num_hidden_layers": 2}')
    refused("has no 'layer_preprocess_sequence'", load_t2t_hparams, path)
