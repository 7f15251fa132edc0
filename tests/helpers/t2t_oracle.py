"""Models and numbers of tensor2tensor 1.15.7, and files such as it writes."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from helpers.reference import reference

from t2t_keras.plugins.interop.t2t.checkpoint import T2TModel, build, load_t2t
from t2t_keras.run.checkpoint import write_checkpoint

MODELS = "t2t/oracle/model"
OFFICIAL = "t2t/transformer_test_ckpt"  # released by its authors
CONFIGS = ("prenorm_shared", "postnorm_shared")
STATES = ("random", "trained")
TARGET_SPACE = 1  # of the models under MODELS

# The three embeddings in our checkpoints.
TABLES = [
    f"model/{role}/table"
    for role in ("source_embedding", "target_embedding", "softmax")
]
# The fields of an hparams.json that say what a model is, as of `transformer_base`.
HPARAMS = {
    **{"attention_dropout": 0.1, "relu_dropout": 0.1, "label_smoothing": 0.1},
    **{"layer_prepostprocess_dropout": 0.1, "layer_preprocess_sequence": "n"},
    **{"attention_key_channels": 0, "attention_value_channels": 0, "num_heads": 8},
    **{"filter_size": 2048, "hidden_size": 512, "ffn_layer": "dense_relu_dense"},
    **{"layer_postprocess_sequence": "da", "pos": "timing"},
    "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
    **{"learning_rate_constant": 2.0, "learning_rate_warmup_steps": 8000},
    **{"num_decoder_layers": 0, "num_encoder_layers": 0, "num_hidden_layers": 6},
    **{"optimizer_adam_beta1": 0.9, "optimizer_adam_beta2": 0.997},
    **{"optimizer_adam_epsilon": 1e-9, "clip_grad_norm": 0.0},
    "shared_embedding_and_softmax_weights": True,
}

every_model = pytest.mark.parametrize(
    ("config", "state"), [(config, state) for config in CONFIGS for state in STATES]
)


def write_hparams(directory: Path, **changes) -> Path:
    """Writes an hparams.json: `HPARAMS` with changes."""
    path = directory / "hparams.json"
    path.write_text(json.dumps(HPARAMS | changes))
    return path


def hparams_json(config: str, directory: Path) -> Path:
    """Writes the hparams.json of a configuration."""
    meta = json.loads(reference(f"{MODELS}/{config}/meta.json").read_text())
    return write_hparams(directory, **meta["hparams"])


def oracle_model(config: str, state: str, directory: Path):
    """Imports one of the four models."""
    checkpoint = reference(f"{MODELS}/{config}/{state}")
    space = None if state == "trained" else TARGET_SPACE  # training tells which
    return built(load_t2t(checkpoint, hparams_json(config, directory), space))


def official_model():
    """Imports the released test checkpoint, whose oracle has the target space 0."""
    path = reference(OFFICIAL)
    return built(load_t2t(path, path / "hparams.json", 0))


def built(model: T2TModel):
    """Returns the Keras model."""
    return build(model.hparams, model.weights)


def arrays(name: str, prefix: str = "") -> dict[str, np.ndarray]:
    """Loads an .npz file: the arrays whose names have the prefix, without it."""
    with np.load(reference(name)) as file:
        return {
            key.removeprefix(prefix): file[key]
            for key in file.files
            if key.startswith(prefix)
        }


def t2t_checkpoint(directory: Path, variables, global_step: int = 7) -> Path:
    """Writes variables under tensor2tensor's names as a checkpoint."""
    path = directory / f"model.ckpt-{global_step}"
    step = {"global_step": np.int64(global_step)}
    write_checkpoint(path, {k: tf.constant(v) for k, v in (step | variables).items()})
    return path


# The hyper-parameters of `synthetic`.
SMALL = {"num_hidden_layers": 1, "hidden_size": 8, "filter_size": 12, "num_heads": 2}
SMALL |= {"attention_key_channels": 4, "attention_value_channels": 6}


def synthetic(layers=1):
    """Variables of a pre-norm model of `SMALL`, without embeddings: name -> array."""
    rng = np.random.default_rng(0)
    d, f, keys, values = 8, 12, 4, 6
    shapes = {}
    for stack, attentions in (
        ("encoder", ["self_attention"]),
        ("decoder", ["self_attention", "encdec_attention"]),
    ):
        for layer in [f"{stack}/layer_{i}" for i in range(layers)]:
            for name in attentions:
                kernels = f"{layer}/{name}/multihead_attention"
                shapes |= {f"{kernels}/{n}/kernel": (d, keys) for n in "qk"}
                shapes[f"{kernels}/v/kernel"] = (d, values)
                shapes[f"{kernels}/output_transform/kernel"] = (values, d)
            ffn = {"conv1/kernel": (d, f), "conv2/kernel": (f, d)}
            ffn |= {"conv1/bias": (f,), "conv2/bias": (d,)}
            shapes |= {f"{layer}/ffn/{k}": shape for k, shape in ffn.items()}
            for name in (*attentions, "ffn"):
                for part in ("scale", "bias"):
                    scope = f"{layer}/{name}/layer_prepostprocess/layer_norm"
                    shapes[f"{scope}/layer_norm_{part}"] = (d,)
        for part in ("scale", "bias"):
            scope = f"{stack}/layer_prepostprocess/layer_norm/layer_norm_{part}"
            shapes[scope] = (d,)
    return {
        f"transformer/body/{name}": rng.normal(size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def matrix(role, vocab, shards=1):
    """An embedding matrix in tensor2tensor's shards, and whole."""
    d = 8
    rng = np.random.default_rng(vocab)
    table = rng.normal(size=(vocab, d)).astype(np.float32)
    sizes = [vocab // shards + (i < vocab % shards) for i in range(shards)]
    parts = np.split(table, np.cumsum(sizes)[:-1])
    scope = f"transformer/symbol_modality_{vocab}_{d}/{role}"
    return {f"{scope}/weights_{i}": part for i, part in enumerate(parts)}, table
