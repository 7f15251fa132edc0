"""Models and numbers of tensor2tensor 1.15.7, for the tests that compare with it."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from reference import reference

from t2t_keras.interop.t2t_checkpoint import build, load_t2t
from t2t_keras.runs.checkpoint import write_checkpoint

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
    "attention_dropout": 0.1,
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "clip_grad_norm": 0.0,
    "ffn_layer": "dense_relu_dense",
    "filter_size": 2048,
    "hidden_size": 512,
    "label_smoothing": 0.1,
    "layer_postprocess_sequence": "da",
    "layer_preprocess_sequence": "n",
    "layer_prepostprocess_dropout": 0.1,
    "learning_rate_constant": 2.0,
    "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size",
    "learning_rate_warmup_steps": 8000,
    "num_decoder_layers": 0,
    "num_encoder_layers": 0,
    "num_heads": 8,
    "num_hidden_layers": 6,
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.997,
    "optimizer_adam_epsilon": 1e-9,
    "pos": "timing",
    "relu_dropout": 0.1,
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
    return build(*load_t2t(checkpoint, hparams_json(config, directory), TARGET_SPACE))


def official_model():
    """Imports the released test checkpoint."""
    path = reference(OFFICIAL)
    return build(*load_t2t(path, path / "hparams.json"))


def arrays(name: str, prefix: str = "") -> dict[str, np.ndarray]:
    """Loads an .npz file: the arrays whose names have the prefix, without it."""
    with np.load(reference(name)) as file:
        return {
            key.removeprefix(prefix): file[key]
            for key in file.files
            if key.startswith(prefix)
        }


def t2t_checkpoint(directory: Path, variables: dict[str, np.ndarray]) -> Path:
    """Writes variables under tensor2tensor's names as a checkpoint."""
    path = directory / "model.ckpt-7"
    step = {"global_step": np.int64(7)}
    write_checkpoint(path, {k: tf.constant(v) for k, v in (step | variables).items()})
    return path


def join_shards(variables: dict[str, np.ndarray]) -> np.ndarray:
    """Returns the shared embedding matrix of 16 shards."""
    scope = "transformer/symbol_modality_50_64/shared/weights"
    return np.concatenate([variables[f"{scope}_{i}"] for i in range(16)])
