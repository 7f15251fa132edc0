"""Deliberate faults for `mutations.py`: sections 3 and 4 of `docs/paper.md`.

Statement (how its row begins) -> file -> faults. A fault is its name, text that the
file has exactly once, and what takes its place.

Left out, because nothing can tell it from the original: MASKED -1e9 as -1e8 (the
weights are exactly 0 in float32 either way).
"""

# The initializer of the embedding's table, and not of the learned positions'.
_TABLE = "(self.vocab_size, self.d_model),\n            initializer=keras.initializers."

MODEL = {
    "3.1 Encoder and decoder of N": {
        "t2t_keras/hparam.py": [
            (
                "layers-5",
                "num_layers: int = option(\n        6,",
                "num_layers: int = option(\n        5,",
            ),
            ("width-256", "d_model: int = option(512,", "d_model: int = option(256,"),
        ],
        "t2t_keras/model/transformer.py": [
            (
                "decoder-source-first",
                "        y, to_past = self.self_attention(residual.enter(x), causal,",
                "        y, _ = self.cross_attention("
                "residual.enter(x), key, value, bias, seed=seed)\n"
                "        x = residual.leave(x, y, seed)\n"
                "        y, to_past = self.self_attention(residual.enter(x), causal,",
            ),
        ],
    },
    "3.1 Every sub-layer": {
        "t2t_keras/model/layers.py": [
            (
                "no-residual-connection",
                "x = x + self.dropout(y, seed=seed)",
                "x = self.dropout(y, seed=seed)",
            ),
        ],
        "t2t_keras/model/gradients.py": [
            (
                "epsilon-outside-the-root",
                "ops.rsqrt(variance + epsilon)",
                "1 / (ops.sqrt(variance) + epsilon)",
            ),
        ],
        "t2t_keras/hparam.py": [
            ("epsilon-of-keras", '1e-6, "added to the', '1e-3, "added to the'),
            (
                "pre-norm-by-default",
                '"post", "layer norm after',
                '"pre", "layer norm after',
            ),
        ],
    },
    "3.1 A position of the decoder": {
        "t2t_keras/model/layers.py": [
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
        "t2t_keras/model/layers.py": [
            ("scale-1-over-d", "query.shape[-1] ** -0.5", "query.shape[-1] ** -1.0"),
            ("masked-minus-infinity", "MASKED = -1e9", 'MASKED = -float("inf")'),
            ("masked-a-little", "MASKED = -1e9", "MASKED = -10.0"),
        ],
    },
    "3.2.1 Without the scale": {
        "t2t_keras/model/layers.py": [
            (
                "unscaled-is-scaled",
                "return dot_product(query, key)\n        hidden",
                "return scaled_dot_product(query, key)\n        hidden",
            ),
        ],
    },
    "3.2.1 Additive attention": {
        "t2t_keras/model/layers.py": [
            ("additive-without-tanh", "ops.tanh(query", "ops.relu(query"),
        ],
    },
    "3.2.2 h = 8 heads": {
        "t2t_keras/model/layers.py": [
            ("attention-biases", "use_bias=self.use_bias", "use_bias=True"),
            (
                "one-glorot-for-all",
                "kernel_initializer=BlockGlorot(widths)",
                'kernel_initializer="glorot_uniform"',
            ),
            (
                "heads-interleaved",
                "(batch, length, count, self.num_heads, size))\n"
                "            heads = ops.transpose(heads, (2, 0, 3, 1, 4))",
                "(batch, length, count, size, self.num_heads))\n"
                "            heads = ops.transpose(heads, (2, 0, 4, 1, 3))",
            ),
        ],
        "t2t_keras/hparam.py": [
            ("heads-4", "num_heads: int = option(8,", "num_heads: int = option(4,"),
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
                "self.encoder(x, bias, seed=seed)",
                "self.encoder(x, None, seed=seed)",
            ),
            (
                "decoder-sees-padding",
                "self.decoder(y, memory, bias, seed=seed)",
                "self.decoder(y, memory, None, seed=seed)",
            ),
            (
                "decoding-sees-padding",
                "bias=padding_bias(source == PAD),",
                "bias=0 * padding_bias(source == PAD),",
            ),
            (
                "decoder-attends-to-itself-alone",
                "key, value = self.cross_attention.project_memory(memory)\n        res",
                "key, value = self.cross_attention.project_memory(0 * memory)\n"
                "        res",
            ),
        ],
    },
    "3.3 FFN": {
        "t2t_keras/model/layers.py": [
            ("gelu", "ops.relu(hidden)", "ops.gelu(hidden)"),
            (
                "no-outer-bias",
                "Linear(d_model, name",
                "Linear(d_model, use_bias=False, name",
            ),
        ],
        "t2t_keras/hparam.py": [
            (
                "inner-width-1024",
                "d_ff: int = option(2048,",
                "d_ff: int = option(1024,",
            ),
        ],
        "t2t_keras/model/transformer.py": [
            (
                "one-network-without-norm",
                "self.feed_forward_residual = _residual(hparams, self.feed_forward)\n\n"
                "    def build(self, input_shape: object = None) -> None:\n"
                '        """Creates the weights."""\n'
                "        self.self_attention.build(None)\n"
                "        self.cross_attention.build(None)",
                "self.feed_forward_residual = self.cross_attention_residual\n\n"
                "    def build(self, input_shape: object = None) -> None:\n"
                '        """Creates the weights."""\n'
                "        self.self_attention.build(None)\n"
                "        self.cross_attention.build(None)",
            ),
        ],
    },
    "3.4 One matrix": {
        "t2t_keras/model/layers.py": [
            ("embeddings-unscaled", "self.d_model**0.5,", "1.0,"),
            (
                "embeddings-begin-wide",
                _TABLE + "RandomNormal(stddev=self.d_model**-0.5)",
                _TABLE + "RandomNormal(stddev=1.1 * self.d_model**-0.5)",
            ),
            (
                "embeddings-begin-truncated",
                _TABLE + "RandomNormal(stddev=self.d_model**-0.5)",
                _TABLE + "TruncatedNormal(stddev=self.d_model**-0.5 / 0.8796)",
            ),
            (
                "embeddings-begin-uniform",
                _TABLE + "RandomNormal(stddev=self.d_model**-0.5)",
                _TABLE + "RandomUniform("
                "-((3 / self.d_model) ** 0.5), (3 / self.d_model) ** 0.5)",
            ),
            (
                "logits-scaled",
                'logits = ops.cast(rows, "float32")',
                'logits = ops.cast(rows, "float32") * self.d_model**-0.5',
            ),
        ],
        "t2t_keras/hparam.py": [
            (
                "three-matrices-by-default",
                "share_embeddings: bool = option(\n        True,",
                "share_embeddings: bool = option(\n        False,",
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
        "t2t_keras/model/layers.py": [
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
        "t2t_keras/model/layers.py": [
            ("wavelengths-to-1000", "rates = 10000.0 **", "rates = 1000.0 **"),
            (
                "wavelengths-of-tensor2tensor",
                "np.arange(0, d_model, 2) / d_model)",
                "np.arange(0, d_model, 2) / (d_model - 2))",
            ),
        ],
    },
    "3.5 Learned positions": {
        "t2t_keras/model/layers.py": [
            (
                "learned-positions-start-again",
                "ops.minimum(positions, self.max_positions - 1)",
                "positions % self.max_positions",
            ),
        ],
        "t2t_keras/model/transformer.py": [
            (
                "learned-positions-ignored",
                "if self.positions:\n            return",
                "if False:\n            return",
            ),
        ],
    },
    "Self-attention restricted to r": {
        "t2t_keras/model/transformer.py": [
            ("window-twice-as-wide", "(window // 2, window // 2)", "(window, window)"),
            ("window-one-more-in-decoder", "(window - 1, 0)", "(window, 0)"),
            ("window-step-sees-more", "position - (window - 1)", "position - window"),
        ],
        "t2t_keras/model/window_attention.py": [
            ("window-one-less", "offsets > self.after)", "offsets >= self.after)"),
            (
                "window-over-everything",
                "reach = max(self.before, self.after, 1)",
                "reach = max(self.before, self.after, length)",
            ),
        ],
    },
    "Individual heads learn": {
        "t2t_keras/model/transformer.py": [
            (
                "maps-of-one-layer",
                "            maps.append(weights)\n",
                "            maps = [weights for _ in self.layers]\n",
            ),
            (
                "maps-of-past-and-source-swapped",
                "self_maps.append(to_past)",
                "self_maps.append(to_source)",
            ),
        ],
    },
}
