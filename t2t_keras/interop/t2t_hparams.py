"""Converts tensor2tensor's hparams.json to `HParams`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.hparam import SCHEDULE_FACTORS, HParams

# With other values than these, tensor2tensor's model differs from `Transformer`; 0 and
# "" mean "off". Files of older versions lack some fields, whose values were these.
_MUST_BE = {
    "attention_variables_3d": False,
    "causal_decoder_self_attention": True,
    "ffn_layer": "dense_relu_dense",
    "hard_attention_k": 0,
    "multiply_embedding_mode": "sqrt_depth",
    "norm_epsilon": 1e-6,
    "norm_type": "layer",
    "num_area_layers": 0,
    "pos": "timing",
    "position_features": "",
    "prepend_mode": "none",
    "proximity_bias": False,
    "self_attention_type": "dot_product",
    "unidirectional_encoder": False,
}

# (layer_preprocess_sequence, layer_postprocess_sequence): n is the layer norm, d is
# dropout, a adds the residual.
_NORMS = {("n", "da"): "pre", ("none", "dan"): "post"}


def load_t2t_hparams(path: str | Path) -> HParams:
    """Reads the hparams.json of a tensor2tensor Transformer.

    `share_embeddings` is `shared_embedding_and_softmax_weights`. A schedule with a
    factor that is not one of `SCHEDULE_FACTORS` is ignored.

    Raises:
        UserError: there is no such file, or it describes a model that `Transformer`
            cannot represent; the message names the field.
    """
    path = Path(path)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(values, dict) or "num_hidden_layers" not in values:
        raise UserError(
            f"{path} is not the hparams.json of a tensor2tensor Transformer: "
            "it has no 'num_hidden_layers'"
        )
    for name, expected in _MUST_BE.items():
        if values.get(name, expected) != expected:
            raise UserError(
                f"{path}: cannot read a model with {name} {values[name]!r}, only with "
                f"{expected!r}"
            )
    try:
        return _convert(values)
    except KeyError as error:
        raise UserError(f"{path} has no {error}") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _convert(values: Mapping[str, Any]) -> HParams:
    """Returns the hparams of the same model."""
    sequences = tuple(
        values[f"layer_{name}_sequence"] for name in ("preprocess", "postprocess")
    )
    if sequences not in _NORMS:
        raise UserError(
            "cannot read a model with layer_preprocess_sequence '{}' and "
            "layer_postprocess_sequence '{}', only with 'n' and 'da' or with 'none' "
            "and 'dan'".format(*sequences)
        )
    d_model, heads = values["hidden_size"], values["num_heads"]
    return HParams().override(
        num_layers=_num_layers(values),
        d_model=d_model,
        d_ff=values["filter_size"],
        num_heads=heads,
        d_k=_head_size(values, "attention_key_channels"),
        d_v=_head_size(values, "attention_value_channels"),
        norm=_NORMS[sequences],
        share_embeddings=values["shared_embedding_and_softmax_weights"],
        position="t2t",
        dropout=values["layer_prepostprocess_dropout"],
        attention_dropout=values["attention_dropout"],
        ffn_dropout=values["relu_dropout"],
        label_smoothing=values["label_smoothing"],
        **_schedule(values),
        warmup_steps=values["learning_rate_warmup_steps"],
        adam_beta1=values["optimizer_adam_beta1"],
        adam_beta2=values["optimizer_adam_beta2"],
        adam_epsilon=values["optimizer_adam_epsilon"],
        clip_norm=values["clip_grad_norm"],
    )


def _num_layers(values: Mapping[str, Any]) -> int:
    """Returns the number of layers in both stacks; 0 means `num_hidden_layers`."""
    encoder, decoder = (
        values.get(f"num_{stack}_layers") or values["num_hidden_layers"]
        for stack in ("encoder", "decoder")
    )
    if encoder != decoder:
        raise UserError(
            f"cannot read a model with {encoder} encoder layers and {decoder} decoder "
            "layers; the numbers must be equal"
        )
    return encoder


def _head_size(values: Mapping[str, Any], name: str) -> int:
    """Returns the size of one head; tensor2tensor has the sum of all, or 0 for D."""
    channels, heads = values.get(name, 0), values["num_heads"]
    if channels % heads:
        raise UserError(f"{name} {channels} is not divisible by num_heads {heads}")
    return channels // heads


def _schedule(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns `learning_rate` and `schedule`; {} for an unknown schedule."""
    schedule = values.get("learning_rate_schedule", "legacy")
    if schedule == "legacy" and values["learning_rate_decay_scheme"] == "noam":
        return {"learning_rate": 5000 * 0.002 * values["learning_rate"]}
    factors = schedule.split("*")
    if not set(factors) <= set(SCHEDULE_FACTORS):
        return {}
    constant = values["learning_rate_constant"] ** factors.count("constant")
    return {"learning_rate": constant, "schedule": schedule}
