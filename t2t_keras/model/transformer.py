"""The Transformer: embeddings, encoder, decoder, and decoding step by step (3)."""

import dataclasses
import itertools
from typing import Any

import keras
from keras import ops

from t2t_keras.hparam import HParams
from t2t_keras.layers.attention import padding_bias
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.embedding import Embedding
from t2t_keras.layers.matrix import HasMatrix, held
from t2t_keras.layers.position import LearnedPositions, sinusoids, t2t_timing_signal
from t2t_keras.model.decoder import Decoder
from t2t_keras.model.encoder import Encoder

PAD = 0

# {"bias": hides the source's padding,
#  "matrices": what each step multiplies by, in the dtype of the products,
#  "layers": a `LayerCache` for each layer}
Cache = dict[str, Any]


class Transformer(keras.Model):
    """The encoder-decoder of "Attention Is All You Need", built at construction.

    Args:
        hparams: sizes, norm, positions, dropout.
        source_vocab_size: rows of the source embedding.
        target_vocab_size: rows of the target embedding; None when both languages have
            one vocabulary, of `source_vocab_size`.
    """

    def __init__(
        self,
        hparams: HParams,
        source_vocab_size: int,
        target_vocab_size: int | None = None,
        name: str = "transformer",
    ) -> None:
        mixed = hparams.compute_dtype != "float32"
        policy = f"mixed_{hparams.compute_dtype}" if mixed else "float32"
        super().__init__(name=name, dtype=policy)
        self.hparams = hparams
        self.source_vocab_size = source_vocab_size
        self.target_vocab_size = target_vocab_size

        def embedding(size: int, name: str) -> Embedding:
            return Embedding(size, hparams.d_model, name=name, dtype=policy)

        one_vocabulary = target_vocab_size is None
        target_size = target_vocab_size or source_vocab_size
        if one_vocabulary and hparams.share_embeddings:
            self.embeddings = [embedding(source_vocab_size, "embedding")]
        else:
            self.embeddings = [
                embedding(source_vocab_size, "source_embedding"),
                embedding(target_size, "target_embedding"),
            ]
        if not hparams.share_embeddings:
            self.embeddings.append(embedding(target_size, "softmax"))

        self.positions = (
            LearnedPositions(hparams.max_positions, hparams.d_model, name="positions")
            if hparams.position == "learned"
            else None
        )
        self.source_dropout = Dropout(hparams.dropout, name="source_dropout")
        self.target_dropout = Dropout(hparams.dropout, name="target_dropout")
        self.encoder = Encoder(hparams, name="encoder", dtype=policy)
        self.decoder = Decoder(hparams, name="decoder", dtype=policy)
        self.build(None)

    def build(self, input_shape: Any = None) -> None:
        """Creates all weights; their shapes follow from the hparams alone."""
        for layer in (
            *self.embeddings,
            *([self.positions] if self.positions else []),
            self.source_dropout,
            self.target_dropout,
            self.encoder,
            self.decoder,
        ):
            layer.build(None)

    # With one vocabulary the three roles are played by one matrix, with two
    # vocabularies by two, without sharing by three (3.4).

    @property
    def source_embedding(self) -> Embedding:
        """What embeds source ids."""
        return self.embeddings[0]

    @property
    def target_embedding(self) -> Embedding:
        """What embeds target ids."""
        return self.embeddings[min(1, len(self.embeddings) - 1)]

    @property
    def softmax_embedding(self) -> Embedding:
        """Whose matrix, transposed, maps to logits."""
        return self.embeddings[-1]

    def call(self, source: Any, target: Any, seed: Any = None) -> Any:
        """Teacher forcing: the logits of each target position given those before it.

        Args:
            source: ids [B, S], padded with 0.
            target: ids [B, T], padded with 0; not shifted, this is done here.
            seed: int32 [2], of dropout; None at inference.

        Returns:
            float32 logits [B, T, V].
        """
        return self.logits(self.states(source, target, seed=seed))

    def states(self, source: Any, target: Any, seed: Any = None) -> Any:
        """Returns what `call` maps to logits: the decoder's output [B, T, D]."""
        shifted = ops.pad(target, ((0, 0), (1, 0)))[:, :-1]  # the first input is PAD
        x, y = self._embed_both(source, shifted)
        memory = self._encode(x, source, seed)
        y = self.target_dropout(y, seed=seed)
        return self.decoder(y, memory, padding_bias(source == PAD), seed=seed)

    def logits(self, states: Any) -> Any:
        """Returns float32 logits [..., V] of the decoder's output [..., D]."""
        return self.softmax_embedding.logits(states)

    def encode(self, source: Any) -> Any:
        """Returns the memory [B, S, D] of source ids [B, S]."""
        return self._encode(self._embed(self.source_embedding, source, 0), source, None)

    def _encode(self, x: Any, source: Any, seed: Any) -> Any:
        """Returns the memory of embedded source ids [B, S, D]."""
        x = self.source_dropout(x, seed=seed)
        return self.encoder(x, padding_bias(source == PAD), seed=seed)

    def start_cache(self, memory: Any, source: Any, num_beams: Any) -> Cache:
        """Returns the cache with which decoding begins.

        Args:
            memory: [B, S, D], from `encode`.
            source: ids [B, S], which say where the padding is.
            num_beams: K, hypotheses for each sentence.
        """
        return {
            "bias": padding_bias(source == PAD),
            "matrices": [layer.matrix() for layer in self._step_products],
            "layers": self.decoder.start_cache(memory, num_beams),
        }

    def decode_step(self, ids: Any, position: Any, cache: Cache) -> tuple[Any, Cache]:
        """Extends every hypothesis by one position.

        Args:
            ids: [B, K], what was generated last; 0 at position 0.
            position: of the logits to return, counted from 0; a scalar.
            cache: from `start_cache` or the step before.

        Returns:
            float32 logits [B, K, V] and the cache for the next step.
        """
        x = self._embed(self.target_embedding, ids, position, axis=0)
        with held(self._step_products, cache["matrices"]):
            x, layers = self.decoder.step(x, cache["bias"], cache["layers"])
            return self.logits(x), cache | {"layers": layers}

    def reorder_cache(self, cache: Cache, parents: Any) -> Cache:
        """Returns the cache in which beam k continues beam `parents[b, k]`.

        Only the hypotheses' own past moves; the source is the same for all beams.

        Args:
            cache: as in `decode_step`.
            parents: int32 [B, K].
        """
        batch, beams = ops.shape(parents)
        rows = ops.reshape(parents + ops.arange(batch)[:, None] * beams, (-1,))
        layers = [
            {
                name: ops.take(value, rows, axis=0) if "self" in name else value
                for name, value in layer.items()
            }
            for layer in cache["layers"]
        ]
        return cache | {"layers": layers}

    def cache_shapes(self, cache: Cache) -> Cache:
        """Returns the cache's static shapes as a loop over steps sees them.

        The time axis of the past grows by one a step: None.
        """

        def shape(name: str, value: Any) -> tuple[int | None, ...]:
            static = tuple(value.shape)
            return (*static[:2], None, static[3]) if "self" in name else static

        return {
            "bias": shape("bias", cache["bias"]),
            "matrices": [tuple(matrix.shape) for matrix in cache["matrices"]],
            "layers": [
                {name: shape(name, value) for name, value in layer.items()}
                for layer in cache["layers"]
            ],
        }

    @property
    def _step_products(self) -> list[HasMatrix]:
        """The layers whose matrices a step of decoding multiplies by."""
        in_layers = (layer.step_products for layer in self.decoder.layers)
        return [*itertools.chain(*in_layers), self.softmax_embedding]

    def _embed_both(self, source: Any, target: Any) -> tuple[Any, Any]:
        """Embeds [B, S] and [B, T], in one look-up if they share a matrix.

        The gradient of a shared matrix is then the sum of two parts, of embeddings and
        of logits. Three would be added in an order that varies from run to run.
        """
        if self.source_embedding is not self.target_embedding:
            x = self._embed(self.source_embedding, source, 0)
            return x, self._embed(self.target_embedding, target, 0)
        rows = [ops.reshape(ids, (-1,)) for ids in (source, target)]
        vectors = self.source_embedding(ops.concatenate(rows)[None])[0]
        count = ops.shape(rows[0])[0]
        x = ops.reshape(vectors[:count], (*ops.shape(source), -1))
        y = ops.reshape(vectors[count:], (*ops.shape(target), -1))
        return self._add_positions(x, 0), self._add_positions(y, 0)

    def _embed(self, embedding: Embedding, ids: Any, start: Any, axis: int = 1) -> Any:
        """Embeds ids and adds their positions, `start` onwards along the axis."""
        return self._add_positions(embedding(ids), start, axis)

    def _add_positions(self, x: Any, start: Any, axis: int = 1) -> Any:
        """Adds positions, `start` onwards along the axis, to [B, T, D]."""
        count = ops.shape(x)[1] if axis == 1 else 1
        positions = ops.arange(count) + start
        if self.positions:
            signal = self.positions(positions)
        elif self.hparams.position == "t2t":
            signal = t2t_timing_signal(positions, self.hparams.d_model)
        else:
            signal = sinusoids(positions, self.hparams.d_model)
        return x + ops.cast(signal, "float32")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, for Keras."""
        return {
            "hparams": dataclasses.asdict(self.hparams),
            "source_vocab_size": self.source_vocab_size,
            "target_vocab_size": self.target_vocab_size,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Makes the model that `get_config` describes."""
        return cls(**config | {"hparams": HParams.from_dict(config["hparams"])})
