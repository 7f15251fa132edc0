"""tensor2tensor's hyper-parameters, which are mutable and converted to `HParams`."""

from collections.abc import Iterable, Mapping
from typing import Any

from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.hparam import HParams as OurHParams
from t2t_keras.options import split_pairs

from ...t2t.hparams import SUPPORTED_VALUES, convert_t2t_hparams
from ..notes import say_once

# tensor2tensor's Transformer has these too, but they have no effect here. Most of them
# only affect tensor2tensor's other models.
_NAMES_WITHOUT_EFFECT = """
    add_relative_to_values area_key_mode area_value_mode
    attention_dropout_broadcast_dims batch_shuffle_size bottom compress_steps
    conv_first_kernel daisy_chain_variables data_dir dropout eval_drop_long_sequences
    eval_run_autoregressive factored_logits force_full_predict
    gpu_automatic_mixed_precision grad_noise_scale gumbel_noise_weight
    heads_share_relative_embedding initializer initializer_gain kernel_height
    kernel_width layer_prepostprocess_dropout_broadcast_dims learning_rate
    learning_rate_cosine_cycle_steps learning_rate_decay_rate
    learning_rate_decay_scheme learning_rate_decay_staircase learning_rate_decay_steps
    learning_rate_minimum length_bucket_step loss max_area_height max_area_width
    max_input_seq_length max_length max_relative_position max_target_seq_length
    memory_height min_length min_length_bucket mixed_precision_optimizer_init_loss_scale
    mixed_precision_optimizer_loss_scaler mlperf_mode modality moe_hidden_sizes moe_k
    moe_loss_coef moe_num_experts moe_overhead_eval moe_overhead_train
    multiproblem_fixed_train_length multiproblem_label_weight
    multiproblem_max_input_length multiproblem_max_target_length
    multiproblem_mixing_schedule multiproblem_per_task_threshold
    multiproblem_reweight_label_loss multiproblem_schedule_max_examples
    multiproblem_schedule_threshold multiproblem_target_eval_only
    multiproblem_vocab_size name nbr_decoder_problems no_data_parallelism
    num_sampled_classes optimizer_adafactor_beta1 optimizer_adafactor_beta2
    optimizer_adafactor_clipping_threshold optimizer_adafactor_decay_type
    optimizer_adafactor_factored optimizer_adafactor_memory_exponent
    optimizer_adafactor_multiply_by_parameter_scale optimizer_momentum_momentum
    optimizer_momentum_nesterov optimizer_multistep_accumulate_steps
    optimizer_zero_grads overload_eval_metric_name pack_dataset pad_batch
    parameter_attention_key_channels parameter_attention_value_channels
    pretrained_model_dir relu_dropout_broadcast_dims sampling_keep_top_k
    sampling_method sampling_temp scheduled_sampling_gold_mixin_prob
    scheduled_sampling_method scheduled_sampling_num_passes scheduled_sampling_prob
    scheduled_sampling_warmup_schedule scheduled_sampling_warmup_steps
    shared_source_target_embedding split_targets_chunk_length
    split_targets_max_chunks split_targets_strided_training split_to_length
    summarize_grads summarize_vars symbol_dropout symbol_modality_num_shards top
    tpu_enable_host_call use_custom_ops use_pad_remover video_num_input_frames
    video_num_target_frames warm_start_from_second weight_dtype weight_noise weights_fn
"""
WITHOUT_EFFECT = frozenset(_NAMES_WITHOUT_EFFECT.split())
# These sentences say why, or what to use instead.
REASONS = {
    "max_length": "use `t2t datagen --max_length`",
    "learning_rate": "the learning_rate_schedule reads learning_rate_constant",
    "dropout": "tensor2tensor's Transformer reads layer_prepostprocess_dropout",
    "shared_source_target_embedding": "tensor2tensor does not read it either",
    "optimizer_multistep_accumulate_steps": "use batch_tokens, which is accumulated",
}
# `convert_t2t_hparams` reads these.
_NAMES_WITH_EFFECT = """
    activation_dtype attention_dropout attention_key_channels attention_value_channels
    batch_size clip_grad_norm filter_size hidden_size label_smoothing
    layer_postprocess_sequence layer_preprocess_sequence layer_prepostprocess_dropout
    learning_rate_constant learning_rate_schedule learning_rate_warmup_steps
    norm_epsilon num_decoder_layers num_encoder_layers num_heads num_hidden_layers
    optimizer optimizer_adam_beta1 optimizer_adam_beta2 optimizer_adam_epsilon
    relu_dropout shared_embedding shared_embedding_and_softmax_weights
    use_fixed_batch_size use_target_space_embedding vocab_divisor weight_decay
"""
NAMES = (
    WITHOUT_EFFECT | frozenset(_NAMES_WITH_EFFECT.split()) | frozenset(SUPPORTED_VALUES)
)


class _AbsentHparamError(UserError, AttributeError):
    """What `hasattr` and `getattr` with a default also take for an absence."""


class HParams:
    """tensor2tensor's hyper-parameters by its names; they can be assigned.

    Args:
        start: our set of the same name, whose `batch_tokens` and `train_steps` are
            used; None: the defaults are used.
        **values: the values.
    """

    def __init__(self, start: OurHParams | None = None, **values: object) -> None:
        self.__dict__["_start"] = start
        self.__dict__["_values"] = dict(values)
        self.__dict__["_assigned"] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in self._values:
            return self._values[name]
        raise _AbsentHparamError(absence(name, self._values))

    def __setattr__(self, name: str, value: object) -> None:
        self.set_hparam(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __repr__(self) -> str:
        return f"HParams({self._values})"

    def get(self, name: str, default: object = None) -> object:
        """Returns a value, or the default if there is no such hyper-parameter."""
        return self._values.get(name, default)

    def values(self) -> dict[str, object]:
        """Returns all values by name."""
        return dict(self._values)

    def set_hparam(self, name: str, value: object) -> None:
        """Changes a hyper-parameter.

        Raises:
            UserError: tensor2tensor's Transformer has no such hyper-parameter.
        """
        if name not in NAMES:
            raise UserError(absence(name, NAMES))
        self._values[name] = value
        self._assigned[name] = value

    def add_hparam(self, name: str, value: object) -> None:
        """Adds a hyper-parameter of tensor2tensor's Transformer that the set lacks.

        Raises:
            UserError: the model has no such hyper-parameter, or the set has it.
        """
        if name in self._values and name in NAMES:
            raise UserError(
                f"add_hparam: '{name}' exists already; write hparams.{name} = ..."
            )
        if name not in NAMES:
            raise UserError(f"add_hparam: {absence(name, NAMES)}")
        self.set_hparam(name, value)

    def del_hparam(self, name: str) -> None:
        """Removes a hyper-parameter."""
        self._values.pop(name, None)
        self._assigned.pop(name, None)

    def override_from_dict(self, values: Mapping[str, object]) -> "HParams":
        """Changes several hyper-parameters, and returns the set."""
        for name, value in values.items():
            self.set_hparam(name, value)
        return self

    def parse(self, text: str) -> "HParams":
        """Changes the hyper-parameters in `"hidden_size=256,dropout=0.1"`."""
        for name, value in split_pairs(text).items():
            self.set_hparam(name, _parse_value(value))
        return self

    def converted(self, name: str) -> OurHParams:
        """Returns our hyper-parameters for the same model and training.

        Prints a remark on each value that has no effect here.

        Args:
            name: the name of the set, for remarks.

        Raises:
            UserError: the model does not exist here; the message names the field.
        """
        if self._values.get("shared_embedding"):
            raise UserError(
                f"hparams '{name}': shared_embedding, which leaves the softmax its own "
                "matrix, does not exist here; set shared_embedding_and_softmax_weights"
            )
        hparams, left_out = convert_t2t_hparams(self._values, f"hparams '{name}'")
        changes: dict[str, object] = {}
        start = self._start
        if start is not None:
            changes["train_steps"] = start.train_steps
            changes["bucketing"] = start.bucketing
            counts_tokens = not self._values.get("use_fixed_batch_size")
            if "batch_size" not in self._assigned and counts_tokens:
                changes["batch_tokens"] = start.batch_tokens
                left_out = [text for text in left_out if "batch_size" not in text]
        if self._values.get("activation_dtype", "float32") != "float32":
            changes["compute_dtype"] = self._values["activation_dtype"]
        for text in (*left_out, *self._without_effect()):
            say_once(f"hparams '{name}': {text}")
        return hparams.override(**changes)

    def _without_effect(self) -> Iterable[str]:
        """Yields a sentence about each assigned value that has no effect."""
        for name in self._assigned:
            legacy = self._values.get("learning_rate_schedule") == "legacy"
            if legacy and name in ("learning_rate", "learning_rate_decay_scheme"):
                continue
            if name in WITHOUT_EFFECT:
                reason = REASONS.get(name)
                yield f"{name} has no effect{f': {reason}' if reason else ''}"


def absence(name: str, names: Iterable[str]) -> str:
    """Returns a sentence about an unknown hyper-parameter."""
    return (
        f"'{name}' is not a hyper-parameter of tensor2tensor's Transformer"
        f"{did_you_mean(name, names)}; leave it out"
    )


def _parse_value(text: str) -> int | float | bool | str:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            pass
    return text
