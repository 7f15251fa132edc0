"""Converts tensor2tensor's hparams.json to `HParams`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.hparam import SCHEDULE_FACTORS, HParams
from t2t_keras.registry import snake_case

from ..extended_transformer import ExtendedHParams
from ..given_settings import read_json_object, require_setting
from .names import ALIASES, SUPPORTED_VALUES

# The keys are layer_preprocess_sequence and layer_postprocess_sequence: n is the layer
# norm, d is dropout, a adds the residual.
_NORMS = {("n", "da"): "pre", ("none", "dan"): "post"}

# Old files may lack these fields, or they are converted together with others.
_CONVERTED_SEPARATELY = {
    *("num_hidden_layers", "learning_rate_constant", "learning_rate_schedule"),
    *("shared_embedding_and_softmax_weights", "use_target_space_embedding"),
}

# Our names of tensor2tensor's optimizers. Its "adam" is LazyAdam, which makes the
# gradients of embeddings dense and so updates them like Adam.
_OPTIMIZERS = {"adam": "adam", "true_adam": "adam", "adafactor": "adafactor"}


def load_t2t_hparams(path: str | Path) -> tuple[ExtendedHParams, list[str]]:
    """Reads the hparams.json of a tensor2tensor Transformer.

    `share_embeddings` is `shared_embedding_and_softmax_weights`, and `target_space` is
    `use_target_space_embedding`; `load_t2t` sets both by the checkpoint.

    Returns:
        The hyper-parameters, and a sentence about each setting of training that is not
        converted. The model does not depend on these settings.

    Raises:
        UserError: there is no such file, or `Transformer` cannot represent the model;
            the message names the field.
    """
    path = Path(path)
    values = read_json_object(path)
    if "num_hidden_layers" not in values:
        raise UserError(
            f"{path} is not the hparams.json of a tensor2tensor Transformer: "
            "it has no 'num_hidden_layers'"
        )
    return convert_t2t_hparams(values, str(path))


def convert_t2t_hparams(
    values: Mapping[str, object], origin: str
) -> tuple[ExtendedHParams, list[str]]:
    """Converts the hyper-parameters of a tensor2tensor Transformer.

    Args:
        values: the values by tensor2tensor's names.
        origin: the file or set that the values come from, for messages.

    Returns:
        See `load_t2t_hparams`.

    Raises:
        UserError: see `load_t2t_hparams`.
    """
    for name, expected in SUPPORTED_VALUES.items():
        require_setting(values, origin, name, expected)
    try:
        return _convert(values)
    except KeyError as error:
        raise UserError(f"{origin} has no {error}") from None
    except UserError as error:
        raise UserError(f"{origin}: {error}") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise UserError(
            f"{origin}: a field does not have a value as tensor2tensor writes it: "
            f"{error}"
        ) from None


def _convert(values: Mapping[str, Any]) -> tuple[ExtendedHParams, list[str]]:
    if values.get("vocab_divisor", 1) != 1:
        raise UserError(
            f"cannot read a model with vocab_divisor {values['vocab_divisor']}: its "
            "embeddings have more rows than there are tokens, so it may predict tokens "
            "that do not exist"
        )
    norm = _norm(values)
    schedule, left_out = _schedule(values)
    optimizer = snake_case(values.get("optimizer", "adam"))
    if optimizer not in _OPTIMIZERS:
        left_out.append(f"the optimizer is '{optimizer}'; 'adam' replaces it")
    batching = _batching(values, left_out)
    if values.get("weight_decay"):
        left_out.append(f"weight_decay {values['weight_decay']} is left out")
    same_values = {}
    for t2t_name, name in ALIASES.items():
        if t2t_name not in _CONVERTED_SEPARATELY:
            same_values[name] = values[t2t_name]
    hparams = ExtendedHParams.from_hparams(
        HParams(),
        **_depths(values),
        **same_values,
        num_heads=values["num_heads"],
        d_k=_head_size(values, "attention_key_channels"),
        d_v=_head_size(values, "attention_value_channels"),
        norm=norm,
        norm_epsilon=values.get("norm_epsilon", 1e-6),
        share_embeddings=values.get("shared_embedding_and_softmax_weights", False),
        target_space=values.get("use_target_space_embedding", True),
        position="t2t",
        attention_dropout=values["attention_dropout"],
        label_smoothing=values["label_smoothing"],
        **schedule,
        optimizer=_OPTIMIZERS.get(optimizer, "adam"),
        **batching,
    )
    return hparams, left_out


def _norm(values: Mapping[str, Any]) -> str:
    """Returns `norm`; raises UserError if there is no such norm here."""
    sequences = (
        values["layer_preprocess_sequence"],
        values["layer_postprocess_sequence"],
    )
    if sequences not in _NORMS:
        raise UserError(
            "cannot read a model with layer_preprocess_sequence '{}' and "
            "layer_postprocess_sequence '{}', only with 'n' and 'da' or with 'none' "
            "and 'dan'".format(*sequences)
        )
    return _NORMS[sequences]


def _batching(values: Mapping[str, Any], left_out: list[str]) -> dict[str, Any]:
    """Returns `batch_tokens` and `bucketing`; adds a sentence to `left_out`."""
    if values.get("use_fixed_batch_size"):
        left_out.append("batch_size, which counts sentences (use_fixed_batch_size)")
        return {}
    size = values.get("batch_size")
    if not size:
        return {}
    left_out.append(
        f"batch_size {size} counted tokens on each GPU; batch_tokens counts those on "
        "all GPUs"
    )
    return {"batch_tokens": size, "bucketing": "t2t"}


def _depths(values: Mapping[str, Any]) -> dict[str, int]:
    """Returns the numbers of layers; tensor2tensor's 0 means `num_hidden_layers`."""
    encoder_layers = values.get("num_encoder_layers") or values["num_hidden_layers"]
    decoder_layers = values.get("num_decoder_layers") or values["num_hidden_layers"]
    depths = {"num_layers": encoder_layers}
    if decoder_layers != encoder_layers:
        depths["num_decoder_layers"] = decoder_layers
    return depths


def _head_size(values: Mapping[str, Any], name: str) -> int:
    """Returns the size of one head; tensor2tensor has that of all heads, or 0 for D."""
    channels = values.get(name, 0)
    num_heads = values["num_heads"]
    if channels % num_heads:
        raise UserError(f"{name} {channels} is not divisible by num_heads {num_heads}")
    return channels // num_heads


def _schedule(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns `learning_rate` and `schedule`, or a sentence about an unknown one."""
    schedule = values.get("learning_rate_schedule", "legacy")
    if schedule == "legacy" and values["learning_rate_decay_scheme"] == "noam":
        # tensor2tensor's legacy_learning_rate_schedule has these factors.
        factor = 0.002 if "adam" in values.get("optimizer", "adam").lower() else 1.0
        return {"learning_rate": 5000 * factor * values["learning_rate"]}, []
    factors = schedule.split("*")
    if not set(factors) <= set(SCHEDULE_FACTORS):
        remark = f"the learning_rate_schedule is '{schedule}'"
        return {}, [f"{remark}; the paper's replaces it"]
    constant = values["learning_rate_constant"] ** factors.count("constant")
    return {"learning_rate": constant, "schedule": schedule}, []
