"""OpenNMT-tf's programs, flags and YAML keys (version 2.32)."""

from .table import Table

_NOT_HERE = "leave it out: there is no equivalent"
_SORTED = "leave it out: inputs are sorted by length, and examples by exact lengths"
_SCHEDULE = (
    "use `--hparams schedule=F*G`: factors are constant, linear_warmup, rsqrt_decay, "
    "rsqrt_normalized_decay, rsqrt_hidden_size and registered ones"
)
_DECODE_BATCH = "use `--decode_hparams batch_tokens=N`"
_CONFIG = "the same name, for a file of our flags"
_SAME_RUN = "the same name, for the run directory"

_PROGRAMS = Table(
    toolkit="OpenNMT-tf",
    command="OpenNMT-tf",
    noun="program",
    contexts=("t2t",),
    rows={
        "onmt-build-vocab": "use `t2t datagen`, which trains a SentencePiece model",
        "onmt-main": "use the commands of `t2t --help`, such as train and translate",
        "infer": "use `t2t translate --input FILE --output FILE`",
        "eval": "use `t2t evaluate`",
        "average_checkpoints": "use `t2t average --last N`",
        "update_vocab": "use `t2t train --init_from RUN` with data of another "
        "vocabulary",
        "onmt-tokenize-text onmt-detokenize-text onmt-merge-config "
        "onmt-ark-to-records": _NOT_HERE,
    },
)

_MAIN = Table(
    toolkit="OpenNMT-tf",
    command="onmt-main",
    noun="flag",
    contexts=("train",),
    rows={
        "config": _CONFIG,
        "model_dir run_dir": "use `--output_dir`",
        "data_dir": "the same name, for the directory of `t2t datagen`",
        "auto_config": "leave it out: the hparam set has all settings",
        "model_type=Transformer model_type=TransformerBase "
        "model_type=TransformerBaseSharedEmbeddings": "use `--hparams_set base "
        "--hparams norm=pre`",
        "model_type=TransformerBig model_type=TransformerBigSharedEmbeddings": "use "
        "`--hparams_set big --hparams norm=pre`",
        "model_type=TransformerTiny": "use `--hparams_set tiny --hparams norm=pre`, "
        "which is larger",
        "model_type=TransformerRelative model_type=TransformerBaseRelative "
        "model_type=TransformerBigRelative": "leave it out: there are no relative "
        "positions; `--hparams_set` has base and big",
        "model_type model": "use `--hparams_set`; models of your own are in "
        "`--usr_dir`",
        "checkpoint_path": "use `--init_from`",
        "seed": "the same",
        "mixed_precision": "use `--hparams compute_dtype=bfloat16`, or "
        "`compute_dtype=float16`",
        "jit_compile": "use `--hparams jit_compile=true`, the default on GPUs",
        "with_eval": "leave it out: training evaluates every `--eval_every` steps",
        "num_gpus": "set `CUDA_VISIBLE_DEVICES`; all visible GPUs are used",
        "horovod": "use `t2t launch --processes N`; for several machines set "
        "`TF_CONFIG`",
        "continue_from_checkpoint": "use `--init_from`",
        "gpu_allow_growth": "set `TF_FORCE_GPU_ALLOW_GROWTH`",
        "intra_op_parallelism_threads inter_op_parallelism_threads": "set "
        "`TF_NUM_INTRAOP_THREADS` or `TF_NUM_INTEROP_THREADS`",
        "log_level": "set `TF_CPP_MIN_LOG_LEVEL`",
        "eager_execution": "leave it out: steps run in graphs",
    },
)

_OTHER_RUNS = {
    "config": _CONFIG,
    "model": _SAME_RUN,
    "model_type auto_config": "leave it out: the run directory has all settings",
    "model_dir": "use `--output_dir`",
    "checkpoint_path": "use `--checkpoint`",
    "mixed_precision": "leave it out: the run has its `compute_dtype`",
    "num_gpus horovod": "leave it out: `CUDA_VISIBLE_DEVICES` chooses the GPU",
}

_INFER_FLAGS = Table(
    toolkit="OpenNMT-tf",
    command="onmt-main infer",
    noun="flag",
    contexts=("translate",),
    rows={
        "features_file": "use `--input`",
        "predictions_file": "use `--output`",
        "log_prediction_time": "leave it out: the speed is printed",
        "seed": "use `--decode_hparams sampling=true,seed=N`",
        **_OTHER_RUNS,
    },
)

_EVAL_FLAGS = Table(
    toolkit="OpenNMT-tf",
    command="onmt-main eval",
    noun="flag",
    contexts=("evaluate",),
    rows={
        "features_file": "use `--split`, or `t2t translate --input FILE`",
        "labels_file": "use `--references`, with `--hypotheses`",
        **_OTHER_RUNS,
    },
)

_SCORE_FLAGS = Table(
    toolkit="OpenNMT-tf",
    command="onmt-main score",
    noun="flag",
    contexts=("score",),
    rows={
        "features_file": "use `--source`",
        "predictions_file": "use `--target`",
        "output_file": "use `--output`",
        **_OTHER_RUNS,
    },
)

_EXPORT_FLAGS = Table(
    toolkit="OpenNMT-tf",
    command="onmt-main export",
    noun="flag",
    contexts=("export",),
    rows={
        "output_dir export_dir": "the same names, for the run and the export",
        "export_format=ctranslate2_int8": "use `--format ctranslate2 --quantization "
        "int8`",
        "export_format=tflite_dynamic_range": "use `--format litert --quantization "
        "int8`",
        "export_format": "use `--format`",
        **_OTHER_RUNS,
    },
)

_AVERAGE_FLAGS = Table(
    toolkit="OpenNMT-tf",
    command="onmt-main average_checkpoints",
    noun="flag",
    contexts=("average",),
    rows={
        "output_dir": _SAME_RUN,
        "max_count": "use `--last`",
        "model_dir": "use `--output_dir`",
        "config": _CONFIG,
    },
)

_BUILD_VOCAB = Table(
    toolkit="OpenNMT-tf",
    command="onmt-build-vocab",
    noun="flag",
    contexts=("datagen",),
    rows={
        "size": "use `--vocab_size`",
        "save_vocab": "use `--data_dir`",
        "from_vocab": "use `--vocab`, for a SentencePiece model",
        "sentencepiece": "leave it out: the vocabulary is SentencePiece's",
        "tokenizer_config from_format min_frequency size_multiple "
        "without_sequence_tokens": "leave it out: SentencePiece makes the vocabulary",
    },
)

_DATA = Table(
    toolkit="OpenNMT-tf",
    command="OpenNMT-tf's section data",
    noun="key",
    contexts=("datagen", "inspect"),
    rows={
        "train_features_file": "use `--train_source`; for several files `--mixture`",
        "train_labels_file": "use `--train_target`; for several files `--mixture`",
        "train_files_weights": "use `--mixture`, with a weight for each corpus",
        "eval_features_file": "use `--dev_source`",
        "eval_labels_file": "use `--dev_target`",
        "train_alignments": "use `--mixture`, with `alignment` for each corpus",
        "source_vocabulary target_vocabulary vocabulary": "use `--vocab`, for a "
        "SentencePiece model or another run",
        "source_tokenization target_tokenization tokenization": "leave it out: texts "
        "are split by SentencePiece, which is in the data and in every export",
        "source_embedding target_embedding embedding": "leave it out: embeddings of "
        "words are not read",
        "example_weights sequence_controls source_sequence_controls "
        "target_sequence_controls tagging_scheme export_vocabulary_assets": _NOT_HERE,
    },
)

_TRAIN_PARAMS = Table(
    toolkit="OpenNMT-tf",
    command="OpenNMT-tf's section params",
    noun="key",
    contexts=("train", "hparams"),
    rows={
        "optimizer=LazyAdam optimizer=Adam": "use `--hparams optimizer=adam`",
        "optimizer": "use `--hparams optimizer=NAME`: adam, adamw or adafactor",
        "optimizer_params": "use `--hparams adam_beta1=X,adam_beta2=X,adam_epsilon=X`",
        "beta_1": "use `--hparams adam_beta1=X`",
        "beta_2": "use `--hparams adam_beta2=X`",
        "epsilon": "use `--hparams adam_epsilon=X`",
        "weight_decay": "use `--hparams optimizer=adamw,weight_decay=X`",
        "gradients_clip_norm clipnorm": "use `--hparams clip_norm=X`",
        "learning_rate": "use `--hparams learning_rate=X`, the factor of the schedule",
        "decay_type=NoamDecay": "leave it out: it is the default `schedule`",
        "decay_type decay_rate decay_steps decay_step_duration start_decay_steps "
        "minimum_learning_rate staircase": _SCHEDULE,
        "model_dim": "leave it out: the schedule takes `d_model`",
        "decay_params warmup_steps": "use `--hparams warmup_steps=N`",
        "dropout": "use `--hparams dropout=X`",
        "attention_dropout": "use `--hparams attention_dropout=X`",
        "ffn_dropout": "use `--hparams ffn_dropout=X`",
        "label_smoothing": "use `--hparams label_smoothing=X`",
        "num_units": "use `--hparams d_model=N`",
        "num_heads": "use `--hparams num_heads=N`",
        "num_layers": "use `--hparams num_layers=N`",
        "ffn_inner_dim": "use `--hparams d_ff=N`",
        "pre_norm": "use `--hparams norm=pre`",
        "share_embeddings": "use `--hparams share_embeddings=true`",
        "average_loss_in_time": "leave it out: the loss is the mean over tokens",
        "guided_alignment_type guided_alignment_weight": "use `--hparams "
        "guided_alignment=X`",
        "moving_average_decay": "use `--hparams ema_decay=X`",
        "regularization freeze_layers mask_loss_outliers scheduled_sampling_type "
        "scheduled_sampling_read_probability scheduled_sampling_k contrastive_learning "
        "max_margin_eta maximum_relative_position": _NOT_HERE,
    },
)

_TRAIN = Table(
    toolkit="OpenNMT-tf",
    command="OpenNMT-tf's section train",
    noun="key",
    contexts=("train", "hparams", "train_options"),
    rows={
        "batch_size": "use `--hparams batch_tokens=N`, the tokens of a side on all "
        "GPUs",
        "batch_type": "leave it out: batches are counted in tokens",
        "effective_batch_size": "use `--hparams batch_tokens=N`, with `--accumulate N`",
        "max_step single_pass": "use `--train_steps`, which counts updates",
        "save_checkpoints_steps": "use `--save_every`",
        "keep_checkpoint_max": "use `--train_options keep=N`",
        "save_summary_steps": "use `--train_options log_every=N`",
        "average_last_checkpoints": "use `--train_options average_last=N`",
        "maximum_features_length maximum_labels_length": "use `t2t datagen "
        "--max_length N`",
        "length_bucket_width": _SORTED,
        "pad_to_bucket_boundary": "use `--hparams bucketing=packed`, or "
        "`bucketing=static`",
        "sample_buffer_size": "leave it out: each epoch shuffles the whole data set",
        "prefetch_buffer_size": "leave it out",
        "batch_size_autotune_timeout batch_size_autotune_scale batch_autotune_mode": (
            "leave it out: the largest batch is tried at the start"
        ),
    },
)

_EVAL = Table(
    toolkit="OpenNMT-tf",
    command="OpenNMT-tf's section eval",
    noun="key",
    contexts=("train", "train_options", "evaluate"),
    rows={
        "steps": "use `t2t train --eval_every N`",
        "early_stopping min_improvement": "use `t2t train --patience N`",
        "metric": "use `t2t train --train_options best_by=metric`",
        "scorers external_evaluators": "leave it out: the problem has its metrics",
        "export_on_best": "use `t2t export --checkpoint best`",
        "export_format": "use `t2t export --format NAME`",
        "save_eval_predictions": "use `t2t evaluate --output PREFIX`",
        "max_exports_to_keep": "leave it out: one best checkpoint is kept",
        "length_bucket_width": _SORTED,
    },
)

_INFER_PARAMS = Table(
    toolkit="OpenNMT-tf",
    command="OpenNMT-tf's sections params and infer",
    noun="key",
    contexts=("translate", "evaluate", "export", "serve", "decode_hparams"),
    rows={
        "beam_width": "use `--beam_size`",
        "length_penalty": "use `--alpha`",
        "coverage_penalty": "use `--decode_hparams coverage_penalty=X`",
        "num_hypotheses n_best": "use `t2t translate --n_best N`",
        "minimum_decoding_length": "use `--decode_hparams min_length=N`",
        "maximum_decoding_length": "use `--decode_hparams extra_length=N`, added to "
        "the source's length",
        "sampling_topk": "use `--decode_hparams sampling=true,top_k=N`",
        "sampling_temperature": "use `--decode_hparams sampling=true,temperature=X`",
        "no_repeat_ngram_size": "use `--decode_hparams no_repeat_ngram=N`",
        "with_scores": "use `t2t translate --scores`",
        "with_token_level": "use `t2t translate --token_scores`",
        "with_alignments": "use `t2t translate --alignments FILE`",
        "replace_unknown_target": "leave it out: SentencePiece models made here have "
        "no unknown characters",
        "batch_size": _DECODE_BATCH,
        "batch_type": "leave it out: batches are counted in tokens",
        "length_bucket_width": _SORTED,
        "prefetch_buffer_size": "leave it out",
        "decoding_noise decoding_subword_token decoding_subword_token_is_spacer "
        "tflite_output_size": _NOT_HERE,
    },
)

OPENNMT_TF = (
    *(_PROGRAMS, _MAIN, _INFER_FLAGS, _EVAL_FLAGS, _SCORE_FLAGS, _EXPORT_FLAGS),
    *(_AVERAGE_FLAGS, _BUILD_VOCAB, _DATA, _TRAIN_PARAMS, _TRAIN, _EVAL),
    _INFER_PARAMS,
)
