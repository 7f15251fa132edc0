"""tensor2tensor's `common_hparams`: the values that its sets start from, and ranges."""

from typing import Any

from ..missing import missing_name
from ..ported_ranges import RangedHParams
from ..utils.hparam import HParams

__all__ = ["RangedHParams", "basic_params1"]

_BASIC: dict[str, Any] = {
    "activation_dtype": "float32",
    "batch_size": 4096,
    "clip_grad_norm": 2.0,
    "dropout": 0.2,
    "hidden_size": 64,
    "initializer": "orthogonal",
    "initializer_gain": 1.5,
    "label_smoothing": 0.1,
    "layer_postprocess_sequence": "dan",
    "layer_prepostprocess_dropout": 0.1,
    "layer_preprocess_sequence": "none",
    "learning_rate": 0.1,
    "learning_rate_constant": 1.0,
    "learning_rate_decay_scheme": "none",
    "learning_rate_schedule": "legacy",
    "learning_rate_warmup_steps": 100,
    "max_input_seq_length": 0,
    "max_length": 0,
    "max_relative_position": 0,
    "max_target_seq_length": 0,
    "min_length": 0,
    "multiply_embedding_mode": "sqrt_depth",
    "norm_epsilon": 1e-6,
    "norm_type": "layer",
    "num_area_layers": 0,
    "num_hidden_layers": 4,
    "optimizer": "adam",
    "optimizer_adam_beta1": 0.85,
    "optimizer_adam_beta2": 0.997,
    "optimizer_adam_epsilon": 1e-6,
    "prepend_mode": "none",
    "sampling_method": "argmax",
    "shared_embedding": False,
    "shared_embedding_and_softmax_weights": False,
    "split_to_length": 0,
    "symbol_dropout": 0.0,
    "symbol_modality_num_shards": 1,
    "use_fixed_batch_size": False,
    "vocab_divisor": 1,
    "weight_decay": 1e-6,
    "weight_noise": 0.0,
}


def basic_params1() -> HParams:
    """Returns the values that all of tensor2tensor's models share."""
    return HParams(**_BASIC)


def __getattr__(name: str) -> object:
    return missing_name(__name__, name)
