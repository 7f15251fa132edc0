"""The graph of an export: weights, tokenizers and signatures as one saved object.

Weights may be stored in 8 or 16 bits.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.decoding.batches import padded
from t2t_keras.decoding.forbidden_phrases import ForbiddenTables, forbidden_tables
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.decoding.options import EMPTY_PHRASES, DecodingOptions
from t2t_keras.decoding.phrases import (
    Phrases,
    protected_parts,
    whole_word_patterns,
)
from t2t_keras.decoding.search_graph import SearchInputs, score_targets
from t2t_keras.decoding.search_loop import Hypotheses
from t2t_keras.errors import UserError
from t2t_keras.exporting.served_inputs import (
    TextSplitter,
    checked_ids,
    checked_options,
    checked_pairs,
    encode,
    join_rows,
    search_groups,
)
from t2t_keras.text.sentences import BLANK, WHITE_ENDS
from t2t_keras.text.vocabulary import EOS, PAD, UNK


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
            max_values = np.abs(array).max(axis=channels, keepdims=True)
            max_values = np.where(max_values > 0, max_values, 1.0)
            scale = max_values.astype(np.float32) / 127
            stored = tf.constant(np.rint(array / scale), tf.int8)
            self._scale = tf.Variable(scale, trainable=False)
        else:
            stored = tf.cast(tf.constant(array), quantization)
        self._stored = tf.Variable(stored, trainable=False)

    def restored(self) -> tf.Tensor:
        """Returns the weight in float32, rounded."""
        weight = tf.cast(self._stored, tf.float32)
        return weight if self._scale is None else weight * self._scale


DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY

# The options that requests may have, as inputs of signatures: numbers, one for all rows
# or one for each, and phrases, whose first axis is 1 or B. Empty phrases are padding.
_OPTIONS = {
    name: tf.TensorSpec(None, dtype, name)
    for name, dtype in DecodingOptions.dtypes("is_served").items()
}
_OPTIONS["glossary"] = tf.TensorSpec([None, None, 2], tf.string, "glossary")
_OPTIONS["forbidden"] = tf.TensorSpec([None, None], tf.string, "forbidden")


class ServedGraph(tf.Module):
    """The saved object: weights, tokenizers unless `ids_only`, and signatures.

    Args:
        translator: the translator to export.
        options: the decoding options of the export.
        quantization: the dtype to which matrices are rounded; None: float32.
        ids_only: whether the graph has no tokenizers.
    """

    def __init__(
        self,
        translator: ModelTranslator,
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
        self._text_processor = translator.text_processor
        self._is_rounded = quantization is not None
        self._weights = [
            StoredWeight(weight, quantization) if quantization else weight.value
            for weight in translator.model.weights
        ]
        omitted = EMPTY_PHRASES if ids_only else {}
        self._inputs = {k: v for k, v in _OPTIONS.items() if k not in omitted}
        if ids_only:
            self._phrases = Phrases.from_options(options, translator.target_tokenizer)
        else:
            self._add_tokenizers()

    def _add_tokenizers(self) -> None:
        """Adds tokenizers, and what depends on texts."""
        translator = self._translator
        self._source_tokenizer = translator.source_tokenizer.graph()
        self._target_tokenizer = translator.target_tokenizer.graph()
        self._splitter = TextSplitter(
            self._source_tokenizer, self._text_processor, self._options
        )
        self._forbidden_tables: ForbiddenTables | None = None
        forbidden = tf.constant(self._options.forbidden, tf.string)
        try:
            tokens = tuple(translator.target_tokenizer.token_bytes())
            self._forbidden_tables = forbidden_tables(tokens)
            tables = self._forbidden_tables(forbidden)
            self._default_tables = [table.numpy() for table in tables]
        except UserError:  # phrases cannot be forbidden with this vocabulary
            del self._inputs["forbidden"]

    def weights(self) -> list[np.ndarray]:
        """Returns the weights with which the graph computes."""
        return [weight.restored().numpy() for weight in self._weights]

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """Traces the signatures and returns them by name.

        Every function is traced once, before those that call it. If they called a
        `tf.function`, TensorFlow would trace it again for inputs with other names, and
        when the model is saved.
        """
        any_ids = tf.TensorSpec([None, None], tf.int32)
        ids = tf.TensorSpec([None, None], tf.int32, "ids")
        target_ids = tf.TensorSpec([None, None], tf.int32, "targets")
        texts = tf.TensorSpec([None], tf.string, "texts")
        targets = tf.TensorSpec([None], tf.string, "targets")
        self._search = _traced(
            self._beam_search,
            any_ids,
            tf.TensorSpec([None], tf.string),
            tf.TensorSpec([None], tf.int64),
            self._inputs,
        )
        self._score = _traced(self._score_pairs, any_ids, any_ids)
        self._search_ids = _traced(self.search_ids, ids, **self._inputs)
        translate_ids = _traced(self.translate_ids, ids)
        signatures = {
            DEFAULT_SIGNATURE: translate_ids,
            "translate_ids": translate_ids,
            "search_ids": self._search_ids,
            "score_ids": _traced(self.score_ids, ids, target_ids),
            "options": _traced(self._defaults),
        }
        if not self._ids_only:
            self._translate = _traced(self.translate, texts, **self._inputs)
            signatures |= {
                DEFAULT_SIGNATURE: _traced(self.serve, texts),
                "translate": self._translate,
                "score": _traced(self.score, texts, targets),
            }
        return signatures

    def warm_up(self, texts: list[str]) -> dict[str, dict[str, tf.Tensor]]:
        """Returns inputs for the default signature, and for the one with options.

        All have one value for each row, as TensorFlow Serving's `--enable_batching`
        needs.

        Args:
            texts: sources; if there are none, they are the last tokens of the
                vocabulary.
        """
        tokenizer = self._translator.source_tokenizer
        if not texts:
            texts = [tokenizer.decode(range(UNK + 1, tokenizer.vocab_size)[-8:])]
        name = "translate"
        inputs = {"texts": tf.constant(texts)}
        if self._ids_only:
            limit = self._options.max_source_length - 1
            rows = tokenizer.encode_batch(texts)
            ids = padded([[*row[:-1][:limit], EOS] for row in rows])
            name = "search_ids"
            inputs = {"ids": tf.constant(ids)}
        options = {
            option: np.repeat(np.atleast_1d(value), len(texts), 0)
            for option, value in self._defaults().items()
        }
        return {DEFAULT_SIGNATURE: inputs, name: inputs | options}

    def translate_ids(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps ids to n-best ids, with the options of the export."""
        return self._search_ids(ids, **self._defaults())

    def search_ids(self, ids: tf.Tensor, **options: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps ids to n-best ids, with these options."""
        vocab_size = self._translator.source_tokenizer.vocab_size
        ids = checked_ids(ids, vocab_size, "ids", needs_eos=True)
        rows = tf.range(tf.shape(ids, tf.int64)[0])
        texts = tf.fill(tf.shape(rows), "")
        if not self._ids_only:
            texts = self._source_tokenizer.decode(ids)
        hypotheses = self._search(ids, texts, rows, options)
        return {
            "ids": hypotheses.ids,
            "scores": hypotheses.scores,
            "lengths": hypotheses.lengths,
        }

    def score_ids(self, ids: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the log-probabilities of target ids, given the source ids."""
        source_size = self._translator.source_tokenizer.vocab_size
        target_size = self._translator.target_tokenizer.vocab_size
        ids, targets = checked_pairs(ids, targets)
        return self._score(
            checked_ids(ids, source_size, "ids", needs_eos=True),
            checked_ids(targets, target_size, "targets", needs_eos=False),
        )

    def serve(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps texts to n-best texts, with the options of the export."""
        return self._translate(texts, **self._defaults())

    def translate(self, texts: tf.Tensor, **options: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps texts to n-best texts, with these options."""
        is_blank = tf.strings.regex_full_match(texts, BLANK)  # [B]
        texts = self._text_processor.preprocess_graph(texts, self._options.raw)
        rows = self._splitter.split(texts, is_blank)
        hypotheses = self._search(rows.ids, rows.texts, rows.owners, options)
        scores = hypotheses.scores  # [R, n]
        targets = self._decode(hypotheses.ids)  # [R, n]
        if self._splitter.may_split:
            with tf.control_dependencies([scores]):  # and so of the check of its shape
                alpha = tf.broadcast_to(options["alpha"], tf.shape(texts))  # [B]
            targets, scores = join_rows(
                targets, hypotheses, rows.owners, alpha, self._options
            )
        outputs = self._text_processor.postprocess_graph(texts, targets)  # [B, n]
        return {
            "texts": tf.where(is_blank[:, None], "", outputs),
            "scores": scores,
            "is_truncated": rows.is_truncated,
        }

    def score(self, texts: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the log-probabilities of the targets, given the texts."""
        max_length = self._options.max_source_length
        texts, targets = checked_pairs(texts, targets)
        targets = tf.strings.regex_replace(targets, WHITE_ENDS, "")
        target_ids, is_target_cut = encode(self._target_tokenizer, targets, max_length)
        texts = self._text_processor.preprocess_graph(texts, self._options.raw)
        source_ids, is_source_cut = encode(self._source_tokenizer, texts, max_length)
        scores = self._score(source_ids, target_ids)
        is_truncated = is_source_cut | is_target_cut
        return scores | {"ids": target_ids, "is_truncated": is_truncated}

    def _defaults(self) -> dict[str, tf.Tensor]:
        """Returns the options that requests may have, as the export has them."""
        values = DecodingOptions.inputs(vars(self._options), self._inputs)
        return {
            name: tf.constant(value, self._inputs[name].dtype)
            for name, value in values.items()
        }

    def _beam_search(
        self,
        ids: tf.Tensor,
        texts: tf.Tensor,
        owners: tf.Tensor,
        options: dict[str, tf.Tensor],
    ) -> Hypotheses:
        """Runs beam search with the translator's limits and constraints.

        Args:
            ids: [R, S] int32, the sources; a row of PAD has the empty output.
            texts: [R] strings, the same sources.
            owners: [R] int64, the request's text to which each row belongs.
            options: the options that `translate` takes, for its texts.
        """
        size = tf.reduce_max(tf.concat([[0], owners + 1], 0))
        search_graph = self._translator.engine.search_graph

        def search_rows(rows: tf.Tensor, shared: Mapping[str, tf.Tensor]) -> Hypotheses:
            row_ids = tf.gather(ids, rows)
            row_texts = tf.gather(texts, rows)
            copied = self._copied(row_texts)

            def search(phrases: Phrases) -> Hypotheses:
                inputs = SearchInputs(
                    shared, row_ids, row_texts, phrases, copied=copied
                )
                return search_graph.search(self._options, inputs)

            if self._ids_only or not search_graph.is_compiled(self._options):
                return search(self._phrases_of(shared))
            # A request with phrases is searched without XLA.
            return tf.cond(
                _has_phrases(shared),
                lambda: search(self._phrases_of(shared)),
                lambda: search(Phrases((), ())),
            )

        options = checked_options(options, size)
        with self._restored():
            return search_groups(options, owners, search_rows)

    def _phrases_of(self, options: Mapping[str, tf.Tensor]) -> Phrases:
        """Returns the phrases of options, or those of the export."""
        if self._ids_only:
            return self._phrases
        # One more empty phrase: there is at least one.
        glossary = tf.concat([options["glossary"], [["", ""]]], 0)
        terms = self._target_tokenizer.encode(glossary[:, 1])[:, :-1].to_tensor(PAD)
        tables: tuple[tf.Tensor, ...] = ()
        if self._forbidden_tables:
            tables = self._tables_of(options["forbidden"], self._forbidden_tables)
        return Phrases((whole_word_patterns(glossary[:, 0]), terms), tables)

    def _tables_of(
        self, phrases: tf.Tensor, make_tables: ForbiddenTables
    ) -> tuple[tf.Tensor, ...]:
        """Returns the tables of phrases [N]; those of the export are constants."""
        phrases = tf.boolean_mask(phrases, phrases != "")
        default_phrases = tf.constant(self._options.forbidden, tf.string)
        return tf.cond(
            tf.io.serialize_tensor(phrases) == tf.io.serialize_tensor(default_phrases),
            lambda: tuple(map(tf.constant, self._default_tables)),
            lambda: make_tables(phrases),
        )

    def _copied(self, texts: tf.Tensor) -> tf.Tensor | None:
        """Returns the ids of protected phrases in texts [B]."""
        if not self._options.protect:
            return None
        pieces = self._translator.source_tokenizer.pieces
        phrases = protected_parts(texts, self._options.protect, pieces)
        ids = self._target_tokenizer.encode(phrases.values)[:, :-1]
        return phrases.with_values(ids).to_tensor(PAD)  # [B, M, L]

    def _score_pairs(self, ids: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores targets [B, T], given the sources [B, S]."""
        with self._restored():
            scores = score_targets(self._translator.model, ids, targets)
        return {
            "log_prob": scores.log_probs,
            "tokens": scores.lengths,
            "token_log_probs": scores.token_log_probs,
        }

    def _restored(self) -> contextlib.AbstractContextManager[object]:
        """Within it, the model computes with the rounded weights."""
        if not self._is_rounded:
            return contextlib.nullcontext()
        weights = [weight.restored() for weight in self._weights]
        pairs = zip(self._translator.model.weights, weights, strict=True)
        return keras.StatelessScope(list(pairs))

    def _decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Decodes ids [B, n, T] to texts [B, n], one line each."""
        batch, n, length = tf.unstack(tf.shape(ids))
        texts = self._target_tokenizer.decode(tf.reshape(ids, [batch * n, length]))
        return tf.reshape(tf.strings.regex_replace(texts, "\n", " "), [batch, n])


def _has_phrases(options: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """Returns whether options have a phrase that is not empty, a scalar."""
    phrases = [tf.reshape(options[k], [-1]) for k in EMPTY_PHRASES if k in options]
    return tf.reduce_any(tf.concat(phrases, 0) != "")


def _traced(
    function: Callable[..., object],
    *specs: Any,
    **named_specs: tf.TensorSpec,
) -> tf.types.experimental.ConcreteFunction:
    """Returns the graph of a function for inputs with these specs."""
    traceable = tf.function(function, autograph=False)
    return traceable.get_concrete_function(*specs, **named_specs)
