"""Hugging Face's flags (transformers 4.57): the trainer, its example, `generate`."""

from .table import Table

_NOT_HERE = "leave it out: there is no equivalent"
_LOCAL = "leave it out: models and data are local files"
_LOGS = "leave it out: metrics are in metrics.jsonl and in TensorBoard's events"
_PROCESSES = "use `t2t launch --processes N`; for several machines set `TF_CONFIG`"
_NO_SPLIT = "leave it out: each GPU has a copy of the model"
_GRADIENTS = "leave it out: tf.distribute sums the gradients at each step"
_LOSS_SCALE = "leave it out: `compute_dtype=float16` scales the loss by itself"
_BATCHES = (
    "leave it out: batches are made from the index of the data, in an order that "
    "follows from the seed"
)
_EVAL_BATCHES = "leave it out: dev batches are those of `batch_tokens`"
_DECODE_BATCH = "use `--decode_hparams batch_tokens=N`"
_DATA_VOCABULARY = "leave it out: the vocabulary is in the data directory"
_RUN = "leave it out: the run directory has it"
_LONG_PAIRS = "use `t2t datagen --max_length N`, which leaves out longer pairs"
_NO_GPU = "set `CUDA_VISIBLE_DEVICES=-1`"

_PROGRAMS = Table(
    toolkit="Hugging Face",
    command="Hugging Face",
    noun="program",
    contexts=("t2t",),
    rows={
        "run_translation.py run_translation run_translation_no_trainer.py": "use "
        "`t2t datagen` and `t2t train`",
    },
)

_EXAMPLE_FLAGS = Table(
    toolkit="Hugging Face",
    command="Hugging Face's run_translation.py",
    noun="flag",
    contexts=("train", "datagen", "inspect"),
    rows={
        "model_name_or_path": "use `t2t train --init_from RUN`; `t2t import` makes a "
        "run of a Marian model",
        "config_name": "use `t2t train --hparams_set`; `t2t list` prints the sets",
        "tokenizer_name use_fast_tokenizer": _DATA_VOCABULARY,
        "cache_dir model_revision token use_auth_token trust_remote_code": _LOCAL,
        "resize_position_embeddings": "leave it out: sinusoids have any length",
        "source_lang target_lang": "use `t2t datagen --languages SOURCE-TARGET`",
        "dataset_name dataset_config_name": "use `t2t datagen --problem NAME`, for a "
        "problem of `t2t list` or a problem of your own",
        "train_file": "use `t2t datagen --train_source FILE --train_target FILE`",
        "validation_file": "use `t2t datagen --dev_source FILE --dev_target FILE`",
        "test_file": "use `t2t datagen --test_source FILE --test_target FILE`",
        "preprocessing_num_workers": "use `t2t datagen --workers N`",
        "overwrite_cache": "leave it out: name a new `--data_dir`",
        "max_source_length max_target_length": _LONG_PAIRS,
        "pad_to_max_length": "use `t2t train --hparams bucketing=static`, for at most "
        "twelve shapes",
        "max_train_samples": "leave it out: each epoch has the whole data set",
        "max_eval_samples": "use `t2t train --eval_sentences N`",
        "max_predict_samples": "use `t2t evaluate --eval_sentences N`",
        "val_max_target_length num_beams": "leave it out: evaluations during training "
        "decode as the problem says",
        "ignore_pad_token_for_loss": "leave it out: padding has no part in the loss",
        "source_prefix": "leave it out: a prefix belongs in the source texts",
        "forced_bos_token": "use `t2t datagen --mixture FILE`, with a tag for each "
        "corpus",
    },
)

_OPTIMIZATION = {
    "per_device_train_batch_size per_gpu_train_batch_size": "use `--hparams "
    "batch_tokens=N`, the tokens of an update on all GPUs",
    "per_device_eval_batch_size per_gpu_eval_batch_size eval_accumulation_steps "
    "eval_do_concat_batches batch_eval_metrics": _EVAL_BATCHES,
    "auto_find_batch_size": "leave it out: the largest batch is tried at the start",
    "gradient_accumulation_steps": "use `--accumulate N`; `batch_tokens` counts the "
    "whole update's tokens",
    "gradient_checkpointing gradient_checkpointing_kwargs": "use `--accumulate N`, "
    "which needs less memory",
    "learning_rate": "use `--hparams learning_rate=X`, the factor of the schedule: a "
    "rate R at the end of W steps of warm-up is X = R * sqrt(W * d_model)",
    "lr_scheduler_type=inverse_sqrt": "leave it out: it is the default `schedule`",
    "lr_scheduler_type=constant": "use `--hparams schedule=constant`",
    "lr_scheduler_type=constant_with_warmup": "use `--hparams "
    "schedule=constant*linear_warmup`",
    "lr_scheduler_type lr_scheduler_kwargs": "use `--hparams schedule=F*G`: factors "
    "are constant, linear_warmup, rsqrt_decay, rsqrt_normalized_decay, "
    "rsqrt_hidden_size and registered ones",
    "warmup_steps warmup_ratio": "use `--hparams warmup_steps=N`",
    "weight_decay": "use `--hparams optimizer=adamw,weight_decay=X`",
    "adam_beta1": "use `--hparams adam_beta1=X`",
    "adam_beta2": "use `--hparams adam_beta2=X`",
    "adam_epsilon": "use `--hparams adam_epsilon=X`",
    "max_grad_norm": "use `--hparams clip_norm=X`",
    "label_smoothing_factor": "use `--hparams label_smoothing=X`",
    "optim=adafactor adafactor": "use `--hparams optimizer=adafactor`",
    "optim optim_args": "use `--hparams optimizer=NAME`: adam, adamw or adafactor",
    "average_tokens_across_devices": "leave it out: the loss is the mean over the "
    "tokens of all devices",
    "num_train_epochs max_steps": "use `--train_steps`, which counts updates",
    "bf16": "use `--hparams compute_dtype=bfloat16`",
    "fp16": "use `--hparams compute_dtype=float16`",
    "fp16_opt_level half_precision_backend fp16_backend": _LOSS_SCALE,
    "bf16_full_eval fp16_full_eval": "leave it out: the run has its `compute_dtype`",
    "tf32": "leave it out: TensorFlow uses it where the GPU has it",
    "torch_compile torch_compile_backend torch_compile_mode torchdynamo jit_mode_eval "
    "use_liger_kernel liger_kernel_config": "use `--hparams jit_compile=true`, the "
    "default on GPUs",
    "neftune_noise_alpha optim_target_modules past_index mp_parameters label_names "
    "remove_unused_columns torch_empty_cache_steps": _NOT_HERE,
}

_SAVING = {
    "output_dir seed": "the same",
    "data_seed": "use `--seed`",
    "overwrite_output_dir": "leave it out: an existing run is resumed; name a new "
    "`--output_dir`",
    "resume_from_checkpoint ignore_data_skip restore_callback_states_from_checkpoint": (
        "use the same `--output_dir`, whose run is resumed"
    ),
    "do_train": "leave it out: `t2t train` trains",
    "do_eval eval_on_start eval_delay": "leave it out: training evaluates every "
    "`--eval_every` steps",
    "do_predict": "use `t2t evaluate --split test`",
    "eval_strategy=no evaluation_strategy=no": "set `--eval_every` above the number of "
    "steps",
    "eval_strategy evaluation_strategy eval_steps": "use `--eval_every`, which counts "
    "steps",
    "prediction_loss_only": "use `--eval_sentences 0`",
    "predict_with_generate": "use `--eval_sentences`, the number of sentences that are "
    "decoded",
    "generation_max_length generation_num_beams generation_config": "leave it out: "
    "evaluations during training decode as the problem says",
    "include_inputs_for_metrics include_for_metrics": "leave it out: the problem has "
    "its metrics",
    "save_strategy save_steps": "use `--save_every`, which counts steps",
    "save_total_limit": "use `--train_options keep=N`",
    "save_safetensors save_on_each_node": "leave it out: the chief writes checkpoints",
    "save_only_model": "leave it out: a run resumes with all of its state",
    "load_best_model_at_end": "use `t2t translate --checkpoint best`",
    "metric_for_best_model": "use `--train_options best_by=loss`, or `best_by=metric`",
    "greater_is_better": "leave it out: the metric has its direction",
    "logging_steps logging_strategy": "use `--train_options log_every=N`",
    "report_to=wandb": "use `--callbacks`, for a Keras callback",
    "logging_dir logging_first_step report_to run_name project trackio_space_id "
    "include_tokens_per_second include_num_input_tokens_seen log_on_each_node "
    "skip_memory_metrics": _LOGS,
    "logging_nan_inf_filter": "leave it out: training stops with a message when the "
    "loss is not finite",
    "log_level log_level_replica": "set `TF_CPP_MIN_LOG_LEVEL`",
    "disable_tqdm": "leave it out: only a terminal has a bar",
    "push_to_hub hub_model_id hub_strategy hub_token hub_private_repo hub_always_push "
    "hub_revision push_to_hub_model_id push_to_hub_organization push_to_hub_token": (
        _LOCAL
    ),
}

_DEVICES = {
    "no_cuda use_cpu": _NO_GPU,
    "use_mps_device": "leave it out: all visible GPUs are used",
    "tpu_num_cores tpu_metrics_debug": "leave it out: TPUs are not supported",
    "local_rank": _PROCESSES,
    "ddp_backend ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers "
    "ddp_timeout eval_use_gather_object": _GRADIENTS,
    "fsdp fsdp_min_num_params fsdp_config fsdp_transformer_layer_cls_to_wrap deepspeed "
    "accelerator_config parallelism_config": _NO_SPLIT,
    "dataloader_drop_last dataloader_num_workers dataloader_prefetch_factor "
    "dataloader_pin_memory dataloader_persistent_workers": _BATCHES,
    "group_by_length length_column_name sortish_sampler": "use `--hparams "
    "bucketing=exact`, for pairs of similar length",
    "full_determinism": "leave it out: trainings are repeatable",
    "ray_scope": "use `t2t sweep`",
    "debug use_legacy_prediction_loop": "leave it out",
}

_TRAINER = Table(
    toolkit="Hugging Face",
    command="Hugging Face's Trainer",
    noun="flag",
    contexts=("train",),
    rows={**_OPTIMIZATION, **_SAVING, **_DEVICES},
)

_GENERATE = Table(
    toolkit="Hugging Face",
    command="Hugging Face's generate",
    noun="flag",
    contexts=("translate", "evaluate", "export", "serve", "decode_hparams"),
    rows={
        "model_name_or_path model": "use `--model RUN`; `t2t import` makes a run of a "
        "Marian model",
        "tokenizer_name source_lang target_lang generation_config": _RUN,
        "num_beams": "use `--beam_size`",
        "num_return_sequences": "use `t2t translate --n_best N`",
        "max_new_tokens max_length": "use `--decode_hparams extra_length=N`, added to "
        "the source's length",
        "min_length min_new_tokens": "use `--decode_hparams min_length=N`",
        "max_source_length": "use `--decode_hparams max_source_length=N,truncate=true`",
        "length_penalty": "use `--alpha X --decode_hparams length_penalty=power`",
        "no_repeat_ngram_size": "use `--decode_hparams no_repeat_ngram=N`",
        "early_stopping": "leave it out: the search ends when no hypothesis can become "
        "better",
        "do_sample num_beam_groups diversity_penalty": "use `--decode_hparams "
        "sampling=true`",
        "top_k": "use `--decode_hparams sampling=true,top_k=N`",
        "top_p": "use `--decode_hparams sampling=true,top_p=X`",
        "temperature": "use `--decode_hparams sampling=true,temperature=X`",
        "seed": "use `--decode_hparams sampling=true,seed=N`",
        "bad_words_ids": "use `--decode_hparams forbidden=FILE`",
        "force_words_ids constraints": "use `--decode_hparams glossary=FILE`",
        "output_scores return_dict_in_generate": "use `t2t translate --scores`",
        "output_attentions": "use `t2t attention`",
        "per_device_eval_batch_size batch_size": _DECODE_BATCH,
        "use_cache": "leave it out: the search always has a cache",
        "do_predict predict_with_generate": "leave it out: outputs are always decoded",
        "fp16 bf16": "leave it out: the run has its `compute_dtype`",
        "no_cuda use_cpu": _NO_GPU,
        "pad_token_id eos_token_id bos_token_id decoder_start_token_id "
        "forced_bos_token_id forced_eos_token_id": "leave it out: the vocabulary has "
        "them",
        "min_p typical_p epsilon_cutoff eta_cutoff penalty_alpha repetition_penalty "
        "encoder_repetition_penalty encoder_no_repeat_ngram_size sequence_bias "
        "exponential_decay_length_penalty suppress_tokens begin_suppress_tokens "
        "stop_strings guidance_scale max_time": _NOT_HERE,
    },
)

HUGGING_FACE = (_PROGRAMS, _EXAMPLE_FLAGS, _TRAINER, _GENERATE)
