"""Ensembles: several models that decode together."""

from collections.abc import Sequence
from typing import Self, TypeAlias

import keras
import tensorflow as tf

from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.model.backend import Nest
from t2t_keras.model.transformer import Transformer


class Ensemble:
    """Models with the same vocabularies, whose probabilities are averaged.

    The probability of each next token is the mean of its probabilities by the models.
    An ensemble takes the place of a model in beam search, sampling, scoring and
    exports: it has the methods of `Transformer` that decode step by step, with a cache
    that holds the caches of its models. The "logits" are the logarithms of the mean.

    Attributes:
        models: the models.

    Raises:
        UserError: there is no model, or the vocabularies differ in size.
    """

    def __init__(self, models: Sequence[Transformer]) -> None:
        sizes = {(m.source_vocab_size, m.target_vocab_size) for m in models}
        if len(sizes) != 1:
            raise UserError(
                "an ensemble needs one or more models with vocabularies of equal size; "
                f"these have {sorted(sizes)}"
            )
        self.models = tuple(models)

    @property
    def hparams(self) -> HParams:
        """Returns the hyper-parameters of the first model."""
        return self.models[0].hparams

    @property
    def weights(self) -> list[keras.Variable]:
        """Returns the weights of all models."""
        return [weight for model in self.models for weight in model.weights]

    def with_compute_dtype(self, dtype: str) -> Self:
        """Returns an ensemble with the same weights that computes in another dtype."""
        return type(self)([model.with_compute_dtype(dtype) for model in self.models])

    def __call__(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Returns the log-probabilities [B, T, V] for ids [B, S] and [B, T]."""
        return _mean([model(source, target) for model in self.models])

    def encode(self, source: tf.Tensor) -> Nest:
        """Returns the encoder outputs of all models for source ids [B, S]."""
        return tuple(model.encode(source) for model in self.models)

    def _call_each(self, method: str, caches: Nest, *args: tf.Tensor) -> Nest:
        """Calls a method of each model with its cache, and returns the results."""
        pairs = zip(self.models, caches, strict=True)
        return tuple(getattr(model, method)(cache, *args) for model, cache in pairs)

    def start_cache(
        self, encoder_output: Nest, source: tf.Tensor, num_beams: tf.Tensor
    ) -> Nest:
        """Returns the caches before the first step."""
        return self._call_each("start_cache", encoder_output, source, num_beams)

    @property
    def reserves_cache(self) -> bool:
        """Whether no axis of the caches grows after `reserve_cache`."""
        return all(model.reserves_cache for model in self.models)

    def reserve_cache(self, cache: Nest, steps: int | tf.Tensor) -> Nest:
        """Returns the caches, preallocated for a total number of steps."""
        return self._call_each("reserve_cache", cache, steps)

    def cache_shapes(self, cache: Nest) -> Nest:
        """Returns the shapes that hold for the caches at every step."""
        return self._call_each("cache_shapes", cache)

    def decode_step(
        self, ids: tf.Tensor, position: tf.Tensor, cache: Nest
    ) -> tuple[tf.Tensor, Nest]:
        """Returns log-probabilities [B, K, V] and caches after tokens [B, K]."""
        all_logits = []
        caches = []
        for model, model_cache in zip(self.models, cache, strict=True):
            logits, next_cache = model.decode_step(ids, position, model_cache)
            all_logits.append(logits)
            caches.append(next_cache)
        return _mean(all_logits), tuple(caches)

    def reorder_cache(self, cache: Nest, parents: tf.Tensor) -> Nest:
        """Returns the caches in which beam k continues beam `parents[b, k]`."""
        return self._call_each("reorder_cache", cache, parents)

    def select_rows(self, cache: Nest, rows: tf.Tensor) -> Nest:
        """Returns the caches of the given rows of the batch."""
        return self._call_each("select_rows", cache, rows)

    def track_coverage(self, cache: Nest, source: tf.Tensor) -> Nest:
        """Returns the caches before the first step, extended for `coverage`."""
        return self._call_each("track_coverage", cache, source)

    def coverage(self, cache: Nest) -> tf.Tensor:
        """Returns the mean of the models' coverages, [B, K, S]."""
        return tf.reduce_mean(tf.stack(self._call_each("coverage", cache)), axis=0)


# What `Translator` takes.
DecodingModel: TypeAlias = Transformer | Ensemble


def _mean(logits: Sequence[tf.Tensor]) -> tf.Tensor:
    """Returns the logarithms of the mean probabilities for logits [..., V]."""
    log_probs = tf.stack([tf.nn.log_softmax(x) for x in logits])  # [models, ..., V]
    return tf.reduce_logsumexp(log_probs, axis=0) - tf.math.log(float(len(logits)))
