"""The parts of a Transformer, made from its hyper-parameters."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Self, TypedDict

import keras

from t2t_keras.hparam import HParams
from t2t_keras.model.backend import Shape, Tensor, inner_layers
from t2t_keras.model.decoder import Decoder, DecoderLayer
from t2t_keras.model.encoder import Encoder, EncoderLayer
from t2t_keras.model.layers.attention import (
    AttentionOptions,
    CrossAttention,
    SelfAttention,
)
from t2t_keras.model.layers.dropout import Dropout
from t2t_keras.model.layers.embedding import Embedding, LearnedPositions, sinusoids
from t2t_keras.model.layers.linear import FeedForward
from t2t_keras.model.layers.residual import LayerNorm, Residual
from t2t_keras.model.layers.window_attention import WindowSelfAttention


class TransformerConfig(TypedDict):
    """The constructor's arguments, and what is frozen, as values of JSON."""

    hparams: dict[str, object]
    source_vocab_size: int
    target_vocab_size: int | None
    name: str
    trainable: bool
    frozen_layers: list[str]  # their paths in the model


class TransformerParts(keras.Model):
    """The parts of a `Transformer`, built at construction.

    They come from the methods `make_...`: a subclass that overrides one of them is a
    model with another part. It has the arguments and attributes of `Transformer`.
    """

    preprocessor: object = None

    def __init__(
        self,
        hparams: HParams,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        name: str = "transformer",
    ) -> None:
        is_mixed = hparams.compute_dtype != "float32"
        policy = f"mixed_{hparams.compute_dtype}" if is_mixed else "float32"
        # In 16 bits, Keras would round ids that are floats.
        super().__init__(name=name, dtype=policy, autocast=False)
        self.hparams = hparams
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size
        self.embeddings = self.make_embeddings()
        self.source_embedding = self.embeddings[0]
        is_shared = target_vocab_size is None and hparams.share_embeddings
        self.target_embedding = self.embeddings[0 if is_shared else 1]
        self.softmax_embedding = self.embeddings[-1]
        self.positions = self.make_positions()
        self.source_dropout = self._dropout("source_dropout")
        self.target_dropout = self._dropout("target_dropout")
        self.output_bias: keras.Variable | None = None
        self.encoder = self.make_encoder()
        self.decoder = self.make_decoder()
        self.build((None, None, hparams.d_model))

    def build(self, input_shape: Shape) -> None:
        """Creates all weights."""
        for layer in self.layers:
            takes_ids = isinstance(layer, (Embedding, LearnedPositions))
            layer.build(input_shape[:-1] if takes_ids else input_shape)

    def make_embeddings(self) -> list[Embedding]:
        """Returns one to three embeddings, see `Transformer.embeddings`."""
        source_size = self.source_vocab_size
        target_size = self.target_vocab_size or source_size
        is_shared = self.hparams.share_embeddings
        if self.target_vocab_size is None and is_shared:
            return [self.make_embedding(source_size, "embedding")]
        embeddings = [
            self.make_embedding(source_size, "source_embedding"),
            self.make_embedding(target_size, "target_embedding"),
        ]
        if not is_shared:
            embeddings.append(self.make_embedding(target_size, "softmax"))
        return embeddings

    def make_embedding(self, vocab_size: int, name: str) -> Embedding:
        """Returns a layer that embeds ids [...] as float32 [..., D] (3.4)."""
        d_model = self.hparams.d_model
        return Embedding(vocab_size, d_model, name=name, dtype=self.dtype_policy)

    def make_positions(self) -> Callable[[Tensor], Tensor]:
        """Returns a map of integer positions to float32 encodings (3.5).

        It maps [T] to [T, D], and in packed rows [B, T] to [B, T, D].
        """
        d_model = self.hparams.d_model
        if self.hparams.position == "learned":
            rows = self.hparams.max_positions
            return LearnedPositions(rows, d_model, name="positions", dtype="float32")
        return functools.partial(sinusoids, d_model=d_model)

    def make_encoder(self) -> Encoder:
        """Returns the encoder, which maps [B, S, D] to [B, S, D]."""
        count = self.hparams.num_layers
        layers = [self.make_encoder_layer(f"layer_{i}") for i in range(count)]
        norm = self._final_norm()
        return Encoder(layers, norm, name="encoder", dtype=self.dtype_policy)

    def make_decoder(self) -> Decoder:
        """Returns the decoder, which maps [B, T, D] to [B, T, D]."""
        count = self.hparams.decoder_layers
        layers = [self.make_decoder_layer(f"layer_{i}") for i in range(count)]
        norm = self._final_norm()
        return Decoder(layers, norm, name="decoder", dtype=self.dtype_policy)

    def make_encoder_layer(self, name: str) -> EncoderLayer:
        """Returns an encoder layer, which maps [B, S, D] to [B, S, D] (3.1)."""
        return EncoderLayer(
            self.make_self_attention(causal=False),
            self.make_feed_forward(),
            self._residuals("self_attention", "feed_forward"),
            name=name,
            dtype=self.dtype_policy,
        )

    def make_decoder_layer(self, name: str) -> DecoderLayer:
        """Returns a decoder layer, which maps [B, T, D] to [B, T, D] (3.1)."""
        return DecoderLayer(
            self.make_self_attention(causal=True),
            self.make_cross_attention(),
            self.make_feed_forward(),
            self._residuals("self_attention", "cross_attention", "feed_forward"),
            name=name,
            dtype=self.dtype_policy,
        )

    def make_self_attention(self, causal: bool) -> SelfAttention:
        """Returns a self-attention sub-layer (3.2).

        With `attention_window` = r, position i attends to positions j with
        |i - j| <= r / 2 in the encoder and i - r < j <= i in the decoder. A decoding
        step passes `SelfAttention.compute_attention` a cache, which comes from
        `empty_cache` and is a `TokenCache`.

        Args:
            causal: whether no position attends to later ones, as in the decoder.
        """
        options = self.attention_options("self_attention")
        if window := self.hparams.attention_window:
            return WindowSelfAttention(
                left_context=window - 1 if causal else window // 2,
                right_context=0 if causal else window // 2,
                **options,
            )
        return SelfAttention(causal=causal, **options)

    def make_cross_attention(self) -> CrossAttention:
        """Returns a sub-layer that attends to the encoded source (3.2.3)."""
        return CrossAttention(**self.attention_options("cross_attention"))

    def attention_options(self, name: str) -> AttentionOptions:
        """Returns the arguments of both attention layers."""
        return {
            "d_model": self.hparams.d_model,
            "num_heads": self.hparams.num_heads,
            "key_size": self.hparams.key_size,
            "value_size": self.hparams.value_size,
            "score": self.hparams.attention,
            "dropout": self.hparams.attention_dropout,
            "name": name,
            "dtype": self.dtype_policy,
        }

    def make_feed_forward(self) -> FeedForward:
        """Returns a feed-forward network, which maps [B, T, D] to [B, T, D] (3.3)."""
        return FeedForward(
            self.hparams.d_model,
            self.hparams.d_ff,
            self.hparams.ffn_dropout,
            name="feed_forward",
            dtype=self.dtype_policy,
        )

    def make_norm(self) -> keras.layers.Layer:
        """Returns a normalization of float32 [B, T, D]."""
        return LayerNorm(self.hparams.d_model, name="norm")

    def make_residual(self, name: str) -> Residual:
        """Returns the residual connection around a sub-layer (3.1)."""
        norm_first = self.hparams.norm == "pre"
        return Residual(self.make_norm(), self.hparams.dropout, norm_first, name=name)

    def _residuals(self, *names: str) -> list[Residual]:
        return [self.make_residual(f"{name}_residual") for name in names]

    def _final_norm(self) -> keras.layers.Layer | None:
        """Returns the normalization that follows a stack with norm "pre"."""
        return self.make_norm() if self.hparams.norm == "pre" else None

    def _dropout(self, name: str) -> Dropout:
        return Dropout(self.hparams.dropout, name=name, dtype="float32")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Lets Keras load saved models of the class without `custom_objects`."""
        super().__init_subclass__(**kwargs)
        package = cls.__module__.partition(".")[0]
        keras.saving.register_keras_serializable(package)(cls)

    def get_config(self) -> TransformerConfig:
        """Returns the constructor's arguments and what is frozen, for Keras."""
        layers = self._layers_by_path().items()
        return {
            "trainable": self.trainable,
            "frozen_layers": [path for path, x in layers if not x.trainable],
            "hparams": dataclasses.asdict(self.hparams),
            "source_vocab_size": self.source_vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "name": self.name,
        }

    @classmethod
    def from_config(
        cls, config: TransformerConfig, custom_objects: object = None
    ) -> Self:
        """Returns the model that `get_config` describes."""
        model = cls(
            HParams.from_dict(config["hparams"]),
            config["source_vocab_size"],
            config["target_vocab_size"],
            config["name"],
        )
        trainable = config["trainable"]
        frozen = config["frozen_layers"]
        if frozen or not trainable:
            # A layer sets all of its inner layers, which come after it.
            model.trainable = trainable
            for path, layer in model._layers_by_path().items():
                layer.trainable = path not in frozen
        return model

    def _layers_by_path(self) -> dict[str, keras.layers.Layer]:
        """Returns all inner layers by their paths below the model's."""
        layers = inner_layers(self)
        return {layer.path.removeprefix(f"{self.path}/"): layer for layer in layers}

    def with_compute_dtype(self, dtype: str) -> Self:
        """Returns a model with the same weights that computes in another dtype."""
        config = self.get_config()
        config["hparams"]["compute_dtype"] = dtype
        model = type(self).from_config(config)
        model.set_weights(self.get_weights())
        model.preprocessor = self.preprocessor
        return model
