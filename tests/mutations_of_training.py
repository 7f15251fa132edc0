"""Deliberate faults for `mutations.py`: sections 5 and 6; see `mutations_of_model`.

Left out, because nothing can tell it from the original: `ReduceOp.MEAN` in place of
`SUM` in the training step (gradients and token counts shrink alike, and the update is
their ratio).
"""

TRAINING = {
    "5.1 en-de": {
        "problems/translate.py": [
            ("ende-vocabulary", "vocab_size=37_000", "vocab_size=32_000"),
            ("enfr-vocabulary", "vocab_size=32_000", "vocab_size=37_000"),
        ],
    },
    "5.1 Batches": {
        "t2t_keras/hparam.py": [
            (
                "batch-of-4096",
                "batch_tokens: int = option(\n        25_000,",
                "batch_tokens: int = option(\n        4096,",
            ),
        ],
        "t2t_keras/data/batch_plan.py": [
            (
                "budget-of-the-source-alone",
                "self._longer = np.maximum(source_length, target_length)",
                "self._longer = source_length",
            ),
            (
                "every-epoch-the-same",
                "np.random.default_rng((self._seed, epoch))",
                "np.random.default_rng((self._seed, 1))",
            ),
        ],
    },
    "5.2 Eight": {
        "t2t_keras/hparam.py": [
            (
                "base-steps",
                "train_steps: int = option(100_000,",
                "train_steps: int = option(10_000,",
            ),
        ],
        "hparams/paper.py": [
            ("big-steps", "train_steps=300_000", "train_steps=100_000"),
        ],
        "t2t_keras/training/step.py": [
            (
                "mean-of-each-replica",
                "[tf.ensure_shape(g, g.shape) for g in gradients]",
                "[tf.identity(g / count_tokens(target)) for g in gradients]",
            ),
            (
                "last-micro-batch-alone",
                "tf.nest.map_structure(tf.add, sums, more)",
                "more",
            ),
        ],
    },
    "5.3 Adam": {
        "t2t_keras/hparam.py": [
            (
                "beta1",
                "adam_beta1: float = option(\n        0.9,",
                "adam_beta1: float = option(\n        0.8,",
            ),
            (
                "beta2",
                "adam_beta2: float = option(\n        0.98,",
                "adam_beta2: float = option(\n        0.997,",
            ),
            (
                "adam-epsilon",
                "adam_epsilon: float = option(\n        1e-9,",
                "adam_epsilon: float = option(\n        1e-7,",
            ),
        ],
        "t2t_keras/training/optimizer.py": [
            ("bias-not-corrected", "beta2_power=beta2_power", "beta2_power=0.0"),
            ("nesterov", "grad=gradient,", "grad=gradient, use_nesterov=True,"),
        ],
    },
    "5.3 lrate": {
        "t2t_keras/hparam.py": [
            (
                "warm-up-8000",
                "warmup_steps: int = option(\n        4000,",
                "warmup_steps: int = option(\n        8000,",
            ),
        ],
        "t2t_keras/training/optimizer.py": [
            (
                "rate-without-warm-up",
                '"linear_warmup": lambda hparams, step: min(1.0,',
                '"linear_warmup": lambda hparams, step: max(1.0,',
            ),
            (
                "rate-falls-linearly",
                "max(step, hparams.warmup_steps) ** -0.5",
                "max(step, hparams.warmup_steps) ** -1.0",
            ),
            ("rate-of-any-width", "hparams.d_model**-0.5", "512**-0.5 + 0.0"),
        ],
        "t2t_keras/training/trainer.py": [
            (
                "rate-of-the-step-before",
                "for n in range(first + 1, done + 1)",
                "for n in range(first, done)",
            ),
        ],
        "t2t_keras/training/step.py": [
            ("adam-counts-from-2", "tf.maximum(step + 1 -", "tf.maximum(step + 2 -"),
        ],
    },
    "5.4 Dropout": {
        "t2t_keras/hparam.py": [
            (
                "dropout-0.2",
                "    dropout: float = option(\n        0.1,",
                "    dropout: float = option(\n        0.2,",
            ),
            (
                "attention-dropout",
                "attention_dropout: float = option(\n        0.0,",
                "attention_dropout: float = option(\n        0.1,",
            ),
        ],
        "t2t_keras/model/layers.py": [
            (
                "dropout-of-the-sum-post-norm",
                "x = x + self.dropout(y, seed=seed)",
                "x = x + y if self.norm_first else self.dropout(x + y, seed=seed)",
            ),
            (
                "dropout-after-the-norm",
                "return x if self.norm_first else self.norm(x)",
                "return x if self.norm_first else "
                "self.dropout(self.norm(x), seed=seed)",
            ),
            (
                "dropout-of-the-sum-pre-norm",
                "x = x + self.dropout(y, seed=seed)",
                "x = self.dropout(x + y, seed=seed)",
            ),
        ],
        "t2t_keras/model/transformer.py": [
            (
                "no-dropout-of-the-source",
                "x = self.source_dropout(x, seed=seed)",
                "x = self.source_dropout(x)",
            ),
            (
                "dropout-before-the-positions",
                "x = self.source_dropout(x, seed=seed)",
                "signal = self._add_positions(0 * x, 0)\n"
                "        x = self.source_dropout(x - signal, seed=seed) + signal",
            ),
            (
                "dropout-of-target-positions",
                "y = self.target_dropout(y, seed=seed)",
                "signal = self._add_positions(0 * y, 0)\n"
                "        y = self.target_dropout(y - signal, seed=seed) + signal",
            ),
        ],
    },
    "5.4 Label smoothing": {
        "t2t_keras/hparam.py": [
            (
                "no-label-smoothing",
                "label_smoothing: float = option(\n        0.1,",
                "label_smoothing: float = option(\n        0.0,",
            ),
        ],
        "t2t_keras/model/loss.py": [
            (
                "smoothing-over-all-pieces",
                "smoothing / (logits.shape[-1] - 1)",
                "smoothing / logits.shape[-1]",
            ),
        ],
        "t2t_keras/model/gradients.py": [
            (
                "gradient-without-smoothing",
                "excess = label_probability - (1.0 - smoothing - rest)",
                "excess = label_probability - 1.0",
            ),
            (
                "gradient-with-the-labels-twice",
                "others = _without(probabilities, labels)",
                "others = probabilities",
            ),
            (
                "copies-of-a-row-count",
                "return x / share_left if copies else x",
                "return x",
            ),
        ],
        "t2t_keras/evaluation/evaluator.py": [
            ("dev-loss-smoothed", "smoothing=0.0)[1]", "smoothing=0.1)[0]"),
        ],
    },
    "6.1 Average of the last": {
        "t2t_keras/runs/average.py": [
            ("average-of-the-first", "steps = steps[-last:]", "steps = steps[:last]"),
            ("sum-for-average", "total / len(checkpoints)", "total"),
            ("average-of-adam-too", 'name.startswith("model/")', 'name != "step"'),
        ],
        "t2t_keras/runs/train_options.py": [
            (
                "ten-kept",
                "keep: int = option(\n        20,",
                "keep: int = option(\n        10,",
            ),
            (
                "one-averaged",
                "average_last: int = option(\n        10,",
                "average_last: int = option(\n        1,",
            ),
        ],
        "t2t_keras/training/trainer.py": [
            (
                "minutes-are-seconds",
                "(time.monotonic() - self._saved_time) / 60",
                "time.monotonic() - self._saved_time",
            ),
        ],
    },
    "6.1 Beam 4": {
        "t2t_keras/problem.py": [
            (
                "problem-beam-5",
                "beam_size: int = 4",
                "beam_size: int = 5",
            ),
            (
                "problem-alpha-1",
                "alpha: float = 0.6",
                "alpha: float = 1.0",
            ),
            (
                "problem-100-longer",
                "extra_length: int = 50",
                "extra_length: int = 100",
            ),
        ],
        "t2t_keras/decoding/options.py": [
            (
                "beam-5",
                "beam_size: int = _option(\n        4",
                "beam_size: int = _option(5",
            ),
            (
                "alpha-1",
                "alpha: float = _option(\n        0.6",
                "alpha: float = _option(1.0",
            ),
            ("100-longer", "        50,\n", "        100,\n"),
            (
                "problems-alpha-ignored",
                'gnmt and power",\n        from_problem=True,\n',
                'gnmt and power",\n',
            ),
        ],
        "t2t_keras/decoding/loop.py": [
            (
                "penalty-is-length",
                "tf.pow((5.0 + length) / 6.0, alpha)",
                "tf.pow(length, alpha)",
            ),
            ("done-rows-stay", "tf.where(~state.done)", "tf.where(state.done)"),
            (
                "results-of-other-rows",
                "tf.cumsum(tf.cast(is_active, tf.int32)) - 1",
                "tf.cumsum(tf.cast(is_active, tf.int32))",
            ),
        ],
        "t2t_keras/decoding/beam_search.py": [
            (
                "finished-by-log-probability",
                "_best(both, _scores(both, penalty), ",
                "_best(both, both.log_probs, ",
            ),
            (
                "stops-too-early",
                "attainable = state.alive.log_probs[:, 0] / largest_penalty",
                "attainable = state.alive.log_probs[:, 0]",
            ),
            ("never-stops-early", "axis=1) >= attainable", "axis=1) > 0 * attainable"),
            (
                "padding-is-generated",
                "~only(PAD, vocab_size)",
                "~only(-1, vocab_size)",
            ),
            (
                "no-more-candidates-than-beams",
                "tf.where(beam_size == 1, 1, 2 * beam_size)",
                "beam_size",
            ),
            ("cache-not-reordered", "model.reorder_cache(cache, parents)", "cache"),
        ],
        "t2t_keras/decoding/search.py": [
            (
                "limit-without-the-input",
                'limits = tf.maximum(lengths + values["extra_length"], 1)',
                'limits = tf.maximum(0 * lengths + values["extra_length"], 1)',
            ),
        ],
    },
    "6.2, Table 3": {
        "hparams/table3.py": [
            ("row-b-both-sizes", '{"d_k": 16}', '{"d_k": 16, "d_v": 16}'),
            ("row-d-dropout", '{"dropout": 0.0}', '{"dropout": 0.01}'),
        ],
        "hparams/paper.py": [
            ("big-dropout", "dropout=0.3", "dropout=0.1"),
            ("big-heads", "num_heads=16", "num_heads=8"),
        ],
    },
    "6.1 en-fr": {
        "hparams/paper.py": [
            ("big-french-dropout", "override(dropout=0.1)", "override(dropout=0.3)"),
        ],
    },
    "6.3 Parsing": {
        "hparams/paper.py": [
            (
                "parser-of-6-layers",
                "HParams(num_layers=4, d_model=1024)",
                "HParams(d_model=1024)",
            ),
        ],
        "problems/parsing.py": [
            ("parsing-vocabulary", "vocab_size=16_000", "vocab_size=32_000"),
            ("semi-supervised-vocabulary", "vocab_size=32_000", "vocab_size=16_000"),
            ("parsing-beam", "beam_size=21", "beam_size=4"),
            ("parsing-alpha", "alpha=0.3", "alpha=0.6"),
            ("parsing-length", "extra_length=300", "extra_length=50"),
        ],
    },
    "Table 4": {
        "t2t_keras/parsing/evalb.py": [
            ("brackets-match-twice", "                del labels[position]\n", ""),
            (
                "function-tags-count",
                'cut = (\n            _Bracket(_FUNCTION.sub("", b.label),',
                "cut = (\n            _Bracket(b.label,",
            ),
            ("errors-in-f1", "if s.status == VALID]", "if s.status != SKIP]"),
            (
                "nested-is-crossing",
                "start < bracket.start < end < bracket.end",
                "start <= bracket.start < end < bracket.end",
            ),
        ],
        "t2t_keras/parsing/balanced_brackets.py": [
            (
                "root-closed-early",
                "((depth > 1) | ~has_words)",
                "((depth > 0) | ~has_words)",
            ),
            (
                "no-room-for-closers",
                "opener = has_words & (spare >= 2)",
                "opener = has_words",
            ),
            ("empty-brackets", "closer = (state.openers == 0) & ", "closer = "),
        ],
    },
    "Table 2, en-de": {
        "t2t_keras/metrics/bleu.py": [
            (
                "punctuation-of-references-too",
                "    if ascii_quotes:\n",
                "    references = moses.replace_unicode_punctuation(references)\n"
                "    if ascii_quotes:\n",
            ),
            ("quotes-never-ascii", "if ascii_quotes:\n", "if False:\n"),
        ],
    },
    "Table 2, en-fr": {
        "t2t_keras/metrics/bleu.py": [
            (
                "french-compounds-split",
                "hypotheses = moses.tokenize(hypotheses, language)\n"
                "    references = moses.tokenize(references, language)",
                "split, tokenize = moses.split_compounds, moses.tokenize\n"
                "    hypotheses = split(tokenize(hypotheses, language))\n"
                "    references = split(tokenize(references, language))",
            ),
        ],
    },
}
