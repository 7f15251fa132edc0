"""Registered models: by name, with new parts and hyper-parameters."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from helpers.command_line import run, run_json
from helpers.errors import refused
from helpers.small_run import replace_updates

from t2t_keras import HParams, UserError, load, registry
from t2t_keras.model import build_model
from t2t_keras.usr_dir import load_usr_dir

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def usr_dir(tmp_path, registrations):
    folder = tmp_path / "user"
    folder.mkdir()
    example = EXAMPLES / "modern_transformer" / "modern_transformer.py"
    shutil.copy(example, folder / "my_model.py")
    load_usr_dir(folder)
    return folder


def test_its_hyper_parameters_are_like_any_others(usr_dir):
    hparams = registry.hparams("modern_tiny")
    assert hparams.num_kv_heads == 2 and "num_kv_heads" in hparams.descriptions()
    assert hparams.parse("num_kv_heads=4,dropout=0.2").num_kv_heads == 4
    refused("num_kv_heads must be at least 1", hparams.parse, "num_kv_heads=0")
    refused("leave out position and", hparams.parse, "attention_window=2")
    refused("needs d_k equal to d_v", hparams.parse, "d_k=6,d_v=4")
    values = json.loads(json.dumps(dataclasses.asdict(hparams)))
    assert HParams.from_dict(values) == hparams
    # Any set can choose the model, and leave it again.
    overridden = HParams(dropout=0.3).parse("model=modern_transformer,num_kv_heads=4")
    assert type(overridden) is type(hparams)
    assert (overridden.num_kv_heads, overridden.dropout) == (4, 0.3)
    back = overridden.override(model="transformer")
    assert type(back) is HParams and back.dropout == 0.3
    assert hparams.difference(HParams())["num_kv_heads"] == (2, None)


def test_mistakes(usr_dir):
    refused("mean 'modern_transformer'", HParams().parse, "model=modrn_transformer")
    message = "'num_kv_heads' needs model=modern_transformer"
    refused(message, HParams().parse, "num_kv_heads=2")
    cls = type(registry.hparams("modern_tiny"))
    message = "takes HParams, not ModernHParams; set model"
    refused(message, build_model, cls(model="transformer"), 9)


def test_a_run_finds_its_model_or_says_it_is_gone(
    usr_dir, registrations, data_dir, tmp_path, capfd, monkeypatch
):
    replace_updates(monkeypatch)
    models = run_json(capfd, "list", "--usr_dir", usr_dir)["models"]
    assert models["modern_transformer"].startswith("Rotary positions, RMSNorm")
    assert "transformer" in models
    command = f"""
        train --problem translate_text --hparams_set modern_tiny --usr_dir {usr_dir}
        --hparams num_layers=1,d_model=16,d_ff=16,num_heads=2,batch_tokens=256,dropout=0
        --data_dir {data_dir} --output_dir {tmp_path}/run --train_steps 2
        --eval_sentences 0
    """
    assert run(*command.split()) == 0
    registrations.restore()  # as in a process that has not imported the file
    model = load(tmp_path / "run").model  # config.json has the --usr_dir
    assert type(model).__name__ == "ModernTransformer"
    registrations.restore()
    (usr_dir / "my_model.py").write_text("")
    with pytest.raises(UserError, match="there is no model 'modern_transformer'; inst"):
        load(tmp_path / "run")


HALF = """
from __future__ import annotations

import dataclasses

from t2t_keras import HParams, option, register_model
from t2t_keras.model.transformer import Transformer


@dataclasses.dataclass(frozen=True, kw_only=True)
class HalfHParams(HParams):
    model: str = option("half_transformer", "its name")
    shifts: bool = option(True, "whether the source embeddings are shifted")
    hidden_size: int = option(3, "no part of this model; tensor2tensor's d_model")


@register_model(hparams=HalfHParams)
class HalfTransformer(Transformer):
    def build(self, input_shape):
        super().build(input_shape)
        self.encoder.trainable = False
        shape = (self.hparams.d_model,)
        init = {"initializer": "random_normal", "autocast": False}
        self.shift = self.add_weight(shape, trainable=False, name="shift", **init)

    def source_input(self, x):
        return super().source_input(x) + self.hparams.shifts * self.shift
"""


def test_weights_that_are_not_trainable(registrations, data_dir, tmp_path, monkeypatch):
    (folder := tmp_path / "user").mkdir()
    (folder / "half.py").write_text(HALF)
    train = f"train --problem translate_text --data_dir {data_dir} --eval_sentences 0"
    small = "num_layers=1,d_model=16,d_ff=16,num_heads=2,batch_tokens=256,dropout=0"
    options = f"model=half_transformer,shifts=true,ema_decay=0.5,{small}"
    path = tmp_path / "run"
    other_run = tmp_path / "other"
    command = f"{train} --usr_dir {folder} --hparams_set tiny --hparams {options}"
    flags = "--train_steps 2 --save_every 1 --output_dir"
    assert run(*command.split(), *flags.split(), path) == 0
    averages = []
    for checkpoint in ("1", "2", "ema"):
        model = load(path, checkpoint).model
        averages.append({weight.path: weight.numpy() for weight in model.weights})
    for name in averages[0]:
        values = [average[name] for average in averages]
        is_frozen = "/encoder/" in name or name.endswith("/shift")
        equal = [bool((value == values[1]).all()) for value in values]
        assert equal == [is_frozen, True, is_frozen], name
    # Fine-tuning needs neither the hparam set nor the --usr_dir of the first run.
    registrations.restore()
    replace_updates(monkeypatch)
    start = f"--init_from {path} --hparams shifts=false --train_steps 1 --output_dir"
    assert run(*train.split(), *start.split(), other_run) == 0
    assert json.loads((other_run / "config.json").read_text())["usr_dir"] == str(folder)
    assert json.loads((other_run / "hparams.json").read_text())["shifts"] is False
    hparams = registry.model("half_transformer").hparams()
    with_own = hparams.parse("hidden_size=5,filter_size=7")
    assert (with_own.hidden_size, with_own.d_model, with_own.d_ff) == (5, 512, 7)
