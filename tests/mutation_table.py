"""Deliberate faults for `mutations.py`: statement of the paper -> file -> faults.

A statement is how a row of `docs/paper.md` begins. A fault is its name, the text that
the file has, exactly once, and what takes its place.

Left out, because no test can tell them from the original: MASKED -1e9 as -1e8 (both
give weights of exactly 0 in float32); `ReduceOp.MEAN` for `SUM` in the training step
(gradients and token counts shrink alike, and only their ratio is used); sinusoids in
float64 (rounded to float32 in the end).
"""

TABLE = {
    "3.1 Encoder and decoder of N": {
        "t2t_keras/hparam.py": [
            ("layers-5", "num_layers: int = 6", "num_layers: int = 5"),
            ("width-256", "d_model: int = 512", "d_model: int = 256"),
        ],
        "t2t_keras/model/decoder.py": [
            (
                "decoder-source-first",
                "            self_attention,\n            cross_attention,\n",
                "            cross_attention,\n            self_attention,\n",
            ),
        ],
    },
    "3.1 Every sub-layer": {
        "t2t_keras/layers/residual.py": [
            (
                "no-residual-connection",
                "self.norm(x + self.dropout(sublayer(x), seed=seed))",
                "self.norm(self.dropout(sublayer(x), seed=seed))",
            ),
        ],
        "t2t_keras/layers/layer_norm.py": [
            ("epsilon-of-keras", "EPSILON = 1e-6", "EPSILON = 1e-3"),
            (
                "epsilon-outside-the-root",
                "ops.rsqrt(variance + EPSILON)",
                "1 / (ops.sqrt(variance) + EPSILON)",
            ),
        ],
        "t2t_keras/hparam.py": [
            (
                "pre-norm-by-default",
                'norm: Literal["post", "pre"] = "post"',
                'norm: Literal["post", "pre"] = "pre"',
            ),
        ],
    },
    "3.1 A position of the decoder": {
        "t2t_keras/layers/attention.py": [
            (
                "sees-one-position-ahead",
                "steps[None, :] > steps[:, None]",
                "steps[None, :] > steps[:, None] + 1",
            ),
        ],
        "t2t_keras/model/transformer.py": [
            ("outputs-not-shifted", "((0, 0), (1, 0)))[:, :-1]", "((0, 0), (0, 0)))"),
            (
                "first-input-not-zero",
                "ops.pad(target, ((0, 0), (1, 0)))",
                "ops.pad(target, ((0, 0), (1, 0)), constant_values=1)",
            ),
        ],
    },
    "3.2.1 Attention(Q, K, V)": {
        "t2t_keras/layers/attention.py": [
            ("scale-1-over-d", "query.shape[-1] ** -0.5", "query.shape[-1] ** -1.0"),
            ("masked-minus-infinity", "MASKED = -1e9", 'MASKED = -float("inf")'),
            ("masked-a-little", "MASKED = -1e9", "MASKED = -10.0"),
        ],
    },
    "3.2.1 Without the scale": {
        "t2t_keras/layers/unscaled_attention.py": [
            ("unscaled-is-scaled", "bias, scale=1.0)", "bias)"),
        ],
    },
    "3.2.1 Additive attention": {
        "t2t_keras/layers/additive_attention.py": [
            ("additive-without-tanh", "ops.tanh(query", "ops.relu(query"),
        ],
    },
    "3.2.2 h = 8 heads": {
        "t2t_keras/layers/attention.py": [
            ("attention-biases", "use_bias=False", "use_bias=True"),
            (
                "one-glorot-for-all",
                "kernel_initializer=BlockGlorot(widths)",
                'kernel_initializer="glorot_uniform"',
            ),
            (
                "heads-interleaved",
                "(batch, length, count, self.num_heads, size))\n"
                "            blocks += ops.unstack("
                "ops.transpose(heads, (2, 0, 3, 1, 4)), count)",
                "(batch, length, count, size, self.num_heads))\n"
                "            blocks += ops.unstack("
                "ops.transpose(heads, (2, 0, 4, 1, 3)), count)",
            ),
        ],
        "t2t_keras/hparam.py": [
            ("heads-4", "num_heads: int = 8", "num_heads: int = 4"),
            (
                "value-size-d-model",
                "self.d_v or self.d_model // self.num_heads",
                "self.d_v or self.d_model",
            ),
        ],
    },
    "3.2.3 Three uses": {
        "t2t_keras/model/transformer.py": [
            (
                "encoder-sees-padding",
                "self.encoder(x, padding_bias(source == PAD), seed=seed)",
                "self.encoder(x, None, seed=seed)",
            ),
            (
                "decoder-sees-padding",
                "memory, padding_bias(source == PAD), seed=seed)",
                "memory, None, seed=seed)",
            ),
            (
                "decoding-sees-padding",
                '"bias": padding_bias(source == PAD),',
                '"bias": 0 * padding_bias(source == PAD),',
            ),
        ],
        "t2t_keras/model/decoder.py": [
            (
                "decoder-attends-to-itself-alone",
                "key, value = self.cross_attention.project_memory(memory)\n        ret",
                "key, value = self.cross_attention.project_memory(0 * memory)\n"
                "        ret",
            ),
        ],
    },
    "3.3 FFN": {
        "t2t_keras/layers/feed_forward.py": [
            ("gelu", "ops.relu(", "ops.gelu("),
            (
                "no-outer-bias",
                "Linear(d_model, name",
                "Linear(d_model, use_bias=False, name",
            ),
        ],
        "t2t_keras/hparam.py": [
            ("inner-width-1024", "d_ff: int = 2048", "d_ff: int = 1024"),
        ],
        "t2t_keras/model/decoder.py": [
            (
                "one-network-without-norm",
                "residuals(hparams, self.sublayers)",
                "residuals(hparams, [*self.sublayers[:2], self.sublayers[1]])",
            ),
        ],
    },
    "3.4 One matrix": {
        "t2t_keras/layers/embedding.py": [
            ("embeddings-unscaled", "self.d_model**0.5)", "1.0)"),
            (
                "embeddings-begin-wide",
                "RandomNormal(stddev=self.d_model**-0.5)",
                "RandomNormal(stddev=1.1 * self.d_model**-0.5)",
            ),
            (
                "embeddings-begin-truncated",
                "RandomNormal(stddev=self.d_model**-0.5)",
                "TruncatedNormal(stddev=self.d_model**-0.5 / 0.8796)",
            ),
            (
                "embeddings-begin-uniform",
                "RandomNormal(stddev=self.d_model**-0.5)",
                "RandomUniform(-((3 / self.d_model) ** 0.5), (3 / self.d_model)**0.5)",
            ),
            (
                "logits-scaled",
                'self.matrix())), "float32")',
                'self.matrix())), "float32") * self.d_model**-0.5',
            ),
        ],
        "t2t_keras/hparam.py": [
            (
                "three-matrices-by-default",
                "share_embeddings: bool = True",
                "share_embeddings: bool = False",
            ),
        ],
        "t2t_keras/model/transformer.py": [
            (
                "softmax-on-the-source-matrix",
                "return self.embeddings[-1]",
                "return self.embeddings[0]",
            ),
            (
                "two-matrices-of-one-vocabulary",
                "if one_vocabulary and hparams.share_embeddings:",
                "if False:",
            ),
        ],
    },
    "3.5 PE(pos, 2i)": {
        "t2t_keras/layers/position.py": [
            (
                "sines-and-cosines-swapped",
                "stack([ops.sin(angles), ops.cos(",
                "stack([ops.cos(angles), ops.sin(",
            ),
            (
                "sines-then-cosines",
                "ops.cos(angles)], axis=-1)\n    return ops.reshape",
                "ops.cos(angles)], axis=-2)\n    return ops.reshape",
            ),
        ],
        "t2t_keras/model/transformer.py": [
            (
                "positions-from-1",
                "ops.arange(count) + start",
                "ops.arange(count) + start + 1",
            ),
            (
                "every-step-at-position-0",
                "ops.arange(count) + start",
                "ops.arange(count) + 0 * start",
            ),
        ],
    },
    "3.5 The wavelengths": {
        "t2t_keras/layers/position.py": [
            ("wavelengths-to-1000", "rates = 10000.0 **", "rates = 1000.0 **"),
            (
                "wavelengths-of-tensor2tensor",
                "np.arange(0, d_model, 2) / d_model)",
                "np.arange(0, d_model, 2) / (d_model - 2))",
            ),
        ],
    },
    "3.5 Learned positions": {
        "t2t_keras/layers/position.py": [
            (
                "learned-positions-start-again",
                "ops.minimum(positions, self.max_positions - 1)",
                "positions % self.max_positions",
            ),
        ],
        "t2t_keras/model/transformer.py": [
            (
                "learned-positions-ignored",
                "if self.positions:\n            signal",
                "if False:\n            signal",
            ),
        ],
    },
    "Self-attention restricted to r": {
        "t2t_keras/model/variants.py": [
            ("window-twice-as-wide", "(window // 2, window // 2)", "(window, window)"),
            ("window-one-more-in-decoder", "(window - 1, 0)", "(window, 0)"),
        ],
        "t2t_keras/layers/window_attention.py": [
            ("window-one-less", "offsets > self.after)", "offsets >= self.after)"),
            (
                "window-step-sees-everything",
                "super().step(x, key[:, :, seen], value[:, :, seen])",
                "super().step(x, key, value)",
            ),
            (
                "window-over-everything",
                "reach = max(self.before, self.after, 1)",
                "reach = max(self.before, self.after, length)",
            ),
        ],
    },
    "Single heads learn": {
        "t2t_keras/model/attention_maps.py": [
            (
                "maps-of-what-is-not-normed",
                "residual.norm(x) if residual.norm_first else x",
                "x",
            ),
            (
                "maps-of-the-future",
                "_self_weights(layer.self_attention, y, is_past)",
                "_self_weights(layer.self_attention, y, None)",
            ),
        ],
    },
    "5.1 en-de": {
        "problems/translate.py": [
            ("ende-vocabulary", "vocab_size=37_000", "vocab_size=32_000"),
            ("enfr-vocabulary", "vocab_size=32_000", "vocab_size=37_000"),
        ],
    },
    "5.1 Batches": {
        "t2t_keras/hparam.py": [
            ("batch-of-4096", "batch_tokens: int = 25_000", "batch_tokens: int = 4096"),
        ],
        "t2t_keras/data/batching.py": [
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
            ("base-steps", "train_steps: int = 100_000", "train_steps: int = 10_000"),
        ],
        "hparams/paper.py": [
            ("big-steps", "train_steps=300_000", "train_steps=100_000"),
        ],
        "t2t_keras/training/step.py": [
            (
                "mean-of-each-replica",
                "[tf.convert_to_tensor(gradient) for gradient in gradients]",
                "[tf.convert_to_tensor(g) / count_tokens(target) for g in gradients]",
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
            ("beta1", "adam_beta1: float = 0.9", "adam_beta1: float = 0.8"),
            ("beta2", "adam_beta2: float = 0.98", "adam_beta2: float = 0.997"),
            (
                "adam-epsilon",
                "adam_epsilon: float = 1e-9",
                "adam_epsilon: float = 1e-7",
            ),
        ],
        "t2t_keras/training/optimizer.py": [
            ("bias-not-corrected", "beta2_power=self._beta2**step", "beta2_power=0.0"),
            ("nesterov", "grad=gradient,", "grad=gradient, use_nesterov=True,"),
        ],
    },
    "5.3 lrate": {
        "t2t_keras/hparam.py": [
            ("warm-up-8000", "warmup_steps: int = 4000", "warmup_steps: int = 8000"),
        ],
        "t2t_keras/training/schedule.py": [
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
                "rate = learning_rate(self._hparams, done)\n",
                "rate = learning_rate(self._hparams, step)\n",
            ),
        ],
        "t2t_keras/training/step.py": [
            ("adam-counts-from-2", "tf.cast(step + 1,", "tf.cast(step + 2,"),
        ],
    },
    "5.4 Dropout": {
        "t2t_keras/hparam.py": [
            ("dropout-0.2", "    dropout: float = 0.1", "    dropout: float = 0.2"),
            (
                "attention-dropout",
                "attention_dropout: float = 0.0",
                "attention_dropout: float = 0.1",
            ),
        ],
        "t2t_keras/layers/residual.py": [
            (
                "dropout-of-the-sum-post-norm",
                "self.norm(x + self.dropout(sublayer(x), seed=seed))",
                "self.norm(self.dropout(x + sublayer(x), seed=seed))",
            ),
            (
                "dropout-after-the-norm",
                "self.norm(x + self.dropout(sublayer(x), seed=seed))",
                "self.dropout(self.norm(x + sublayer(x)), seed=seed)",
            ),
            (
                "dropout-of-the-sum-pre-norm",
                "x + self.dropout(sublayer(self.norm(x)), seed=seed)",
                "self.dropout(x + sublayer(self.norm(x)), seed=seed)",
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
                "label_smoothing: float = 0.1",
                "label_smoothing: float = 0.0",
            ),
        ],
        "t2t_keras/training/loss.py": [
            (
                "smoothing-over-all-pieces",
                "smoothing / (logits.shape[-1] - 1)",
                "smoothing / logits.shape[-1]",
            ),
            (
                "gradient-without-smoothing",
                "ops.where(is_label, 1.0 - smoothing, rest)",
                "ops.where(is_label, 1.0, 0.0)",
            ),
        ],
        "t2t_keras/training/held_out.py": [
            ("dev-loss-smoothed", "smoothing=0.0", "smoothing=0.1"),
        ],
    },
    "6.1 Average of the last": {
        "t2t_keras/training/average.py": [
            ("average-of-the-first", "paths = paths[-last:]", "paths = paths[:last]"),
            ("sum-for-average", "total / len(checkpoints)", "total"),
            ("average-of-adam-too", 'name.startswith("model/")', 'name != "step"'),
        ],
        "t2t_keras/training/options.py": [
            ("ten-kept", "keep: int = 20", "keep: int = 10"),
            ("one-averaged", "average_last: int = 5", "average_last: int = 1"),
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
            ("problem-beam-5", "beam_size: int = 4", "beam_size: int = 5"),
            ("problem-alpha-1", "alpha: float = 0.6", "alpha: float = 1.0"),
            ("problem-100-longer", "extra_length: int = 50", "extra_length: int = 100"),
        ],
        "t2t_keras/decoding/options.py": [
            ("beam-5", "beam_size: int = 4", "beam_size: int = 5"),
            ("alpha-1", "alpha: float = 0.6", "alpha: float = 1.0"),
            ("100-longer", "extra_length: int = 50", "extra_length: int = 100"),
            ("problems-alpha-ignored", "            alpha=problem.alpha,\n", ""),
        ],
        "t2t_keras/decoding/beam_search.py": [
            (
                "penalty-is-length",
                "(5.0 + tf.cast(length, tf.float32)) / 6.0",
                "tf.cast(length, tf.float32)",
            ),
            (
                "finished-by-log-probability",
                "_best(both, _scores(both, alpha), ",
                "_best(both, both.log_probs, ",
            ),
            (
                "stops-too-early",
                "attainable = alive.log_probs[:, 0] / largest_penalty",
                "attainable = alive.log_probs[:, 0] / length_penalty(position, alpha)",
            ),
            ("never-stops-early", "axis=1) >= attainable", "axis=1) > 0 * attainable"),
            (
                "padding-is-generated",
                "tf.range(vocab_size) != PAD",
                "tf.range(vocab_size) >= PAD",
            ),
            (
                "no-more-candidates-than-beams",
                "tf.where(beam_size == 1, 1, 2 * beam_size)",
                "beam_size",
            ),
            ("cache-not-reordered", "model.reorder_cache(cache, parents)", "cache"),
        ],
        "t2t_keras/decoding/translator.py": [
            (
                "limit-without-the-input",
                "max(len(source) + options.extra_length,",
                "max(options.extra_length,",
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
        "t2t_keras/evaluation/bracket_f1.py": [
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
        "t2t_keras/decoding/brackets.py": [
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
}
