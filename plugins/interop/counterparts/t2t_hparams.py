"""tensor2tensor's hyper-parameters of the Transformer and of decoding (1.15.7)."""

from ..extended_hparams import T2T_NAMES
from .table import Table

_TEXT_ONLY = "leave it out: there are no images, videos or sounds"
_NOT_HERE = "leave it out: the model does not have it"
_ONE_PROBLEM = "leave it out: a model is trained on one problem, which may be a mixture"
_MANY_LABELS = "leave it out: the model's outputs are the tokens of its vocabulary"
_FIXED = "leave it out: the paper's initialization is used"
_ADAFACTOR = "leave it out: `optimizer=adafactor` has tensor2tensor's defaults"
_COMPUTED = "leave it out: it does not change the model"
_SCHEDULE = (
    "use `schedule`, a product of constant, linear_warmup, rsqrt_decay, "
    "rsqrt_normalized_decay, rsqrt_hidden_size and registered ones"
)
_DROPOUTS = "leave it out: dropout masks are drawn for every position"
_SAMPLING = "leave it out: the decoder reads the references in training"

_HPARAMS = Table(
    toolkit="tensor2tensor",
    command="tensor2tensor",
    noun="hyper-parameter",
    contexts=("hparams",),
    rows={
        **{name: f"the same as `{ours}`" for name, ours in T2T_NAMES.items()},
        # Names that are also ours.
        "num_heads attention_dropout label_smoothing norm_epsilon num_decoder_layers": (
            "the same"
        ),
        "dropout": "the same name for layer_prepostprocess_dropout",
        "learning_rate": "the same name for learning_rate_constant",
        "optimizer": "the same, for adam, adamw or adafactor",
        "weight_decay": "the same name for AdamW's",
        # The model.
        "num_encoder_layers": "use `num_layers`",
        "attention_key_channels": "use `d_k`, the size of one head",
        "attention_value_channels": "use `d_v`, the size of one head",
        "layer_preprocess_sequence": "use `norm=pre` for n, `norm=post` for none",
        "layer_postprocess_sequence": "use `norm=pre` for da, `norm=post` for dan",
        "pos": "use `position=learned` for emb; extended_transformer has "
        "`position=t2t` for timing",
        "norm_type=layer ffn_layer=dense_relu_dense": "leave it out: the model has it",
        "self_attention_type=dot_product": "leave it out: the model has it",
        "self_attention_type": "use `attention` or `attention_window`; there is no "
        "relative attention",
        "max_relative_position heads_share_relative_embedding add_relative_to_values": (
            "leave it out: there are no relative positions"
        ),
        "norm_type": "leave it out: the model has layer normalization",
        "ffn_layer": "leave it out: the model has two dense layers; "
        "extended_transformer has `activation`",
        "shared_embedding": "use `share_embeddings`, which also shares the softmax's "
        "matrix",
        "shared_source_target_embedding": "leave it out: tensor2tensor ignores it; "
        "`share_embeddings` shares all three",
        "multiply_embedding_mode": "leave it out: embeddings are multiplied by the "
        "root of `d_model`",
        "hard_attention_k gumbel_noise_weight proximity_bias unidirectional_encoder "
        "causal_decoder_self_attention attention_variables_3d position_features "
        "parameter_attention_key_channels parameter_attention_value_channels "
        "num_area_layers max_area_width max_area_height memory_height area_key_mode "
        "area_value_mode memory_type unconditional recurrent_memory_batch_size "
        "num_memory_items prepend_mode expected_attention_loss_type "
        "expected_attention_loss_multiplier factored_logits nbr_decoder_problems "
        "conv_first_kernel": _NOT_HERE,
        "moe_hidden_sizes moe_num_experts moe_k moe_loss_coef moe_overhead_train "
        "moe_overhead_eval": "leave it out: there are no mixtures of experts",
        "kernel_height kernel_width compress_steps video_num_input_frames "
        "video_num_target_frames": _TEXT_ONLY,
        "vocab_divisor": "leave it out: the vocabulary has the size that it has",
        "num_sampled_classes": _MANY_LABELS,
        "bottom top loss name weights_fn": "leave it out: the problem has one source "
        "text and one target text",
        # Regularization.
        "symbol_dropout": "use `word_dropout`, for words of the source",
        "layer_prepostprocess_dropout_broadcast_dims attention_dropout_broadcast_dims "
        "relu_dropout_broadcast_dims": _DROPOUTS,
        "weight_noise grad_noise_scale": "leave it out: there is no such noise",
        "initializer initializer_gain": _FIXED,
        # The optimizer and its schedule.
        "learning_rate_decay_scheme learning_rate_decay_steps "
        "learning_rate_decay_rate learning_rate_decay_staircase "
        "learning_rate_cosine_cycle_steps learning_rate_minimum": _SCHEDULE,
        "optimizer_multistep_accumulate_steps": "use `t2t train --accumulate N`",
        "optimizer_adafactor_beta1 optimizer_adafactor_beta2 "
        "optimizer_adafactor_factored optimizer_adafactor_decay_type "
        "optimizer_adafactor_memory_exponent "
        "optimizer_adafactor_clipping_threshold "
        "optimizer_adafactor_multiply_by_parameter_scale": _ADAFACTOR,
        "optimizer_momentum_momentum optimizer_momentum_nesterov": "leave it out: the "
        "optimizers are adam, adamw and adafactor",
        "optimizer_zero_grads": "leave it out: every weight has a gradient",
        "scheduled_sampling_prob scheduled_sampling_method "
        "scheduled_sampling_warmup_steps scheduled_sampling_gold_mixin_prob "
        "scheduled_sampling_num_passes scheduled_sampling_warmup_schedule": _SAMPLING,
        # Batches.
        "batch_size": "use `batch_tokens`, which counts the tokens of all GPUs",
        "use_fixed_batch_size": "leave it out: batches are counted in tokens",
        "max_length max_input_seq_length max_target_seq_length": "use "
        "`t2t datagen --max_length N`",
        "min_length": "leave it out: short pairs are kept",
        "eval_drop_long_sequences": "leave it out: `t2t datagen --max_length N` holds "
        "for the training split only",
        "batch_shuffle_size": "leave it out: each epoch shuffles all examples",
        "min_length_bucket length_bucket_step": "use `bucketing=t2t`",
        "pack_dataset": "use `bucketing=packed`",
        "split_to_length split_targets_chunk_length "
        "split_targets_max_chunks split_targets_strided_training": "leave it out: "
        "examples are single pairs",
        "pad_batch": "use `bucketing=packed` or `bucketing=static`",
        # Arithmetic and devices.
        "activation_dtype weight_dtype": "use `compute_dtype`; weights are float32",
        "gpu_automatic_mixed_precision": "use `compute_dtype=bfloat16`, or "
        "`compute_dtype=float16`",
        "mixed_precision_optimizer_loss_scaler "
        "mixed_precision_optimizer_init_loss_scale": "leave it out: "
        "`compute_dtype=float16` scales the loss",
        "num_shards symbol_modality_num_shards": "leave it out: matrices are not split",
        "daisy_chain_variables no_data_parallelism": "leave it out: each GPU has a "
        "copy of the model",
        "use_custom_ops use_pad_remover force_full_predict": _COMPUTED,
        "tpu_enable_host_call": "leave it out: TPUs are not supported",
        # Starting, evaluating, decoding.
        "pretrained_model_dir": "use `t2t train --init_from RUN`",
        "warm_start_from_second": "leave it out: `t2t train --init_from RUN` reads one "
        "run",
        "eval_run_autoregressive": "use `t2t train --eval_sentences N`",
        "overload_eval_metric_name": "leave it out: metrics have fixed names",
        "sampling_method": "use `t2t translate --decode_hparams sampling=true`",
        "sampling_temp": "use `t2t translate --decode_hparams temperature=X`",
        "sampling_keep_top_k": "use `t2t translate --decode_hparams top_k=N`",
        "summarize_grads summarize_vars mlperf_mode": "leave it out: it changes "
        "tensor2tensor's logs only",
        "multiproblem_schedule_threshold multiproblem_per_task_threshold "
        "multiproblem_schedule_max_examples multiproblem_mixing_schedule "
        "multiproblem_reweight_label_loss multiproblem_label_weight "
        "multiproblem_target_eval_only multiproblem_vocab_size "
        "multiproblem_max_input_length multiproblem_max_target_length "
        "multiproblem_fixed_train_length": f"{_ONE_PROBLEM} "
        "(`t2t datagen --mixture FILE`)",
    },
)

_DECODING = Table(
    toolkit="tensor2tensor",
    command="t2t-decoder's --decode_hparams",
    noun="key",
    contexts=("decode_hparams",),
    rows={
        "beam_size alpha": "the same",
        "extra_length": "the same; the default is 50, not 100",
        "batch_size": "use `batch_tokens`, which counts tokens",
        "return_beams": "use `n_best=4`, or `t2t translate --n_best N`",
        "write_beam_scores": "use `t2t translate --scores`",
        "num_decodes": "use `n_best=4` with `sampling=true`",
        "force_decode_length": "leave it out: an output ends where the model ends it; "
        "`min_length` and `extra_length` are its limits",
        "min_length_ratio": "use `min_length`, which counts tokens",
        "eos_penalty": "leave it out: tensor2tensor ignores it as well; `alpha` "
        "changes lengths",
        "max_input_size": "use `max_source_length=N,truncate=true`; by default longer "
        "inputs are split",
        "num_samples": "use `t2t evaluate --eval_sentences N`",
        "decode_to_file": "use `t2t translate --output FILE`",
        "decode_reference": "use `t2t evaluate --hypotheses FILE --references FILE`",
        "decode_timeout_mins": "use `t2t evaluate --wait_minutes M`",
        "delimiter": "leave it out: a line is a sentence",
        "decode_in_memory shards shard_id shards_start_offset shard_google_format": (
            "leave it out: files are decoded in parts by one process"
        ),
        "block_size guess_and_check_top_k guess_and_check_epsilon "
        "insertion_parallel": "leave it out: decoding adds one token at a time",
        "identity_output skip_eos_postprocess log_results summaries_log_dir "
        "export_extra_infer_outputs": "leave it out: outputs are texts",
        "multiproblem_task_id": "leave it out: a model has one problem",
        "save_images display_decoded_images frames_per_second border_percent "
        "max_display_outputs max_display_decodes vgg_ckpt_path": _TEXT_ONLY,
        "mlperf_decode_step mlperf_threshold mlperf_success": "leave it out: it "
        "changes tensor2tensor's logs only",
        "sampling_temp": "use `temperature`",
        "sampling_method": "use `sampling=true`",
        "sampling_keep_top_k": "use `top_k`",
    },
)

T2T_HPARAMS = (_HPARAMS, _DECODING)
