"""fairseq's programs and options (version 0.12): translation with Transformers."""

from .table import Table

_NOT_HERE = "leave it out: the model does not have it"
_LOGS = "leave it out: metrics are in metrics.jsonl and in TensorBoard's events"
_PROCESSES = "use `t2t launch --processes N`; for several machines set `TF_CONFIG`"
_LESS_MEMORY = "use `--accumulate N`, which needs less memory"
_NO_SPLIT = "leave it out: each GPU has a copy of the model"
_LOSS_SCALE = "leave it out: `compute_dtype=float16` scales the loss by itself"
_ONE_STATE = "leave it out: a run resumes with all of its state"
_SPM = (
    "leave it out: texts are split by SentencePiece, whose vocabulary is in the data "
    "directory; --vocab takes a model of your own"
)
_SPLIT_FILE = "leave it out: split the file for several processes"

_PROGRAMS = Table(
    toolkit="fairseq",
    command="fairseq",
    noun="program",
    contexts=("t2t",),
    rows={
        "fairseq-preprocess preprocess": "use `t2t datagen`",
        "fairseq-train fairseq-hydra-train": "use `t2t train`",
        "fairseq-generate generate": "use `t2t evaluate --output FILE` for a split, "
        "`t2t translate` for a file",
        "fairseq-interactive interactive": "use `t2t translate`",
        "fairseq-score": "use `t2t evaluate --hypotheses FILE --references FILE`",
        "fairseq-validate validate": "use `t2t evaluate`",
        "fairseq-eval-lm eval-lm": "leave it out: there are no language models",
        "average_checkpoints average_checkpoints.py": "use `t2t average --last N`",
    },
)

_PREPROCESS = Table(
    toolkit="fairseq",
    command="fairseq-preprocess",
    noun="flag",
    contexts=("datagen", "inspect"),
    rows={
        "trainpref": "use `--train_source FILE --train_target FILE`",
        "validpref": "use `--dev_source FILE --dev_target FILE`",
        "testpref": "use `--test_source FILE --test_target FILE`",
        "source-lang target-lang -s -t": "use `--languages`",
        "destdir": "use `--data_dir`",
        "joined-dictionary": "leave it out: a problem has one vocabulary for both "
        "sides, except for parsing",
        "nwordssrc nwordstgt": "use `--vocab_size`",
        "thresholdsrc thresholdtgt": "leave it out: SentencePiece makes the vocabulary",
        "srcdict tgtdict": "use `--vocab`, for a SentencePiece model or another run",
        "alignfile align-suffix": "use `--mixture`, with `alignment` for each corpus",
        "workers": "the same",
        "user-dir": "use `--usr_dir`",
        "only-source": "leave it out: `t2t translate` reads text files",
        "dataset-impl padding-factor": "leave it out: data are TFRecords",
        "dict-only": "leave it out: vocabulary and data are made together",
        "task": "use `--problem`",
        "seed": "the same",
        "bpe tokenizer sentencepiece-model bpe-codes": _SPM,
    },
)

_MODEL = {
    "arch=transformer arch=transformer_wmt_en_de": "use `--hparams_set base`",
    "arch=transformer_iwslt_de_en": "use `--hparams_set pairs_300k`",
    "arch=transformer_tiny": "use `--hparams_set tiny`, which is larger",
    "arch=transformer_vaswani_wmt_en_de_big": "use `--hparams_set big`",
    "arch=transformer_vaswani_wmt_en_fr_big": "use `--hparams_set big_enfr`",
    "arch=transformer_wmt_en_de_big": "use `--hparams_set big --hparams "
    "attention_dropout=0.1`",
    "arch=transformer_wmt_en_de_big_t2t": "use `--hparams_set transformer_big`, with "
    "tensor2tensor's values",
    "arch -a": "use `--hparams_set`; `t2t list` prints the sets",
    "encoder-layers": "use `--hparams num_layers=N`",
    "decoder-layers": "use `--hparams model=extended_transformer,num_decoder_layers=N`",
    "encoder-embed-dim decoder-embed-dim": "use `--hparams d_model=N`",
    "encoder-ffn-embed-dim decoder-ffn-embed-dim": "use `--hparams d_ff=N`",
    "encoder-attention-heads decoder-attention-heads": "use `--hparams num_heads=N`",
    "encoder-normalize-before decoder-normalize-before": "use `--hparams norm=pre`",
    "encoder-learned-pos decoder-learned-pos": "use `--hparams position=learned`",
    "max-source-positions max-target-positions": "use `t2t datagen --max_length N`",
    "share-all-embeddings merge-src-tgt-embed share-decoder-input-output-embed": "use "
    "`--hparams share_embeddings=true`",
    "dropout": "use `--hparams dropout=X`",
    "attention-dropout": "use `--hparams attention_dropout=X`",
    "activation-dropout relu-dropout": "use `--hparams ffn_dropout=X`",
    "activation-fn=relu": "leave it out: the model has it",
    "activation-fn=swish": "use `--hparams "
    "model=extended_transformer,activation=swish`",
    "activation-fn": "leave it out: activations are relu and swish",
    "no-token-positional-embeddings no-scale-embedding layernorm-embedding "
    "no-cross-attention cross-self-attention encoder-layerdrop decoder-layerdrop "
    "encoder-layers-to-keep decoder-layers-to-keep adaptive-input "
    "adaptive-softmax-cutoff adaptive-softmax-dropout adaptive-softmax-factor "
    "tie-adaptive-weights tie-adaptive-proj quant-noise-pq quant-noise-pq-block-size "
    "quant-noise-scalar no-decoder-final-norm char-inputs base-layers base-sublayers "
    "base-shuffle decoder-output-dim decoder-input-dim encoder-xformers-att-config "
    "decoder-xformers-att-config export": _NOT_HERE,
    "encoder-embed-path decoder-embed-path": "leave it out: embeddings of words are "
    "not read; `--init_from` takes those of a run",
    "checkpoint-activations offload-activations": _LESS_MEMORY,
    "min-params-to-wrap": _NO_SPLIT,
}

_OPTIMIZATION = {
    "criterion=label_smoothed_cross_entropy": "use `--hparams label_smoothing=X`",
    "criterion=cross_entropy": "use `--hparams label_smoothing=0`",
    "criterion=label_smoothed_cross_entropy_with_alignment": "use `--hparams "
    "guided_alignment=X`",
    "criterion": "leave it out: the loss is cross-entropy with label smoothing",
    "label-smoothing": "use `--hparams label_smoothing=X`",
    "alignment-lambda load-alignments": "use `--hparams guided_alignment=X`",
    "report-accuracy ignore-prefix-size sentence-avg": "leave it out: the loss is "
    "the mean over tokens",
    "optimizer": "use `--hparams optimizer=NAME`: adam, adamw or adafactor",
    "adam-betas": "use `--hparams adam_beta1=X,adam_beta2=X`",
    "adam-eps": "use `--hparams adam_epsilon=X`",
    "weight-decay": "use `--hparams optimizer=adamw,weight_decay=X`",
    "use-old-adam fp16-adam-stats": "leave it out: Adam's state is float32",
    "lr": "use `--hparams learning_rate=X`, the factor of the schedule: a rate R at "
    "the end of W steps of warm-up is X = R * sqrt(W * d_model)",
    "lr-scheduler=inverse_sqrt": "leave it out: it is the default `schedule`",
    "lr-scheduler=fixed": "use `--hparams schedule=constant`",
    "lr-scheduler": "use `--hparams schedule=F*G`: factors are constant, "
    "linear_warmup, rsqrt_decay, rsqrt_normalized_decay, rsqrt_hidden_size and "
    "registered ones",
    "warmup-updates": "use `--hparams warmup_steps=N`",
    "warmup-init-lr": "leave it out: warm-up begins near 0",
    "stop-min-lr min-lr lr-shrink lr-patience lr-threshold force-anneal "
    "lr-period-updates t-mult end-learning-rate power total-num-update max-lr "
    "shrink-min": "leave it out: no factor of `--hparams schedule=F*G` has this "
    "parameter",
    "momentum": "leave it out: the optimizers are adam, adamw and adafactor",
    "clip-norm": "use `--hparams clip_norm=X`",
    "update-freq": "use `--accumulate N`; `batch_tokens` counts the whole update's "
    "tokens",
    "max-tokens batch-size max-sentences": "use `--hparams batch_tokens=N`, the tokens "
    "of an update on all GPUs",
    "max-tokens-valid batch-size-valid": "leave it out: dev batches are those of "
    "`batch_tokens`",
    "max-epoch max-update": "use `--train_steps`, which counts updates",
    "stop-time-hours": "use `--train_options max_minutes=M`",
    "use-bmuf": "leave it out: gradients are summed at each step",
    "store-ema ema-decay": "use `--hparams ema_decay=X`",
    "ema-start-update ema-seed-model ema-update-freq ema-fp32": "leave it out: the "
    "average has only `--hparams ema_decay=X`",
    "skip-remainder-batch debug-param-names": "leave it out",
    "fp16 memory-efficient-fp16 amp": "use `--hparams compute_dtype=float16`",
    "bf16 memory-efficient-bf16": "use `--hparams compute_dtype=bfloat16`",
    "fp16-init-scale fp16-scale-window fp16-scale-tolerance min-loss-scale "
    "threshold-loss-scale fp16-no-flatten-grads on-cpu-convert-precision "
    "amp-batch-retries amp-init-scale amp-scale-window": _LOSS_SCALE,
}

_SAVING = {
    "save-dir": "use `--output_dir`",
    "restore-file continue-once": "use the same `--output_dir`, whose run is resumed",
    "finetune-from-model": "use `--init_from`",
    "reset-optimizer reset-lr-scheduler reset-dataloader reset-meters": "use "
    "`--init_from` with a new `--output_dir`",
    "optimizer-overrides": "use `--change_settings`",
    "save-interval save-interval-updates": "use `--save_every`, which counts steps",
    "keep-interval-updates keep-last-epochs keep-best-checkpoints": "use "
    "`--train_options keep=N`",
    "keep-interval-updates-pattern no-epoch-checkpoints no-last-checkpoints no-save": (
        "leave it out: `--train_options keep=N` checkpoints, the best one and the "
        "average are kept"
    ),
    "no-save-optimizer-state": _ONE_STATE,
    "best-checkpoint-metric": "use `--train_options best_by=loss`, or `best_by=metric`",
    "maximize-best-checkpoint-metric": "leave it out: the metric has its direction",
    "patience": "the same",
    "checkpoint-suffix checkpoint-shard-count load-checkpoint-on-all-dp-ranks "
    "write-checkpoints-asynchronously": "leave it out: the chief writes checkpoints",
    "validate-interval validate-interval-updates validate-after-updates": "use "
    "`--eval_every`, which counts steps",
    "disable-validation": "set `--eval_every` above the number of steps",
    "max-valid-steps fixed-validation-seed valid-subset combine-valid-subsets "
    "ignore-unused-valid-subsets": "leave it out: all dev sentences have a loss, and "
    "`--eval_sentences` are decoded",
    "eval-bleu": "use `--eval_sentences`, the number of sentences that are decoded",
    "eval-bleu-args eval-bleu-detok eval-bleu-detok-args eval-tokenized-bleu "
    "eval-bleu-remove-bpe eval-bleu-print-samples": "leave it out: the problem has its "
    "metrics",
}

_DATA_AND_DEVICES = {
    "source-lang target-lang -s -t": "leave it out: the data directory has the "
    "languages",
    "task=translation": "leave it out: `--problem` names the task",
    "task": "use `--problem`; `t2t list` prints the problems",
    "train-subset": "leave it out: the training split is train",
    "num-workers data-buffer-size dataset-impl required-batch-size-multiple "
    "required-seq-len-multiple skip-invalid-size-inputs-valid-test "
    "left-pad-source left-pad-target grouped-shuffling update-epoch-batch-itr "
    "update-ordered-indices-seed curriculum": "leave it out: batches are made from the "
    "index of the data, in an order that follows from the seed",
    "num-batch-buckets": "use `--hparams bucketing=packed`, or `bucketing=static`",
    "upsample-primary": "use `t2t datagen --mixture FILE`, with a weight for each "
    "corpus",
    "truncate-source": "leave it out: `t2t datagen --max_length N` leaves out longer "
    "pairs",
    "user-dir": "use `--usr_dir`",
    "seed": "the same",
    "cpu": "set `CUDA_VISIBLE_DEVICES=-1`",
    "device-id": "set `CUDA_VISIBLE_DEVICES`",
    "tpu": "leave it out: TPUs are not supported",
    "distributed-world-size distributed-num-procs distributed-rank nprocs-per-node "
    "distributed-init-method distributed-port distributed-backend "
    "distributed-no-spawn": _PROCESSES,
    "ddp-backend ddp-comm-hook bucket-cap-mb fix-batches-to-gpus "
    "find-unused-parameters "
    "gradient-as-bucket-view fast-stat-sync heartbeat-timeout broadcast-buffers "
    "all-gather-list-size slowmo-momentum slowmo-base-algorithm localsgd-frequency": (
        "leave it out: tf.distribute sums the gradients at each step"
    ),
    "pipeline-model-parallel pipeline-balance pipeline-devices pipeline-chunks "
    "pipeline-encoder-balance pipeline-encoder-devices pipeline-decoder-balance "
    "pipeline-decoder-devices pipeline-checkpoint zero-sharding model-parallel-size "
    "no-reshard-after-forward fp32-reduce-scatter cpu-offload use-sharded-state "
    "not-fsdp-flatten-parameters": _NO_SPLIT,
    "log-interval": "use `--train_options log_every=N`",
    "log-format log-file no-progress-bar tensorboard-logdir azureml-logging "
    "aim-repo aim-run-hash": _LOGS,
    "wandb-project": "use `--callbacks`, for a Keras callback",
    "empty-cache-freq quantization-config-path profile reset-logging suppress-crashes "
    "use-plasma-view plasma-path": "leave it out",
}

_TRAIN = Table(
    toolkit="fairseq",
    command="fairseq-train",
    noun="flag",
    contexts=("train",),
    rows={**_MODEL, **_OPTIMIZATION, **_SAVING, **_DATA_AND_DEVICES},
)

_GENERATE = Table(
    toolkit="fairseq",
    command="fairseq-generate",
    noun="flag",
    contexts=("translate", "evaluate", "export", "serve", "decode_hparams"),
    rows={
        "path": "use `t2t translate --output_dir RUN --checkpoint WHICH`; several are "
        "an `--ensemble`",
        "beam": "use `--beam_size`",
        "nbest": "use `t2t translate --n_best N`",
        "lenpen": "use `--alpha X --decode_hparams length_penalty=power`",
        "unnormalized": "use `--alpha 0`",
        "max-len-a": "leave it out: an output has at most the source's length and "
        "`extra_length` tokens",
        "max-len-b": "use `--decode_hparams extra_length=N`",
        "min-len": "use `--decode_hparams min_length=N`",
        "match-source-len": "leave it out",
        "no-repeat-ngram-size": "use `--decode_hparams no_repeat_ngram=N`",
        "sampling diverse-beam-groups diverse-beam-strength diversity-rate": "use "
        "`--decode_hparams sampling=true`",
        "sampling-topk": "use `--decode_hparams sampling=true,top_k=N`",
        "sampling-topp": "use `--decode_hparams sampling=true,top_p=X`",
        "temperature": "use `--decode_hparams sampling=true,temperature=X`",
        "seed no-seed-provided": "use `--decode_hparams sampling=true,seed=N`",
        "constraints": "use `--decode_hparams glossary=FILE`",
        "prefix-size": "use the argument prefixes of `translate` in Python",
        "unkpen replace-unk": "leave it out: SentencePiece models made here have no "
        "unknown characters",
        "print-alignment": "use `t2t translate --alignments FILE`",
        "print-step quiet no-progress-bar": "leave it out",
        "score-reference": "use `t2t score`",
        "sacrebleu scoring sacrebleu-tokenizer": "use `t2t evaluate`; "
        "`--tokenize` chooses sacreBLEU's tokenizer",
        "gen-subset": "use `t2t evaluate --split NAME`",
        "results-path": "use `t2t evaluate --output PREFIX`",
        "input": "use `t2t translate --input FILE`",
        "buffer-size": "leave it out: files are decoded in parts",
        "max-tokens batch-size max-sentences": "use `--decode_hparams batch_tokens=N`",
        "remove-bpe post-process bpe tokenizer sentencepiece-model bpe-codes "
        "moses-no-dash-splits moses-no-escape": "leave it out: outputs are texts",
        "model-overrides": "leave it out: the run has its hyper-parameters",
        "source-lang target-lang -s -t task": "leave it out: the run directory has "
        "them",
        "user-dir": "use `--usr_dir`",
        "num-shards shard-id num-workers": _SPLIT_FILE,
        "fp16 bf16 memory-efficient-fp16": "leave it out: the run has its "
        "`compute_dtype`",
        "cpu": "set `CUDA_VISIBLE_DEVICES=-1`",
        "no-early-stop no-beamable-mm": "leave it out: the search ends when no "
        "hypothesis can become better",
        "skip-invalid-size-inputs-valid-test": "leave it out: long inputs are split",
        "lm-path lm-weight retain-dropout retain-dropout-modules decoding-format "
        "iter-decode-eos-penalty iter-decode-max-iter iter-decode-force-max-iter "
        "iter-decode-with-beam iter-decode-with-external-reranker retain-iter-history "
        "beam-mt nbest-mt max-len-a-mt max-len-b-mt lenpen-mt eos-token": _NOT_HERE,
    },
)

_SCORE = Table(
    toolkit="fairseq",
    command="fairseq-score",
    noun="flag",
    contexts=("evaluate",),
    rows={
        "sys -s": "use `--hypotheses`",
        "ref -r": "use `--references`",
        "sacrebleu": "leave it out: BLEU is sacreBLEU's",
        "order -o ignore-case sentence-bleu": "leave it out",
    },
)

_AVERAGE = Table(
    toolkit="fairseq",
    command="average_checkpoints.py",
    noun="flag",
    contexts=("average",),
    rows={
        "inputs": "use `--output_dir`",
        "output": "leave it out: the average is written to the run directory",
        "num-epoch-checkpoints num-update-checkpoints num-best-checkpoints": "use "
        "`--last`",
        "checkpoint-upper-bound": "leave it out: the newest checkpoints are averaged",
    },
)

FAIRSEQ = (_PROGRAMS, _PREPROCESS, _TRAIN, _GENERATE, _SCORE, _AVERAGE)
