"""Marian's programs and options (version 1.12)."""

from .table import Table

_NOT_HERE = "leave it out: there is no equivalent"
_RNN = "leave it out: there are no recurrent models"
_TWO_SIDES = "leave it out: there are no models for scores (COMET, BERT)"
_MACHINES = "use `t2t launch --processes N`; for several machines set `TF_CONFIG`"
_FILES = (
    "leave it out: `t2t datagen` writes the examples, and training reads them by index"
)
_DIVERGENCE = "leave it out: training stops with a message when the loss is not finite"
_SCHEDULE = (
    "use `--hparams schedule=F*G`: factors are constant, linear_warmup, rsqrt_decay, "
    "rsqrt_normalized_decay, rsqrt_hidden_size and registered ones"
)
_VALIDATION = "leave it out: the problem has its metrics"
_CPU = "set `CUDA_VISIBLE_DEVICES=-1` and `TF_NUM_INTRAOP_THREADS`"
_OWN_FORMAT = "use `t2t export --format ctranslate2 --quantization int8`"

_COMMON = {
    "config": "the same name, for a file of our flags",
    "-c": "use `--config`, for a file of our flags",
    "workspace -w": "leave it out: TensorFlow allocates memory as it is needed",
    "log quiet quiet-translation log-time-zone": "leave it out: standard error has the "
    "log, standard output the result",
    "log-level": "set `TF_CPP_MIN_LOG_LEVEL`",
    "interpolate-env-vars relative-paths dump-config authors cite build-info": (
        "leave it out"
    ),
    "devices -d num-devices": "set `CUDA_VISIBLE_DEVICES`; all visible GPUs are used",
    "cpu-threads": _CPU,
    "optimize gemm-type -g quantize-range": _OWN_FORMAT,
    "encryption-key-path": _NOT_HERE,
    "ignore-model-config model-mmap": "leave it out: the run has its hyper-parameters",
    "tsv tsv-fields": "leave it out: source and target are two files",
}

_PROGRAMS = Table(
    toolkit="Marian",
    command="Marian",
    noun="program",
    contexts=("t2t",),
    rows={
        "marian marian-train": "use `t2t datagen` and `t2t train`",
        "marian-decoder amun": "use `t2t translate`",
        "marian-server": "use `t2t serve`",
        "marian-scorer": "use `t2t score`",
        "marian-vocab": "use `t2t datagen`",
        "marian-conv": "use `t2t import` to read a model, `t2t export` to write one",
        "marian-embedder marian-evaluator": _NOT_HERE,
    },
)

# Of one program there, of `datagen` here.
_DATA_FLAGS = {
    "train-sets -t": "use `t2t datagen --train_source FILE --train_target FILE`",
    "valid-sets": "use `t2t datagen --dev_source FILE --dev_target FILE`",
    "vocabs -v sentencepiece-options": "use `t2t datagen --vocab FILE`, for a "
    "SentencePiece model or another run",
    "dim-vocabs": "use `t2t datagen --vocab_size N`",
    "max-length max-length-crop": "use `t2t datagen --max_length N`",
    "data-weighting data-weighting-type": "use `t2t datagen --mixture FILE`, with a "
    "weight for each corpus",
    "sentencepiece-max-lines": "leave it out: a sample of the training texts is drawn",
}

_DATA = Table(
    toolkit="Marian",
    command="marian",
    noun="flag",
    contexts=("datagen", "inspect"),
    rows={
        **_DATA_FLAGS,
        "guided-alignment": "use `t2t datagen --mixture FILE`, with `alignment` for "
        "each corpus",
        "sentencepiece-alphas": "use `t2t train --hparams bpe_dropout=X`",
        "tempdir -T": "leave it out: all files are in `--data_dir`",
        "data-threads": "use `t2t datagen --workers N`",
        "model -m": "use `t2t datagen --data_dir DIR`",
        **_COMMON,
    },
)

_MODEL = {
    "task=transformer-base": "use `--hparams_set base`",
    "task=transformer-big": "use `--hparams_set big`",
    "task=transformer-base-prenorm": "use `--hparams_set base --hparams norm=pre`",
    "task=transformer-big-prenorm": "use `--hparams_set big --hparams norm=pre`",
    "task": "use `--hparams_set`; `t2t list` prints the sets",
    "type": "leave it out: all models are Transformers",
    "enc-depth": "use `--hparams num_layers=N`",
    "dec-depth": "use `--hparams model=extended_transformer,num_decoder_layers=N`",
    "dim-emb": "use `--hparams d_model=N`",
    "transformer-dim-ffn transformer-decoder-dim-ffn": "use `--hparams d_ff=N`",
    "transformer-heads": "use `--hparams num_heads=N`",
    "transformer-ffn-activation=relu": "leave it out: the model has it",
    "transformer-ffn-activation=swish": "use `--hparams "
    "model=extended_transformer,activation=swish`",
    "transformer-ffn-activation": "leave it out: activations are relu and swish",
    "transformer-preprocess": "use `--hparams norm=pre` for n",
    "transformer-postprocess transformer-postprocess-top transformer-postprocess-emb": (
        "use `--hparams norm=post` for dan, `norm=pre` for da"
    ),
    "transformer-train-position-embeddings": "use `--hparams position=learned`",
    "transformer-dropout": "use `--hparams dropout=X`",
    "transformer-dropout-attention": "use `--hparams attention_dropout=X`",
    "transformer-dropout-ffn": "use `--hparams ffn_dropout=X`",
    "dropout-src": "use `--hparams word_dropout=X`",
    "dropout-trg": _NOT_HERE,
    "tied-embeddings tied-embeddings-src tied-embeddings-all": "use `--hparams "
    "share_embeddings=true`",
    "output-omit-bias": "leave it out: there is no such bias; extended_transformer has "
    "`output_bias`",
    "layer-normalization": "leave it out: the model has layer normalization",
    "dim-rnn enc-type enc-cell enc-cell-depth dec-cell dec-cell-base-depth "
    "dec-cell-high-depth skip best-deep right-left dropout-rnn "
    "transformer-rnn-projection char-stride char-highway char-conv-filters-num "
    "char-conv-filters-widths": _RNN,
    "transformer-no-projection transformer-pool transformer-ffn-depth "
    "transformer-decoder-ffn-depth transformer-dim-aan transformer-aan-depth "
    "transformer-aan-activation transformer-aan-nogate transformer-decoder-autoreg "
    "transformer-tied-layers transformer-depth-scaling transformer-attention-mask "
    "transformer-alibi-shift transformer-alibi-trainable alibi separator-symbol "
    "transformer-disable-position-embeddings transformer-no-bias "
    "transformer-no-affine factors-dim-emb factors-combine lemma-dependency "
    "lemma-dim-emb factor-weight input-types input-reorder input-join-fields ulr "
    "ulr-query-vectors ulr-keys-vectors ulr-trainable-transformation ulr-dim-emb "
    "ulr-dropout ulr-softmax-temperature embedding-vectors embedding-normalization "
    "embedding-fix-src embedding-fix-trg": "leave it out: the model does not have it",
    "transformer-guided-alignment-layer": "leave it out: the last layer but one is "
    "guided",
    "bert-mask-symbol bert-sep-symbol bert-class-symbol bert-masking-fraction "
    "bert-train-type-embeddings bert-type-vocab-size comet-final-sigmoid "
    "comet-stop-grad comet-mix comet-mix-norm comet-pool comet-mix-transformation "
    "comet-dropout comet-mixup comet-mixup-reg comet-augment-bad comet-pooler-ffn "
    "comet-prepend-zero comet-use-separator train-embedder-rank": _TWO_SIDES,
}

_OPTIMIZATION = {
    "learn-rate -l": "use `--hparams learning_rate=X`, the factor of the schedule: a "
    "rate R at the end of W steps of warm-up is X = R * sqrt(W * d_model)",
    "lr-warmup": "use `--hparams warmup_steps=N`",
    "lr-decay-inv-sqrt": "leave it out: it is the default `schedule`, from the end of "
    "`warmup_steps`",
    "lr-decay lr-decay-strategy": _SCHEDULE,
    "lr-decay-start lr-decay-freq lr-decay-reset-optimizer lr-decay-repeat-warmup "
    "lr-warmup-start-rate lr-warmup-cycle lr-warmup-at-reload": "leave it out: no "
    "factor of `--hparams schedule=F*G` has this parameter",
    "lr-report": "leave it out: metrics.jsonl has the learning rate",
    "optimizer -o": "use `--hparams optimizer=NAME`: adam, adamw or adafactor",
    "optimizer-params": "use `--hparams adam_beta1=X,adam_beta2=X,adam_epsilon=X`",
    "optimizer-delay": "use `--accumulate N`; `batch_tokens` counts the whole update's "
    "tokens",
    "sync-sgd": "leave it out: all GPUs make each update together",
    "label-smoothing": "use `--hparams label_smoothing=X`",
    "clip-norm": "use `--hparams clip_norm=X`",
    "exponential-smoothing": "use `--hparams ema_decay=X`, which is 1 minus Marian's",
    "exponential-smoothing-replace-freq": "leave it out: the average is kept beside "
    "the weights",
    "guided-alignment guided-alignment-weight": "use `--hparams guided_alignment=X`",
    "guided-alignment-cost": "leave it out: the loss of alignments is cross-entropy",
    "cost-type multi-loss-type unlikelihood-loss": "leave it out: the loss is the mean "
    "cross-entropy of tokens",
    "fp16 precision": "use `--hparams compute_dtype=float16`, or "
    "`compute_dtype=bfloat16`",
    "cost-scaling": "leave it out: `compute_dtype=float16` scales the loss by itself",
    "throw-on-divergence custom-fallbacks recover-from-fallback-after "
    "fp16-fallback-to-fp32 gradient-norm-average-window dynamic-gradient-scaling "
    "check-gradient-nan check-nan": _DIVERGENCE,
    "normalize-gradient normalize-gradient-by-ratio": "leave it out: the gradient is "
    "that of the mean over tokens",
    "quantize-bits quantize-optimization-steps quantize-log-based quantize-biases": (
        _OWN_FORMAT
    ),
}

_BATCHES = {
    "mini-batch mini-batch-words mini-batch-fit mini-batch-fit-step": "use `--hparams "
    "batch_tokens=N`; the largest batch is tried at the start",
    "mini-batch-words-ref mini-batch-warmup mini-batch-track-lr "
    "mini-batch-round-up": "leave it out: `batch_tokens` does not change in training",
    "maxi-batch maxi-batch-sort shuffle-in-ram shuffle no-shuffle no-restore-corpus "
    "tempdir -T sqlite sqlite-drop data-threads": _FILES,
    "gradient-checkpointing": "use `--accumulate N`, which needs less memory",
    "all-caps-every english-title-case-every": "use `--hparams case_noise=X`",
    "sentencepiece-alphas": "use `--hparams bpe_dropout=X`",
    "no-spm-encode": "leave it out: sources are texts",
}

_TRAINING = {
    "model -m": "use `--output_dir`",
    "pretrained-model": "use `--init_from`, for a run of `t2t import`",
    **_DATA_FLAGS,
    "overwrite overwrite-checkpoint": "use `--train_options keep=N`",
    "no-reload": "use a new `--output_dir`",
    "no-optimizer-reload": "use `--init_from`, which takes the weights only",
    "after -a after-batches after-epochs -e logical-epoch": "use `--train_steps`, "
    "which counts updates",
    "disp-freq": "use `--train_options log_every=N`",
    "disp-first disp-label-counts disp-label-index": "leave it out: metrics.jsonl "
    "has all of them",
    "save-freq": "use `--save_every`",
    "valid-freq": "use `--eval_every`",
    "valid-metrics": "use `--train_options best_by=loss`, or `best_by=metric`",
    "valid-mini-batch valid-max-length valid-reset-stalled valid-reset-all "
    "quiet-validation valid-script-path valid-script-args": _VALIDATION,
    "valid-translation-output": "use `t2t evaluate --output PREFIX`",
    "valid-log": "leave it out: metrics.jsonl has the scores",
    "keep-best": "leave it out: the best checkpoint is always kept",
    "early-stopping": "use `--patience`",
    "early-stopping-epsilon early-stopping-on": "leave it out: every improvement of "
    "`best_by` counts",
    "beam-size -b normalize -n max-length-factor word-penalty allow-unk n-best "
    "word-scores": "leave it out: dev sentences are decoded with the problem's "
    "defaults; `t2t translate` has flags for them",
    "seed": "the same",
    "sigterm": "leave it out: SIGTERM saves a checkpoint and ends the training",
    "no-nccl sharding sync-freq": "leave it out: tf.distribute sums the gradients",
    "multi-node multi-node-overlap": _MACHINES,
}

_TRAIN = Table(
    toolkit="Marian",
    command="marian",
    noun="flag",
    contexts=("train",),
    rows={**_MODEL, **_OPTIMIZATION, **_BATCHES, **_TRAINING, **_COMMON},
)

_DECODER = Table(
    toolkit="Marian",
    command="marian-decoder",
    noun="flag",
    contexts=("translate", "evaluate", "export", "decode_hparams"),
    rows={
        "models -m": "use `t2t import`, then `--output_dir`; several are an "
        "`--ensemble`",
        "vocabs -v": "leave it out: the run directory has the vocabularies",
        "input -i": "use `t2t translate --input FILE`",
        "output -o": "use `t2t translate --output FILE`",
        "beam-size -b": "use `--beam_size`",
        "normalize -n": "use `--alpha X --decode_hparams length_penalty=power`",
        "word-penalty": "leave it out; `--alpha` changes lengths",
        "max-length-factor": "use `--decode_hparams extra_length=N`, added to the "
        "source's length",
        "max-length max-length-crop": "use `--decode_hparams "
        "max_source_length=N,truncate=true`",
        "allow-unk allow-special": "leave it out: SentencePiece models made here have "
        "no unknown characters",
        "n-best": "use `t2t translate --n_best N`",
        "word-scores": "use `t2t translate --token_scores`",
        "alignment": "use `t2t translate --alignments FILE`",
        "force-decode": "use the argument prefixes of `translate` in Python",
        "output-sampling": "use `--decode_hparams sampling=true`",
        "seed": "use `--decode_hparams sampling=true,seed=N`",
        "mini-batch mini-batch-words maxi-batch maxi-batch-sort": "use "
        "`--decode_hparams batch_tokens=N`",
        "no-spm-decode no-spm-encode": "leave it out: inputs and outputs are texts",
        "fp16 precision": "use `t2t export --format ctranslate2 --quantization "
        "float16`",
        "shortlist output-approx-knn skip-cost weights stat-freq data-threads": (
            _NOT_HERE
        ),
        **_COMMON,
    },
)

_SERVER = Table(
    toolkit="Marian",
    command="marian-server",
    noun="flag",
    contexts=("serve",),
    rows={
        "port -p": "use `--port`",
        "models -m": "use `t2t serve NAME=DIRECTORY`",
        "vocabs -v": "leave it out: the model has its vocabularies",
        "beam-size -b": "use `--beam_size`",
        "normalize -n": "use `--alpha X --decode_hparams length_penalty=power`",
        "n-best": "use `--n_best`",
        "mini-batch maxi-batch": "use `--limits`",
        **_COMMON,
    },
)

_SCORER = Table(
    toolkit="Marian",
    command="marian-scorer",
    noun="flag",
    contexts=("score",),
    rows={
        "model -m": "use `--model`, for a run of `t2t import`",
        "train-sets -t": "use `--source FILE --target FILE`",
        "vocabs -v": "leave it out: the run directory has the vocabularies",
        "output -o": "use `--output`",
        "word-scores": "use `--token_scores`",
        "n-best n-best-feature summary normalize -n alignment no-reload": _NOT_HERE,
        "fp16 precision": "leave it out: the run has its `compute_dtype`",
        "mini-batch maxi-batch": "leave it out: batches are made by length",
        **_COMMON,
    },
)

MARIAN = (_PROGRAMS, _DATA, _TRAIN, _DECODER, _SERVER, _SCORER)
