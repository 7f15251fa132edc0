"""The paper's equations in NumPy, one head at a time: the independent truth.

Weights are taken by their names in a checkpoint, `encoder/layer_0/...`.
"""

import numpy as np

from t2t_keras.hparam import HParams
from t2t_keras.model.transformer import Transformer
from t2t_keras.run.checkpoint import model_variables

EPSILON = 1e-6


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def attention(query, key, value, allowed):
    """softmax(Q K^T / sqrt(d_k)) V of [T, d_k], [S, d_k], [S, d_v], bool [T, S]."""
    logits = query @ key.T / np.sqrt(query.shape[-1])
    return softmax(np.where(allowed, logits, -1e9)) @ value


def multi_head(query, key, value, allowed, num_heads):
    """Concat(head_1 ... head_H) of [T, H d_k], [S, H d_k] and [S, H d_v]."""
    heads = [
        attention(q, k, v, allowed)
        for q, k, v in zip(
            np.split(query, num_heads, axis=1),
            np.split(key, num_heads, axis=1),
            np.split(value, num_heads, axis=1),
            strict=True,
        )
    ]
    return np.concatenate(heads, axis=1)


def layer_norm(x, gamma, beta, epsilon=EPSILON):
    mean = x.mean(-1, keepdims=True)
    variance = x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def sinusoids(length, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(...), by loops."""
    table = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            table[position, 2 * i : 2 * i + 2] = np.sin(angle), np.cos(angle)
    return table


def halves(length, d_model):
    """The columns of `sinusoids` in another order: all sines, then all cosines."""
    table = sinusoids(length, d_model)
    return np.concatenate([table[:, 0::2], table[:, 1::2]], axis=1)


def timing_signal(length, d_model):
    """tensor2tensor's: all sines, then all cosines, and another geometric series."""
    half = d_model // 2
    angles = np.arange(length)[:, None] * 10000 ** (-np.arange(half) / (half - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


class NumpyTransformer:
    """A model's forward pass without dropout, one sentence at a time."""

    def __init__(self, model: Transformer) -> None:
        self.hparams: HParams = model.hparams
        options = vars(model.hparams)  # of `extended_transformer`
        self.epsilon = options.get("norm_epsilon", EPSILON)
        self.activation = options.get("activation", "relu")
        self.weights = {
            name.removeprefix("model/"): np.asarray(value, np.float64)
            for name, value in model_variables(model).items()
        }

    def __call__(self, source, target):
        """Logits [T, V] of one pair of lists of ids, without padding."""
        memory = self.encode(source)
        shifted = [0, *target[:-1]]
        x = self.embed(shifted, "target_embedding")
        is_past = np.tril(np.ones((len(target), len(target)), bool))
        is_source = np.ones((len(target), len(source)), bool)
        for i in range(self.hparams.decoder_layers):
            layer = f"decoder/layer_{i}"
            x = self.residual(
                x, f"{layer}/self_attention", memory=None, allowed=is_past
            )
            x = self.residual(x, f"{layer}/cross_attention", memory, is_source)
            x = self.residual(x, f"{layer}/feed_forward")
        table = self.table("softmax", "target_embedding")
        bias = self.weights.get("output_bias", 0)
        return self.last_norm(x, "decoder") @ table.T + bias

    def encode(self, source):
        x = self.embed(source, "source_embedding")
        full_mask = np.ones((len(source), len(source)), bool)
        for i in range(self.hparams.num_layers):
            layer = f"encoder/layer_{i}"
            x = self.residual(x, f"{layer}/self_attention", None, full_mask)
            x = self.residual(x, f"{layer}/feed_forward")
        return self.last_norm(x, "encoder")

    def table(self, *roles):
        names = [f"{role}/table" for role in (*roles, "embedding")]
        return next(self.weights[name] for name in names if name in self.weights)

    def embed(self, ids, role):
        d_model = self.hparams.d_model
        position = self.hparams.position
        vectors = self.table(role)[ids] * np.sqrt(d_model)
        vectors[np.asarray(ids) == 0] = 0
        if role == "source_embedding" and "target_space/vector" in self.weights:
            vectors = vectors + self.weights["target_space/vector"]
        if position == "learned":
            rows = np.minimum(np.arange(len(ids)), self.hparams.max_positions - 1)
            return vectors + self.weights["positions/table"][rows]
        signals = {"sinusoidal": sinusoids, "halves": halves, "t2t": timing_signal}
        return vectors + signals[position](len(ids), d_model)

    def residual(self, x, name, memory=None, allowed=None):
        if self.hparams.norm == "pre":
            y = self.norm(x, f"{name}_residual")
            return x + self.sublayer(y, name, memory, allowed)
        y = x + self.sublayer(x, name, memory, allowed)
        return self.norm(y, f"{name}_residual")

    def norm(self, x, scope):
        gamma, beta = (self.weights[f"{scope}/norm/{p}"] for p in ("gamma", "beta"))
        return layer_norm(x, gamma, beta, self.epsilon)

    def linear(self, x, name):
        bias = self.weights.get(f"{name}/bias", 0)
        return x @ self.weights[f"{name}/kernel"] + bias

    def sublayer(self, x, name, memory, allowed):
        if name.endswith("feed_forward"):
            inner = self.linear(x, f"{name}/inner")
            if self.activation == "swish":
                inner = inner / (1 + np.exp(-inner))
            else:
                inner = np.maximum(inner, 0)
            return self.linear(inner, f"{name}/outer")
        keys = self.hparams.num_heads * self.hparams.key_size
        if memory is None:
            projected = self.linear(x, f"{name}/query_key_value")
            q, k, v = np.split(projected, [keys, 2 * keys], axis=1)
        else:
            q = self.linear(x, f"{name}/query")
            projected = self.linear(memory, f"{name}/key_value")
            k, v = np.split(projected, [keys], axis=1)
        heads = multi_head(q, k, v, allowed, self.hparams.num_heads)
        return self.linear(heads, f"{name}/output")

    def last_norm(self, x, stack):
        if self.hparams.norm == "post":
            return x
        return self.norm(x, stack)


def randomise(model, seed=0, scale=0.2):
    """Gives every weight a value that matters: biases are not 0, scales not 1."""
    rng = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        is_scale = weight.path.endswith("gamma")
        weight.assign(rng.normal(is_scale, scale, weight.shape))
    return model
