"""tensor2tensor's programs and flags (version 1.15.7)."""

from .table import Table

_GPUS = "leave it out: `CUDA_VISIBLE_DEVICES` chooses the GPU"
_RUN = "leave it out: the run directory has it"
_NO_TPU = "leave it out: TPUs are not supported"
_NO_CLOUD = "leave it out: there is no client for a cloud's training service"
_MACHINES = "use `t2t launch --processes N`; for several machines set `TF_CONFIG`"
_THREADS = "set `TF_NUM_INTEROP_THREADS` or `TF_NUM_INTRAOP_THREADS`"
_SAME_RUN = "the same name, for the run directory"
_DEBUG = "leave it out: use TensorFlow's own profiler and debugger"
_DISTRIBUTED = (
    "sync worker_job worker_gpu_memory_fraction worker_replicas ps_gpu ps_job "
    "ps_replicas master std_server_protocol optionally_use_dist_strat"
)
_TPU = (
    "use_tpu use_tpu_estimator tpu_num_shards tpu_job_name tpu_infeed_sleep_secs "
    "cloud_tpu_name use_guarantee_const_getter"
)
_CLOUD = "cloud_mlengine cloud_mlengine_master_type job-dir"
# Of tuning, which is another command here.
_TUNING = {
    "hparams_range": "use `t2t sweep --ranges`",
    "autotune_max_trials": "use `t2t sweep --trials`",
    "autotune_parallel_trials": "use `t2t sweep --workers`",
    "autotune_objective": "use `t2t sweep --train_options best_by=loss`, or "
    "`best_by=metric`",
    "autotune_maximize": "leave it out: the metric has its direction",
}
_TRAINING = (
    "export_saved_model export_saved_model_api_version eval_early_stopping_steps "
    "eval_early_stopping_metric eval_early_stopping_metric_delta "
    "eval_early_stopping_metric_minimize eval_throttle_seconds keep_checkpoint_max "
    "keep_checkpoint_every_n_hours save_checkpoints_secs warm_start_from "
    "local_eval_frequency iterations_per_loop log_step_count_steps"
)
_DEBUGGING = "profile dbgprofile tfdbg log_device_placement"

_PROGRAMS = Table(
    toolkit="tensor2tensor",
    command="tensor2tensor",
    noun="program",
    contexts=("t2t",),
    rows={
        "t2t-trainer t2t_trainer trainer": "use `t2t train`",
        "t2t-datagen t2t_datagen build_vocab": "use `t2t datagen`",
        "t2t-decoder t2t_decoder decoder decode": "use `t2t translate`, or `t2t score`",
        "t2t-eval t2t_eval": "use `t2t evaluate`",
        "t2t-bleu t2t_bleu bleu": "use `t2t evaluate --hypotheses FILE "
        "--references FILE`",
        "t2t-translate-all t2t_translate_all": "use `t2t evaluate --checkpoint all "
        "--wait_minutes M`",
        "t2t-avg-all t2t_avg_all avg_checkpoints avg_checkpoints.py": "use `t2t "
        "average --last N`",
        "t2t-exporter exporter": "use `t2t export`",
        "t2t-query-server query": "use `t2t serve`, or query TensorFlow Serving as "
        "examples/serve.py does",
        "t2t-insights-server": "use `t2t serve` and `t2t attention`",
        "t2t-make-tf-configs make_tf_configs": _MACHINES,
    },
)

_TRAINER = Table(
    toolkit="tensor2tensor",
    command="t2t-trainer",
    noun="flag",
    contexts=("train",),
    rows={
        "problem hparams_set data_dir output_dir": "the same",
        "hparams": "the same, with tensor2tensor's names or ours",
        "train_steps": "the same; the default is the hparam set's",
        "model=transformer": "leave it out: the hparam set has the model",
        "model": "use `--hparams model=NAME`",
        "t2t_usr_dir": "use `--usr_dir`",
        "registry_help": "use `t2t list`",
        "generate_data": "run `t2t datagen` before",
        "tmp_dir": "leave it out: only `t2t datagen` downloads, to `$TFDS_DATA_DIR`",
        "random_seed": "use `--seed`",
        "worker_gpu gpu_order": "set `CUDA_VISIBLE_DEVICES`; all visible GPUs are used",
        "worker_gpu_memory_fraction": "set `TF_FORCE_GPU_ALLOW_GROWTH`",
        "local_eval_frequency": "use `--save_every` and `--eval_every`",
        "eval_throttle_seconds": "use `--eval_every`, which counts steps",
        "save_checkpoints_secs": "use `--train_options save_minutes=M`",
        "keep_checkpoint_max keep_checkpoint_every_n_hours": "use `--train_options "
        "keep=N`",
        "eval_steps": "use `--eval_sentences`, the number of sentences that are "
        "decoded",
        "eval_early_stopping_steps": "use `--patience`, which counts evaluations",
        "eval_early_stopping_metric": "use `--train_options best_by=loss`, or "
        "`best_by=metric`",
        "eval_early_stopping_metric_delta eval_early_stopping_metric_minimize": "leave "
        "it out: every improvement counts, and the metric has its direction",
        "eval_timeout_mins": "use `t2t evaluate --wait_minutes M`",
        "eval_run_autoregressive": "leave it out: `--eval_sentences` dev sentences are "
        "decoded at each evaluation",
        "eval_use_test_set": "use `t2t evaluate --split test`",
        "schedule=train": "set `--eval_every` above the number of steps",
        "schedule=evaluate schedule=test": "use `t2t evaluate`",
        "schedule=continuous_eval schedule=continuous_decode": "use `t2t evaluate "
        "--checkpoint all --wait_minutes M`",
        "schedule=run_std_server": "leave it out: there are no parameter servers",
        "schedule": "leave it out: training evaluates every `--eval_every` steps",
        "iterations_per_loop": "use `--train_options steps_per_call=N`",
        "log_step_count_steps": "use `--train_options log_every=N`",
        "warm_start_from": "use `--init_from`",
        "xla_compile xla_jit_level": "use `--hparams jit_compile=true`, the default on "
        "GPUs",
        "gpu_automatic_mixed_precision": "use `--hparams compute_dtype=bfloat16`, or "
        "`compute_dtype=float16`",
        "export_saved_model export_saved_model_api_version": "run `t2t export` "
        "afterwards",
        "decode_hparams": "use `t2t translate --decode_hparams`",
        "decode_from_file": "use `t2t translate --input FILE`",
        "decode_to_file": "use `t2t translate --output FILE`",
        "decode_reference": "use `t2t evaluate --hypotheses FILE --references FILE`",
        "worker_id": "leave it out: `TF_CONFIG` has the number of the process",
        _DISTRIBUTED.replace("worker_gpu_memory_fraction ", ""): _MACHINES,
        "inter_op_parallelism_threads intra_op_parallelism_threads": _THREADS,
        "enable_graph_rewriter": "leave it out: TensorFlow's optimizer of graphs is "
        "always on",
        _TPU: _NO_TPU,
        _CLOUD: _NO_CLOUD,
        **_TUNING,
        _DEBUGGING: _DEBUG,
    },
)

_DATAGEN = Table(
    toolkit="tensor2tensor",
    command="t2t-datagen",
    noun="flag",
    contexts=("datagen", "inspect"),
    rows={
        "problem": "the same, but one problem at a time",
        "data_dir": "the same",
        "tmp_dir": "the same for problems of a tensor2tensor usr_dir; "
        "translate_ende_wmt has `--raw_dir`, others `$TFDS_DATA_DIR`",
        "t2t_usr_dir": "use `--usr_dir`",
        "only_list": "use `t2t list`",
        "random_seed": "use `--seed`",
        "exclude_problems": "leave it out: `--problem` names one problem",
        "num_shards": "leave it out: the number of shards follows from the data",
        "max_cases": "leave it out: give shorter files",
        "task_id task_id_start task_id_end": "use `--shard`, such as 1/4",
        "num_concurrent_processes": "use `--workers`",
        "env_problem_max_env_steps env_problem_batch_size": "leave it out: there are "
        "no reinforcement learning problems",
    },
)

# The flags that t2t-decoder, t2t-eval and t2t-exporter share.
_SHARED = {
    "problem hparams_set hparams train_steps": _RUN,
    "model": _SAME_RUN,
    "t2t_usr_dir": "use `--usr_dir`",
    "worker_gpu gpu_order": _GPUS,
    "worker_gpu_memory_fraction": "set `TF_FORCE_GPU_ALLOW_GROWTH`",
    "inter_op_parallelism_threads intra_op_parallelism_threads": _THREADS,
    "xla_compile xla_jit_level": "leave it out: XLA is the run's `jit_compile`",
    "gpu_automatic_mixed_precision": "leave it out: the run has its `compute_dtype`",
    "enable_graph_rewriter disable_grappler_optimizations": "leave it out: "
    "TensorFlow's optimizer of graphs is always on",
    "registry_help": "use `t2t list`",
    "tmp_dir generate_data schedule": "leave it out",
    _TRAINING: "leave it out: it is for training",
    _DISTRIBUTED.replace("worker_gpu_memory_fraction ", ""): "leave it out: one "
    "process decodes",
    _TPU: _NO_TPU,
    _CLOUD: _NO_CLOUD,
    **_TUNING,
    _DEBUGGING: _DEBUG,
}

_DECODER = Table(
    toolkit="tensor2tensor",
    command="t2t-decoder",
    noun="flag",
    contexts=("translate", "score", "align", "attention"),
    rows={
        "output_dir": "the same",
        "decode_hparams": "the same, with the keys below",
        "data_dir": "leave it out: the run directory has the vocabularies",
        "decode_from_file": "use `t2t translate --input FILE`",
        "decode_to_file": "use `t2t translate --output FILE`",
        "decode_interactive": "use `t2t translate` on a terminal, without `--input`",
        "checkpoint_path": "use `--checkpoint`",
        "score_file": "use `t2t score --source FILE --target FILE`, which writes "
        "log-probabilities",
        "decode_reference": "use `t2t evaluate --hypotheses FILE --references FILE`",
        "eval_use_test_set": "use `t2t evaluate --split test`",
        "random_seed": "use `t2t translate --decode_hparams sampling=true,seed=N`",
        "decode_shards worker_id": "leave it out: split the file for several processes",
        "decode_in_memory": "leave it out: files are decoded in parts",
        "keep_timestamp": "leave it out",
        **_SHARED,
    },
)

_EVAL = Table(
    toolkit="tensor2tensor",
    command="t2t-eval",
    noun="flag",
    contexts=("evaluate", "compare", "describe", "card"),
    rows={
        "data_dir output_dir": "the same",
        "decode_hparams": "the same, with the keys below",
        "checkpoint_path": "use `--checkpoint`",
        "eval_steps": "use `t2t evaluate --eval_sentences`",
        "eval_use_test_set": "use `t2t evaluate --split test`",
        "eval_timeout_mins": "use `t2t evaluate --checkpoint all --wait_minutes M`",
        "eval_run_autoregressive": "leave it out: sentences are decoded with beam "
        "search",
        "random_seed": "leave it out: an evaluation has nothing random",
        **_SHARED,
    },
)

_BLEU = Table(
    toolkit="tensor2tensor",
    command="t2t-bleu",
    noun="flag",
    contexts=("evaluate",),
    rows={
        "translation": "use `--hypotheses`",
        "reference": "use `--references`",
        "translations_dir": "use `--checkpoint all`",
        "wait_minutes": "the same, with `--checkpoint all`",
        "bleu_variant": "read `sacrebleu_intl`, t2t-bleu's score of cased text; "
        "`sacrebleu_13a_lc` ignores case",
        "source": "leave it out: the split has its sources",
        "event_dir tag_suffix": "leave it out: TensorBoard's events are in the run "
        "directory",
        "min_steps": "leave it out: `--checkpoint` names the checkpoints",
        "report_zero": "leave it out",
    },
)

_TRANSLATE_ALL = Table(
    toolkit="tensor2tensor",
    command="t2t-translate-all",
    noun="flag",
    contexts=("evaluate", "translate"),
    rows={
        "model_dir": "use `--output_dir`",
        "source": "use `t2t evaluate --split`, or `t2t translate --input FILE`",
        "translations_dir": "use `--output`",
        "beam_size alpha": "the same",
        "wait_minutes": "use `t2t evaluate --wait_minutes M`",
        "min_steps": "leave it out: `--checkpoint` names the checkpoints",
        "decoder_command": "leave it out: everything runs in one process",
        "problem hparams_set": _RUN,
        "model": _SAME_RUN,
        "data_dir": "use `t2t evaluate --data_dir`",
        "t2t_usr_dir": "use `--usr_dir`",
    },
)

_AVERAGE = Table(
    toolkit="tensor2tensor",
    command="t2t-avg-all",
    noun="flag",
    contexts=("average",),
    rows={
        "model_dir": "use `--output_dir`",
        "output_dir": _SAME_RUN,
        "n": "use `--last`",
        "min_steps": "leave it out: only the newest checkpoints are averaged",
        "wait_minutes": "leave it out: `t2t train` averages at the end",
    },
)

_AVG_CHECKPOINTS = Table(
    toolkit="tensor2tensor",
    command="avg_checkpoints.py",
    noun="flag",
    contexts=("average",),
    rows={
        "checkpoints num_last_checkpoints": "use `--last`",
        "prefix": "use `--output_dir`",
        "output_path": "leave it out: the average is written to the run directory",
    },
)

_EXPORTER = Table(
    toolkit="tensor2tensor",
    command="t2t-exporter",
    noun="flag",
    contexts=("export",),
    rows={
        "output_dir export_dir": "the same",
        "decode_hparams": "the same, with the keys below",
        "data_dir": "leave it out: the run directory has the vocabularies",
        "checkpoint_path": "use `--checkpoint`",
        "export_as_tfhub": "leave it out: a SavedModel is written; `--format` has the "
        "other formats",
        "as_text": "leave it out: a SavedModel is binary",
        "random_seed": "leave it out",
        **_SHARED,
    },
)

_QUERY = Table(
    toolkit="tensor2tensor",
    command="t2t-query-server",
    noun="flag",
    contexts=("serve",),
    rows={
        "server": "use `--host` and `--port`",
        "servable_name": "use `--model NAME=DIRECTORY`",
        "problem data_dir": "leave it out: the model has its vocabularies",
        "t2t_usr_dir": "use `--usr_dir`",
        "inputs_once": "leave it out: clients send texts over HTTP",
        "timeout_secs": "use `--limits`",
        "cloud_mlengine_model_name cloud_mlengine_model_version": _NO_CLOUD,
    },
)

_INSIGHTS = Table(
    toolkit="tensor2tensor",
    command="t2t-insights-server",
    noun="flag",
    contexts=("serve",),
    rows={
        "configuration": "use `--model NAME=DIRECTORY`",
        "static_path": "leave it out: the page is part of the package",
    },
)

_TF_CONFIGS = Table(
    toolkit="tensor2tensor",
    command="t2t-make-tf-configs",
    noun="flag",
    contexts=("launch",),
    rows={
        "masters": _MACHINES,
        "ps": "leave it out: there are no parameter servers",
    },
)

T2T_FLAGS = (
    *(_PROGRAMS, _TRAINER, _DATAGEN, _DECODER, _EVAL, _EXPORTER, _AVERAGE),
    *(_AVG_CHECKPOINTS, _BLEU, _TRANSLATE_ALL, _QUERY, _INSIGHTS, _TF_CONFIGS),
)
