"""Deliberate faults for `mutations.py`: sections 3 and 4 of `docs/paper.md`.

Statement (how its row begins) -> file -> faults. A fault is its name, text that the
file has exactly once, and what takes its place.

Left out, because nothing can tell it from the original: MASKED -1e9 as -1e8 (the
weights are exactly 0 in float32 either way).
"""

MODEL = {
    "3.1 Encoder and decoder of N": {
        "t2t_keras/hparam.py": [
            ("layers-5", "num_layers: int = _field(6,", "num_layers: int = _field(5,"),
            ("width-256", "d_model: int = _field(512,", "d_model: int = _field(256,"),
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
                '"post", "layer norm after',
                '"pre", "layer norm after',
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
            ("heads-4", "num_heads: int = _field(8,", "num_heads: int = _field(4,"),
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
            (
                "inner-width-1024",
                "d_ff: int = _field(2048,",
                "d_ff: int = _field(1024,",
            ),
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
                "share_embeddings: bool = _field(\n        True,",
                "share_embeddings: bool = _field(\n        False,",
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
}
