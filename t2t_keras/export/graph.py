"""The graph of an export: weights, tokenizers and signatures as one saved object."""

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.decoding.beam_search import Hypotheses, length_penalty
from t2t_keras.decoding.constraint import Phrases, protected_parts
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.scoring import score_targets
from t2t_keras.decoding.texts import padded
from t2t_keras.decoding.translator import Translator
from t2t_keras.option import conditions
from t2t_keras.problem import WHITE_ENDS, WHITE_SPACE
from t2t_keras.text.sentences import join_outputs, split_long_text
from t2t_keras.text.tokenizer import EOS, PAD, UNK, GraphTokenizer

DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY

# The options that requests may have, as inputs of signatures.
_SCALARS = {
    name: tf.TensorSpec([], dtype, name)
    for name, dtype in DecodingOptions.dtypes("is_served").items()
}


class StoredWeight(tf.Module):
    """A weight in 8 or 16 bits: rounded when written, restored in the graph.

    Only matrices are rounded, that is almost all weights; the arithmetic stays that of
    the model's compute dtype. In 8 bits, every channel (the output of a kernel's
    column, or the token of an embedding's row) has a scale, so that its largest weight
    is 127.

    Args:
        weight: the model's weight.
        quantization: the dtype to which matrices are rounded.
    """

    def __init__(self, weight: keras.Variable, quantization: str) -> None:
        super().__init__(name="weight")
        array = np.asarray(keras.ops.convert_to_numpy(weight), np.float32)
        self._scale: tf.Variable | None = None
        if array.ndim < 2:
            stored = tf.constant(array)
        elif quantization == "int8":
            channels = 1 if weight.name == "table" else 0  # rows, or columns
            largest = np.abs(array).max(axis=channels, keepdims=True)
            scale = np.where(largest > 0, largest, 1.0).astype(np.float32) / 127
            stored = tf.constant(np.rint(array / scale), tf.int8)
            self._scale = tf.Variable(scale, trainable=False)
        else:
            stored = tf.cast(tf.constant(array), quantization)
        self._stored = tf.Variable(stored, trainable=False)

    def restored(self) -> tf.Tensor:
        """Returns the weight in float32, rounded."""
        weight = tf.cast(self._stored, tf.float32)
        return weight if self._scale is None else weight * self._scale


class _Sources(NamedTuple):
    """The texts of a request as rows of a batch: R rows for B texts.

    Attributes:
        ids: [R, S] int32. A blank text is a row of PAD, whose output is empty.
        texts: [R] strings, the same sources.
        owners: [R] int64, the text of which each row is a part, in increasing order.
        is_truncated: [B], whether a text was truncated.
    """

    ids: tf.Tensor
    texts: tf.Tensor
    owners: tf.Tensor
    is_truncated: tf.Tensor


class ServedModel(tf.Module):
    """The saved object: weights, tokenizers unless `ids_only`, and signatures."""

    def __init__(
        self,
        translator: Translator,
        options: DecodingOptions,
        quantization: str | None,
        ids_only: bool,
    ) -> None:
        super().__init__(name="t2t_keras")
        # TensorFlow saves the variables and tables that it can reach from here: the
        # plain variables, each once, but not the Keras model, because the translator
        # that holds it is not a trackable object.
        self._translator = translator
        self._options = options
        self._ids_only = ids_only
        self._form = translator.problem.text_form
        self._is_rounded = quantization is not None
        self._weights = [
            StoredWeight(weight, quantization) if quantization else weight.value
            for weight in translator.model.weights
        ]
        if not ids_only:
            self._source_tokenizer = translator.source_tokenizer.graph()
            self._target_tokenizer = translator.target_tokenizer.graph()

    def weights(self) -> list[np.ndarray]:
        """Returns the weights with which the graph computes."""
        return [weight.restored().numpy() for weight in self._weights]

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """Traces the signatures and returns them by name.

        Every function is traced once, before those that call it. If they called a
        `tf.function`, TensorFlow would trace it again for inputs with other names, and
        when the model is saved.
        """
        ids = tf.TensorSpec([None, None], tf.int32, "ids")
        target_ids = tf.TensorSpec([None, None], tf.int32, "targets")
        texts = tf.TensorSpec([None], tf.string, "texts")
        targets = tf.TensorSpec([None], tf.string, "targets")
        self._search = _traced(
            self._beam_search,
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.string),
            _SCALARS,
            autograph=False,
        )
        self._search_ids = _traced(self.search_ids, ids, **_SCALARS)
        translate_ids = _traced(self.translate_ids, ids)
        signatures = {
            DEFAULT_SIGNATURE: translate_ids,
            "translate_ids": translate_ids,
            "search_ids": self._search_ids,
            "score_ids": _traced(self.score_ids, ids, target_ids),
            "options": _traced(self._defaults),
        }
        if not self._ids_only:
            self._translate = _traced(self.translate, texts, **_SCALARS)
            signatures |= {
                DEFAULT_SIGNATURE: _traced(self.serve, texts),
                "translate": self._translate,
                "score": _traced(self.score, texts, targets),
            }
        return signatures

    def warm_up(self, texts: list[str]) -> dict[str, dict[str, tf.Tensor]]:
        """Returns inputs for the default signature, and for the one with options.

        Args:
            texts: sources; if there are none, they are the last tokens of the
                vocabulary.
        """
        tokenizer = self._translator.source_tokenizer
        size = tokenizer.vocab_size
        texts = texts or [tokenizer.decode(range(max(UNK + 1, size - 8), size))]
        name, inputs = "translate", {"texts": tf.constant(texts)}
        if self._ids_only:
            most = self._options.max_source_length
            rows = tokenizer.encode_batch(texts)
            ids = padded([[*row[:-1][: most - 1], EOS] for row in rows])
            name, inputs = "search_ids", {"ids": tf.constant(ids)}
        return {DEFAULT_SIGNATURE: inputs, name: inputs | self._defaults()}

    def translate_ids(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps ids to n-best ids, with the options of the export."""
        return self._search_ids(ids, **self._defaults())

    def search_ids(self, ids: tf.Tensor, **numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps ids to n-best ids, with the options in `numbers`."""
        tokenizer = self._translator.source_tokenizer
        assertions = _ids_assertions(ids, tokenizer.vocab_size, "ids", ends=True)
        with tf.control_dependencies(assertions):
            ids = tf.identity(ids)
        found = self._search(ids, self._texts(ids), numbers)
        return {"ids": found.ids, "scores": found.scores, "lengths": found.lengths}

    def score_ids(self, ids: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the log-probabilities of target ids, given the source ids."""
        source = self._translator.source_tokenizer.vocab_size
        target = self._translator.target_tokenizer.vocab_size
        are_pairs = _require(
            tf.shape(ids)[0] == tf.shape(targets)[0],
            "ids and targets must be of equal length: row by row they are pairs",
        )
        assertions = [
            are_pairs,
            *_ids_assertions(ids, source, "ids", ends=True),
            *_ids_assertions(targets, target, "targets", ends=False),
        ]
        with tf.control_dependencies(assertions):
            ids, targets = tf.identity(ids), tf.identity(targets)
        return self._score(ids, targets)

    def _defaults(self) -> dict[str, tf.Tensor]:
        """Returns the options that `translate` takes, as the export has them."""
        return {
            name: tf.constant(getattr(self._options, name), spec.dtype)
            for name, spec in _SCALARS.items()
        }

    def _beam_search(
        self, ids: tf.Tensor, texts: tf.Tensor, numbers: dict[str, tf.Tensor]
    ) -> Hypotheses:
        """Runs beam search with the translator's limits and constraints.

        Args:
            ids: [B, S] int32, the sources; a row of PAD has the empty output.
            texts: [B] strings, the same sources.
            numbers: the options that `translate` takes.
        """
        fits = numbers["n_best"] <= numbers["beam_size"]
        assertions = [_require(*each) for each in conditions(DecodingOptions, numbers)]
        assertions.append(_require(fits, "n_best must be at most beam_size"))
        with tf.control_dependencies(assertions):
            ids = tf.identity(ids)
            numbers = {name: tf.identity(value) for name, value in numbers.items()}
        phrases = Phrases.of(self._options, self._translator.target_tokenizer)
        copied = self._copied(texts)
        with self._restored():
            return self._translator.search(
                self._options, numbers, ids, texts, phrases, copied=copied
            )

    def _score(self, ids: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores targets [B, T], given the sources [B, S]."""
        with self._restored():
            scores = score_targets(self._translator.model, ids, targets)
        return {
            "log_prob": scores.log_probs,
            "tokens": scores.lengths,
            "token_log_probs": scores.token_log_probs,
        }

    def _restored(self) -> AbstractContextManager[object]:
        """Within it, the model computes with the rounded weights."""
        if not self._is_rounded:
            return contextlib.nullcontext()
        weights = (weight.restored() for weight in self._weights)
        pairs = zip(self._translator.model.weights, weights, strict=True)
        return keras.StatelessScope(list(pairs))

    def serve(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps texts to n-best texts, with the options of the export."""
        return self._translate(texts, **self._defaults())

    def translate(self, texts: tf.Tensor, **numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps texts to n-best texts, with the options in `numbers`."""
        is_blank = tf.strings.regex_full_match(texts, f"[{WHITE_SPACE}]*")
        texts = self._form.source_texts(texts, self._options.raw)
        sources = self._sources(texts, is_blank)
        found = self._search(sources.ids, sources.texts, numbers)
        targets, scores = self._decode(found.ids), found.scores
        if self._translator.splits(self._options):
            kind, size = self._options.length_penalty, tf.size(texts, tf.int64)
            penalty = functools.partial(
                length_penalty, alpha=numbers["alpha"], kind=kind
            )
            targets, scores = _joined(targets, found, sources.owners, size, penalty)
        outputs = self._form.output_texts(texts, targets)
        return {
            "texts": tf.where(is_blank[:, None], "", outputs),
            "scores": scores,
            "is_truncated": sources.is_truncated,
        }

    def score(self, texts: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the log-probabilities of the targets, given the texts."""
        are_pairs = _require(
            tf.size(texts) == tf.size(targets),
            "texts and targets must be of equal length: line by line they are pairs",
        )
        with tf.control_dependencies([are_pairs]):
            texts, targets = tf.identity(texts), tf.identity(targets)
        targets = tf.strings.regex_replace(targets, WHITE_ENDS, "")
        target_ids, is_cut = self._encode(self._target_tokenizer, targets)
        texts = self._form.source_texts(texts, self._options.raw)
        source_ids, is_truncated = self._encode(self._source_tokenizer, texts)
        scores = self._score(source_ids, target_ids)
        return scores | {"ids": target_ids, "is_truncated": is_truncated | is_cut}

    def _decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Decodes ids [B, n, T] to texts [B, n], one line each."""
        batch, n, length = tf.unstack(tf.shape(ids))
        texts = self._target_tokenizer.decode(tf.reshape(ids, [batch * n, length]))
        return tf.reshape(tf.strings.regex_replace(texts, "\n", " "), [batch, n])

    def _texts(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the texts [B] of source ids, if the search needs them."""
        if self._options.constraint == "none" and not self._options.needs_texts:
            return tf.fill(tf.shape(ids)[:1], "")
        return self._source_tokenizer.decode(ids)

    def _copied(self, texts: tf.Tensor) -> tf.Tensor | None:
        """Returns the ids of what is protected in texts [B], see `Search`."""
        if not self._options.protect:
            return None
        pieces = self._translator.source_tokenizer.pieces
        found = protected_parts(texts, self._options.protect, pieces)
        ids = self._target_tokenizer.encode(found.values)[:, :-1]
        return found.with_values(ids).to_tensor(PAD)

    def _sources(self, texts: tf.Tensor, is_blank: tf.Tensor) -> _Sources:
        """Returns the rows for texts [B], some of which may be blank [B]."""
        ids, is_long = self._encode(self._source_tokenizer, texts)
        ids = tf.where(is_blank[:, None], PAD, ids)
        is_long &= ~is_blank
        owners = tf.range(tf.size(texts, tf.int64))
        if not self._translator.splits(self._options):
            return _Sources(ids, texts, owners, is_long)
        long = tf.boolean_mask(owners, is_long)
        others = tf.boolean_mask(owners, ~is_long)
        parts = tf.map_fn(
            lambda text: split_long_text(
                text,
                self._source_tokenizer.encode,
                self._options.max_source_length,
                self._form.tags,
            ),
            tf.gather(texts, long),
            fn_output_signature=tf.RaggedTensorSpec(
                [None, None], tf.int32, ragged_rank=1, row_splits_dtype=tf.int64
            ),
        )  # [long texts, (parts), (tokens)]
        owners = tf.concat([others, tf.gather(long, parts.value_rowids())], 0)
        order = tf.argsort(owners, stable=True)
        whole = tf.RaggedTensor.from_tensor(tf.gather(ids, others))
        rows = tf.concat([whole, parts.values], axis=0)
        part_texts = self._source_tokenizer.decode(parts.values.to_tensor(PAD))
        return _Sources(
            tf.gather(rows, order).to_tensor(PAD),
            tf.gather(tf.concat([tf.gather(texts, others), part_texts], 0), order),
            tf.gather(owners, order),
            tf.zeros_like(is_long),
        )

    def _encode(
        self, tokenizer: GraphTokenizer, texts: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns ids [B, S], truncated if too long, and which ones are truncated."""
        most = self._options.max_source_length - 1
        without_end = tokenizer.encode(texts)[:, :-1]
        end = tf.fill([tf.size(texts), 1], EOS)
        ids = tf.concat([without_end[:, :most], end], axis=1).to_tensor(PAD)
        return ids, tf.cast(without_end.row_lengths(), tf.int32) > most


def _traced(
    function: Callable[..., Any], *specs: Any, autograph: bool = True, **named: Any
) -> tf.types.experimental.ConcreteFunction:
    """Returns the graph of a function for inputs with these specs."""
    traceable = tf.function(function, autograph=autograph)
    return traceable.get_concrete_function(*specs, **named)


def _joined(
    targets: tf.Tensor,
    found: Hypotheses,
    owners: tf.Tensor,
    size: tf.Tensor,
    penalty: Callable[[tf.Tensor], tf.Tensor],
) -> tuple[tf.Tensor, tf.Tensor]:
    """Joins the targets for the parts of texts, as `Translator` does.

    Args:
        targets: [R, n] strings.
        found: their hypotheses.
        owners: [R], the text of which each row is a part, in increasing order.
        size: int64, the number of texts, B.
        penalty: maps lengths to length penalties.

    Returns:
        The targets [B, n] of the texts, and their scores [B, n].
    """

    def total(values: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(values, owners, size)

    log_probs = total(found.log_probs)
    joined_scores = log_probs / penalty(total(found.lengths))
    coverage = total(found.scores - found.log_probs / penalty(found.lengths))
    joined_scores += tf.where(tf.math.is_inf(log_probs), 0.0, coverage)
    is_split = total(tf.ones_like(owners)) > 1
    scores = tf.where(is_split[:, None], joined_scores, total(found.scores))

    ranks = tf.shape(targets, tf.int64)[1]
    by_rank = tf.range(ranks)[:, None] * size + owners
    parts = tf.RaggedTensor.from_value_rowids(
        tf.reshape(tf.transpose(targets), [-1]),
        tf.reshape(by_rank, [-1]),
        ranks * size,
    )
    texts = tf.transpose(tf.reshape(join_outputs(parts), [ranks, size]))
    # A rank that one of the parts does not have is left out, but there is always one.
    is_left_out = tf.math.is_inf(scores) & (tf.range(ranks) > 0)
    return tf.where(is_left_out, "", texts), scores


def _ids_assertions(
    ids: tf.Tensor, vocab_size: int, name: str, *, ends: bool
) -> list[tf.Operation]:
    """Returns assertions that check a user's ids [B, S].

    Args:
        ids: the ids.
        vocab_size: number of ids in the vocabulary.
        name: the name of the input.
        ends: whether each row must end in EOS.
    """
    lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
    is_token = tf.sequence_mask(lengths, tf.shape(ids)[1])
    after_end = tf.pad(ids, [[0, 0], [1, 0]], constant_values=EOS)
    last = tf.gather(after_end, lengths, axis=1, batch_dims=1)
    assertions = [
        _require(
            (ids >= 0) & (ids < vocab_size),
            f"{name} must be from 0 to {vocab_size - 1}, as the vocabulary has",
        ),
        _require(
            (ids != PAD) == is_token,
            f"{name} {PAD} (padding) may only follow the last token of a row",
        ),
    ]
    if ends:
        message = f"each row of {name} must end in {EOS} (EOS), then {PAD} (padding)"
        assertions.append(_require(last == EOS, message))
    return assertions


def _require(condition: tf.Tensor, message: str) -> tf.Operation:
    """Returns the operation that raises the message unless all elements are true."""
    return tf.debugging.Assert(tf.reduce_all(condition), [message])
