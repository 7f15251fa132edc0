"""The paper's equations in NumPy, one head at a time: the independent truth.

Weights are taken by their names in a checkpoint, `encoder/layer_0/...`.
"""

import numpy as np

from t2t_keras.hparam import HParams
from t2t_keras.model.transformer import Transformer
from t2t_keras.runs.checkpoint import model_variables

EPSILON = 1e-6


def softmax(x):
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def attention(query, key, value, allowed):
    """softmax(Q K^T / sqrt(d_k)) V of [T, d_k], [S, d_k], [S, d_v], bool [T, S]."""
    logits = query @ key.T / np.sqrt(query.shape[-1])
    return softmax(np.where(allowed, logits, -1e9)) @ value


def multi_head(x, memory, allowed, w_query, w_key, w_value, w_output, num_heads):
    """Concat(head_1 ... head_H) W^O of x [T, D] and memory [S, D]."""
    heads = [
        attention(x @ q, memory @ k, memory @ v, allowed)
        for q, k, v in zip(
            np.split(w_query, num_heads, axis=1),
            np.split(w_key, num_heads, axis=1),
            np.split(w_value, num_heads, axis=1),
            strict=True,
        )
    ]
    return np.concatenate(heads, axis=1) @ w_output


def layer_norm(x, gamma, beta):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + EPSILON) * gamma + beta


def sinusoids(length, d_model):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(...), by loops."""
    table = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            table[position, 2 * i : 2 * i + 2] = np.sin(angle), np.cos(angle)
    return table


def timing_signal(length, d_model):
    """tensor2tensor's: all sines, then all cosines, and another geometric series."""
    half = d_model // 2
    angles = np.arange(length)[:, None] * 10000 ** (-np.arange(half) / (half - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


class NumpyTransformer:
    """A model's forward pass without dropout, one sentence at a time."""

    def __init__(self, model: Transformer) -> None:
        self.hparams: HParams = model.hparams
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
        return self.last_norm(x, "decoder") @ table.T

    def encode(self, source):
        x = self.embed(source, "source_embedding")
        everything = np.ones((len(source), len(source)), bool)
        for i in range(self.hparams.num_layers):
            layer = f"encoder/layer_{i}"
            x = self.residual(x, f"{layer}/self_attention", None, everything)
            x = self.residual(x, f"{layer}/feed_forward")
        return self.last_norm(x, "encoder")

    def table(self, *roles):
        names = [f"{role}/table" for role in (*roles, "embedding")]
        return next(self.weights[name] for name in names if name in self.weights)

    def embed(self, ids, role):
        d_model, position = self.hparams.d_model, self.hparams.position
        vectors = self.table(role)[ids] * np.sqrt(d_model)
        vectors[np.asarray(ids) == 0] = 0
        if role == "source_embedding" and self.hparams.target_space:
            vectors = vectors + self.weights["target_space/vector"]
        if position == "learned":
            rows = np.minimum(np.arange(len(ids)), self.hparams.max_positions - 1)
            return vectors + self.weights["positions/table"][rows]
        signal = {"sinusoidal": sinusoids, "t2t": timing_signal}[position]
        return vectors + signal(len(ids), d_model)

    def residual(self, x, name, memory=None, allowed=None):
        gamma, beta = (self.weights[f"{name}_residual/norm/{p}"] for p in _NORM)
        if self.hparams.norm == "pre":
            return x + self.sublayer(layer_norm(x, gamma, beta), name, memory, allowed)
        return layer_norm(x + self.sublayer(x, name, memory, allowed), gamma, beta)

    def sublayer(self, x, name, memory, allowed):
        kernel = {
            part: self.weights.get(f"{name}/{part}/kernel")
            for part in ("query_key_value", "query", "key_value", "output")
        }
        if name.endswith("feed_forward"):
            inner = x @ self.weights[f"{name}/inner/kernel"]
            inner = np.maximum(inner + self.weights[f"{name}/inner/bias"], 0)
            outer = inner @ self.weights[f"{name}/outer/kernel"]
            return outer + self.weights[f"{name}/outer/bias"]
        keys = self.hparams.num_heads * self.hparams.key_size
        if memory is None:
            q, k, v = np.split(kernel["query_key_value"], [keys, 2 * keys], axis=1)
            memory = x
        else:
            q, (k, v) = kernel["query"], np.split(kernel["key_value"], [keys], axis=1)
        heads = self.hparams.num_heads
        return multi_head(x, memory, allowed, q, k, v, kernel["output"], heads)

    def last_norm(self, x, stack):
        if self.hparams.norm == "post":
            return x
        return layer_norm(x, *(self.weights[f"{stack}/norm/{p}"] for p in _NORM))


_NORM = ("gamma", "beta")


def randomise(model, seed=0, scale=0.2):
    """Gives every weight a value that matters: biases are not 0, scales not 1."""
    rng = np.random.default_rng(seed)
    for weight in model.trainable_variables:
        is_scale = weight.path.endswith("gamma")
        weight.assign(rng.normal(is_scale, scale, weight.shape))
    return model
