"""The decoder: as the encoder, with attention to the encoded source between (3.1)."""

from typing import Any

import keras
from keras import ops

from t2t_keras.hparam import HParams
from t2t_keras.layers.attention import CrossAttention, SelfAttention
from t2t_keras.layers.linear import Linear
from t2t_keras.model.stack import Stack, attention, feed_forward, residuals

# What one layer keeps between the steps of decoding, N hypotheses = B * K:
#   self_key [N, H, t, d_k], self_value [N, H, t, d_v]: of the t positions so far
#   cross_key [B, H, S, d_k], cross_value [B, H, S, d_v]: of the source, for all beams
LayerCache = dict[str, Any]


class DecoderLayer(keras.layers.Layer):
    """Masked self-attention, attention to the source, and the feed-forward network."""

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(autocast=False, **kwargs)
        dtype = self.dtype_policy
        self.self_attention = attention(SelfAttention, hparams, "self_attention", dtype)
        self.cross_attention = attention(
            CrossAttention, hparams, "cross_attention", dtype
        )
        self.feed_forward = feed_forward(hparams, dtype)
        self.sublayers = [self.self_attention, self.cross_attention, self.feed_forward]
        self.residuals = residuals(hparams, self.sublayers)

    def build(self, input_shape: Any = None) -> None:
        """Creates the weights."""
        for layer in (*self.sublayers, *self.residuals):
            layer.build(None)

    def call(self, x: Any, memory: Any, bias: Any, seed: Any = None) -> Any:
        """Maps [B, T, D] to [B, T, D].

        Args:
            x: [B, T, D]
            memory: the encoded source, [B, S, D].
            bias: hides the source's padding, [B, 1, 1, S].
            seed: of dropout; None at inference.
        """
        causal = self.self_attention.causal_bias(ops.shape(x)[1])
        key, value = self.cross_attention.project_memory(memory)
        return self._sublayers(
            x,
            lambda y: self.self_attention(y, causal, seed=seed),
            lambda y: self.cross_attention(y, key, value, bias, seed=seed),
            seed,
        )

    @property
    def step_products(self) -> list[Linear]:
        """The layers with a matrix that `step` multiplies by."""
        to_past, to_source, network = self.sublayers
        return [
            to_past.projection,
            to_past.output_projection,
            to_source.query_projection,
            to_source.output_projection,
            network.inner,
            network.outer,
        ]

    def step(self, x: Any, bias: Any, cache: LayerCache) -> tuple[Any, LayerCache]:
        """Runs one new position [B, K, D] of every beam; returns the longer cache."""
        shape = ops.shape(x)
        cache = dict(cache)

        def attend_to_past(y: Any) -> Any:
            """Each beam has its own past, so here beams are rows of the batch."""
            y, cache["self_key"], cache["self_value"] = self.self_attention.step(
                ops.reshape(y, (-1, 1, shape[-1])),
                cache["self_key"],
                cache["self_value"],
            )
            return ops.reshape(y, shape)

        def attend_to_source(y: Any) -> Any:
            """All beams of a sentence have the same source: here they are positions."""
            return self.cross_attention(
                y, cache["cross_key"], cache["cross_value"], bias
            )

        return self._sublayers(x, attend_to_past, attend_to_source, None), cache

    def _sublayers(
        self, x: Any, self_attention: Any, cross_attention: Any, seed: Any
    ) -> Any:
        """Applies the three sub-layers, each inside its residual connection."""
        functions = (
            self_attention,
            cross_attention,
            lambda y: self.feed_forward(y, seed=seed),
        )
        for residual, function in zip(self.residuals, functions, strict=True):
            x = residual(x, sublayer=function, seed=seed)
        return x


class Decoder(Stack):
    """N decoder layers."""

    def __init__(self, hparams: HParams, **kwargs: Any) -> None:
        super().__init__(DecoderLayer, hparams, **kwargs)

    def call(self, x: Any, memory: Any, bias: Any, seed: Any = None) -> Any:
        """Maps [B, T, D] to [B, T, D]; arguments as in `DecoderLayer.call`."""
        for layer in self.layers:
            x = layer(x, memory, bias, seed=seed)
        return self.finish(x)

    def start_cache(self, memory: Any, num_beams: Any) -> list[LayerCache]:
        """Returns the cache before the first step: source keys and values, no past."""
        hypotheses = ops.shape(memory)[0] * num_beams
        caches = []
        for layer in self.layers:
            attention = layer.self_attention
            key, value = layer.cross_attention.project_memory(memory)
            past = (hypotheses, attention.num_heads, 0)
            caches.append(
                {
                    "self_key": ops.zeros((*past, attention.key_size), key.dtype),
                    "self_value": ops.zeros((*past, attention.value_size), key.dtype),
                    "cross_key": key,
                    "cross_value": value,
                }
            )
        return caches

    def step(
        self, x: Any, bias: Any, caches: list[LayerCache]
    ) -> tuple[Any, list[LayerCache]]:
        """Runs one new position [B, K, D] of every beam through all layers."""
        longer = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer.step(x, bias, cache)
            longer.append(cache)
        return self.finish(x), longer
