"""tensor2tensor's `transformer`: its hparam sets, as functions that return them.

As in tensor2tensor, a user's function may change one and return it. The values are
those of version 1.15.7.
"""

import functools
from collections.abc import Mapping

from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.hparam import HParams as OurHParams
from t2t_keras.ranged_hparams import RangedHParams as OurRangedHParams

from ...t2t import sets
from ..layers.common_hparams import basic_params1
from ..missing import Missing, missing, missing_name
from ..ported_ranges import RangedHParams
from ..utils.hparam import HParams

# Each set has the values of another set, with these changes.
_SETS: dict[str, tuple[str, Mapping[str, object]]] = {
    "transformer_base_v1": (
        "",
        {
            "attention_dropout": 0.0,
            "attention_key_channels": 0,
            "attention_value_channels": 0,
            "attention_variables_3d": False,
            "causal_decoder_self_attention": True,
            "clip_grad_norm": 0.0,
            "ffn_layer": "dense_relu_dense",
            "filter_size": 2048,
            "hard_attention_k": 0,
            "hidden_size": 512,
            "initializer": "uniform_unit_scaling",
            "initializer_gain": 1.0,
            "learning_rate_decay_scheme": "noam",
            "learning_rate_warmup_steps": 4000,
            "max_length": 256,
            "num_decoder_layers": 0,
            "num_encoder_layers": 0,
            "num_heads": 8,
            "num_hidden_layers": 6,
            "optimizer_adam_beta1": 0.9,
            "optimizer_adam_beta2": 0.98,
            "optimizer_adam_epsilon": 1e-9,
            "pos": "timing",
            "position_features": "",
            "proximity_bias": False,
            "relu_dropout": 0.0,
            "self_attention_type": "dot_product",
            "shared_embedding_and_softmax_weights": True,
            "symbol_modality_num_shards": 16,
            "unidirectional_encoder": False,
            "use_pad_remover": True,
            "use_target_space_embedding": True,
            "weight_decay": 0.0,
        },
    ),
    "transformer_base_v2": (
        "transformer_base_v1",
        {
            "attention_dropout": 0.1,
            "layer_postprocess_sequence": "da",
            "layer_preprocess_sequence": "n",
            "learning_rate": 0.2,
            "learning_rate_warmup_steps": 8000,
            "relu_dropout": 0.1,
        },
    ),
    "transformer_base_v3": (
        "transformer_base_v2",
        {
            "learning_rate_constant": 2.0,
            "learning_rate_schedule": (
                "constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size"
            ),
            "optimizer_adam_beta2": 0.997,
        },
    ),
    "transformer_base": ("transformer_base_v3", {}),
    "transformer_base_single_gpu": (
        "transformer_base",
        {
            "batch_size": 1024,
            "learning_rate_constant": 0.1,
            "learning_rate_schedule": "constant*linear_warmup*rsqrt_decay",
            "learning_rate_warmup_steps": 16_000,
        },
    ),
    "transformer_big": (
        "transformer_base",
        {
            "batch_size": 2048,
            "filter_size": 4096,
            "hidden_size": 1024,
            "layer_prepostprocess_dropout": 0.3,
            "num_heads": 16,
        },
    ),
    "transformer_big_single_gpu": (
        "transformer_big",
        {"layer_prepostprocess_dropout": 0.1, "learning_rate_warmup_steps": 16_000},
    ),
    "transformer_big_dr1": (
        "transformer_base",
        {"filter_size": 4096, "hidden_size": 1024, "num_heads": 16},
    ),
    "transformer_big_dr2": (
        "transformer_big_dr1",
        {"layer_prepostprocess_dropout": 0.2},
    ),
    "transformer_big_enfr": (
        "transformer_big_dr1",
        {"filter_size": 8192, "shared_embedding_and_softmax_weights": False},
    ),
    "transformer_parsing_base": (
        "transformer_base",
        {
            "attention_dropout": 0.2,
            "hidden_size": 1024,
            "layer_prepostprocess_dropout": 0.2,
            "learning_rate_warmup_steps": 16_000,
            "max_length": 512,
            "shared_embedding_and_softmax_weights": False,
        },
    ),
    "transformer_parsing_big": (
        "transformer_big",
        {
            "layer_prepostprocess_dropout": 0.1,
            "learning_rate_warmup_steps": 4000,
            "max_length": 512,
        },
    ),
    "transformer_small": (
        "transformer_base",
        {
            "filter_size": 1024,
            "hidden_size": 256,
            "num_heads": 4,
            "num_hidden_layers": 2,
        },
    ),
    "transformer_tiny": ("transformer_small", {"filter_size": 512, "hidden_size": 128}),
    "transformer_test": (
        "transformer_small",
        {"filter_size": 8, "hidden_size": 16, "num_heads": 2},
    ),
    "transformer_l2": ("transformer_base", {"num_hidden_layers": 2}),
    "transformer_l4": ("transformer_base", {"num_hidden_layers": 4}),
    "transformer_l8": ("transformer_base", {"num_hidden_layers": 8}),
    "transformer_l10": ("transformer_base", {"num_hidden_layers": 10}),
    "transformer_h1": ("transformer_base", {"num_heads": 1}),
    "transformer_h4": ("transformer_base", {"num_heads": 4}),
    "transformer_h16": ("transformer_base", {"num_heads": 16}),
    "transformer_h32": ("transformer_base", {"num_heads": 32}),
    "transformer_k128": ("transformer_base", {"attention_key_channels": 128}),
    "transformer_k256": ("transformer_base", {"attention_key_channels": 256}),
    "transformer_ff1024": ("transformer_base", {"filter_size": 1024}),
    "transformer_ff4096": ("transformer_base", {"filter_size": 4096}),
    "transformer_dr0": ("transformer_base", {"layer_prepostprocess_dropout": 0.0}),
    "transformer_dr2": ("transformer_base", {"layer_prepostprocess_dropout": 0.2}),
    "transformer_ls0": ("transformer_base", {"label_smoothing": 0.0}),
    "transformer_ls2": ("transformer_base", {"label_smoothing": 0.2}),
    "transformer_hs256": ("transformer_base", {"hidden_size": 256}),
    "transformer_hs1024": ("transformer_base", {"hidden_size": 1024}),
}
SETS = frozenset(_SETS)

# This is tensor2tensor's model; a user's model may derive from it.
Transformer: Missing = missing("models.transformer.Transformer")


def named_set(name: str) -> HParams:
    """Returns the values of one of tensor2tensor's sets.

    Raises:
        UserError: there is no such set here.
    """
    if name not in _SETS:
        raise UserError(
            f"tensor2tensor's hparam set '{name}' does not exist here"
            f"{did_you_mean(name, _SETS)}; begin with transformer_base"
        )
    values: dict[str, object] = {}
    base = name
    while base:
        base, changes = _SETS[base]
        values = {**changes, **values}
    return HParams(_our_set(name), **{**basic_params1().values(), **values})


def transformer_base_range(rhp: RangedHParams) -> None:
    """Sets tensor2tensor's ranges around `transformer_base`; a user's may follow."""
    ours = OurRangedHParams()
    sets.transformer_base_range(ours)
    rhp.ranges |= ours.ranges


def _our_set(name: str) -> OurHParams:
    """Returns our set of the name, or of the nearest set that it changes."""
    while not hasattr(sets, name):
        name = _SETS[name][0]
    return getattr(sets, name)()


def __getattr__(name: str) -> object:
    # An unknown set is only refused when it is used.
    is_set = name.startswith("transformer_") and not name.endswith("_layer")
    if name in _SETS or is_set:
        return functools.partial(named_set, name)
    return missing_name(__name__, name)
