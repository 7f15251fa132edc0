"""Registered models: by name, with new parts and hyper-parameters."""

import dataclasses
import json
import sys

import numpy as np
import pytest
from command_line import run, run_json
from numpy_transformer import randomise
from small_data import small_data
from step_by_step import logits_both_ways

from t2t_keras import HParams, UserError, load, registry
from t2t_keras.hparam import MODEL_HPARAMS
from t2t_keras.model import build_model

GATED = '''
import dataclasses
from keras import ops
from t2t_keras import HParams, option, register_hparams, register_model
from t2t_keras.model.layers import FeedForward, Linear
from t2t_keras.model.transformer import Transformer

@dataclasses.dataclass(frozen=True, kw_only=True)
class GatedHParams(HParams):
    gates: int = option(1, "gates of each feed-forward network", least=1)

class GatedFeedForward(FeedForward):
    def __init__(self, gates, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.gates = [
            Linear(self.d_ff, name=f"gate_{i}", dtype=self.dtype_policy)
            for i in range(gates)
        ]

    def build(self, input_shape):
        super().build(input_shape)
        for gate in self.gates:
            gate.build(input_shape)

    def call(self, x, seed=None):
        hidden = self.inner(x)
        for gate in self.gates:
            hidden = hidden * ops.silu(gate(x))
        return self.outer(hidden)

@register_model(hparams=GatedHParams)
class GatedTransformer(Transformer):
    """Feed-forward networks with gates (Shazeer, 2020)."""

    def make_feed_forward(self):
        h = self.hparams
        sizes = h.gates, h.d_model, h.d_ff
        return GatedFeedForward(*sizes, name="feed_forward", dtype=self.dtype_policy)

@register_hparams
def gated_tiny():
    """A small model with gates."""
    sizes = dict(num_layers=1, d_model=16, d_ff=16, num_heads=2, batch_tokens=256)
    return GatedHParams(model="gated_transformer", gates=2, **sizes)
'''


@pytest.fixture(scope="module")
def usr_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("user")
    (folder / "gated_model.py").write_text(GATED)
    registry.load_usr_dir(folder)
    yield folder
    forget()
    sys.path.remove(str(folder))


def forget():
    """Undoes the registration, as in a process that has not imported the file."""
    registry.list_models()
    registry._models._definitions.pop("gated_transformer", None)
    registry._hparams._definitions.pop("gated_tiny", None)
    MODEL_HPARAMS.pop("gated_transformer", None)
    sys.modules.pop("gated_model", None)


def test_its_hyper_parameters_are_like_any_others(usr_dir):
    hparams = registry.hparams("gated_tiny")
    assert hparams.gates == 2 and "gates" in hparams.meanings()
    assert hparams.parse("gates=3,dropout=0.2").gates == 3
    with pytest.raises(UserError, match="gates must be at least 1"):
        hparams.parse("gates=0")
    values = json.loads(json.dumps(dataclasses.asdict(hparams)))
    assert HParams.from_dict(values) == hparams
    # Any set can choose the model, and leave it again.
    chosen = HParams(dropout=0.3).parse("model=gated_transformer,gates=4")
    assert (type(chosen), chosen.gates, chosen.dropout) == (type(hparams), 4, 0.3)
    back = chosen.override(model="transformer")
    assert type(back) is HParams and back.dropout == 0.3
    assert hparams.difference(HParams())["gates"] == (2, None)


def test_mistakes(usr_dir):
    with pytest.raises(UserError, match="mean 'gated_transformer'"):
        HParams().parse("model=gatd_transformer")
    with pytest.raises(UserError, match="there is no 'gates'"):
        HParams().parse("gates=2")
    with pytest.raises(UserError, match="takes HParams, not GatedHParams; set model"):
        build_model(type(registry.hparams("gated_tiny"))(), 9)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_replaced_part_is_used_everywhere(usr_dir, dtype):
    hparams = registry.hparams("gated_tiny").override(compute_dtype=dtype)
    model = randomise(build_model(hparams, 17))
    assert len([w for w in model.weights if "/gate_1/" in w.path]) == 4
    ids = np.random.default_rng(0).integers(1, 17, (2, 3, 6)).astype(np.int32)
    steps, forced = logits_both_ways(model, ids[:, 0], ids)
    tolerance = 1e-5 if dtype == "float32" else 0.1
    np.testing.assert_allclose(steps, forced, atol=tolerance)
    plain = model.with_compute_dtype("float32")
    assert type(plain) is type(model) and plain.hparams.gates == 2


def test_a_run_finds_its_model_and_says_if_it_is_gone(usr_dir, tmp_path, capfd):
    small_data(tmp_path / "data")
    models = run_json(capfd, "list", "--usr_dir", usr_dir)["models"]
    assert models["gated_transformer"].startswith("Feed-forward networks with gates")
    assert "transformer" in models
    command = f"""
        train --problem translate_text --hparams_set gated_tiny --usr_dir {usr_dir}
        --data_dir {tmp_path}/data --output_dir {tmp_path}/run --train_steps 2
        --eval_sentences 0
    """
    assert run(*command.split()) == 0
    forget()
    model = load(tmp_path / "run").model  # config.json has the --usr_dir
    assert type(model).__name__ == "GatedTransformer"
    forget()
    (usr_dir / "gated_model.py").write_text("")
    with pytest.raises(UserError, match="there is no model 'gated_transformer'; inst"):
        load(tmp_path / "run")
