"""The graph of an export: weights, tokenizers and signatures as one saved object."""

import contextlib
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.blank_text import BLANK, WHITE_ENDS
from t2t_keras.decoding.batches import padded
from t2t_keras.decoding.constraints.forbidden_phrases import (
    ForbiddenTables,
    forbidden_tables,
)
from t2t_keras.decoding.constraints.phrases import Phrases, protected_parts
from t2t_keras.decoding.constraints.whole_words import whole_word_patterns
from t2t_keras.decoding.hypotheses import NEG_INF, Hypotheses, length_penalties
from t2t_keras.decoding.long_inputs import splits_long_inputs
from t2t_keras.decoding.model_translator import ModelTranslator
from t2t_keras.decoding.options import PHRASES, DecodingOptions, LengthPenalty
from t2t_keras.decoding.scoring import score_targets
from t2t_keras.errors import UserError
from t2t_keras.options import conditions
from t2t_keras.text.sentences import join_outputs, split_long_text, split_sentences
from t2t_keras.text.tokenizer import EOS, PAD, UNK, GraphTokenizer

DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY

# The options that requests may have, as inputs of signatures: numbers, one for all rows
# or one for each, and phrases, whose first axis is 1 or B. Empty phrases are padding.
_OPTIONS = {
    name: tf.TensorSpec(None, dtype, name)
    for name, dtype in DecodingOptions.dtypes("is_served").items()
}
_OPTIONS["glossary"] = tf.TensorSpec([None, None, 2], tf.string, "glossary")
_OPTIONS["forbidden"] = tf.TensorSpec([None, None], tf.string, "forbidden")


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


class ServedModel(tf.Module):
    """The saved object: weights, tokenizers unless `ids_only`, and signatures."""

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
        self._form = translator.problem.text_processor
        self._splits_long_inputs = splits_long_inputs(self._form, options)
        self._may_split = self._splits_long_inputs or options.split_sentences
        self._is_rounded = quantization is not None
        self._weights = [
            StoredWeight(weight, quantization) if quantization else weight.value
            for weight in translator.model.weights
        ]
        left_out = PHRASES if ids_only else {}
        self._inputs = {k: v for k, v in _OPTIONS.items() if k not in left_out}
        if ids_only:
            self._phrases = Phrases.from_options(options, translator.target_tokenizer)
        else:
            self._source_tokenizer = translator.source_tokenizer.graph()
            self._target_tokenizer = translator.target_tokenizer.graph()
            self._forbidden_tables: ForbiddenTables | None = None
            try:
                tokens = tuple(translator.target_tokenizer.token_bytes())
                self._forbidden_tables = forbidden_tables(tokens)
                own = self._forbidden_tables(tf.constant(options.forbidden, tf.string))
                self._own_tables = [table.numpy() for table in own]
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
        ids = tf.TensorSpec([None, None], tf.int32, "ids")
        target_ids = tf.TensorSpec([None, None], tf.int32, "targets")
        texts = tf.TensorSpec([None], tf.string, "texts")
        targets = tf.TensorSpec([None], tf.string, "targets")
        self._search = _traced(
            self._beam_search,
            tf.TensorSpec([None, None], tf.int32),
            tf.TensorSpec([None], tf.string),
            tf.TensorSpec([None], tf.int64),
            self._inputs,
            autograph=False,
        )
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
        texts = texts or [tokenizer.decode(range(UNK + 1, tokenizer.vocab_size)[-8:])]
        name, inputs = "translate", {"texts": tf.constant(texts)}
        if self._ids_only:
            most = self._options.max_source_length
            rows = tokenizer.encode_batch(texts)
            ids = padded([[*row[:-1][: most - 1], EOS] for row in rows])
            name, inputs = "search_ids", {"ids": tf.constant(ids)}
        defaults, count = self._defaults().items(), len(texts)
        options = {k: np.repeat(np.atleast_1d(v), count, 0) for k, v in defaults}
        return {DEFAULT_SIGNATURE: inputs, name: inputs | options}

    def translate_ids(self, ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps ids to n-best ids, with the options of the export."""
        return self._search_ids(ids, **self._defaults())

    def search_ids(self, ids: tf.Tensor, **options: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps ids to n-best ids, with these options."""
        tokenizer = self._translator.source_tokenizer
        assertions = _ids_assertions(ids, tokenizer.vocab_size, "ids", ends=True)
        with tf.control_dependencies(assertions):
            ids = tf.identity(ids)
        rows = tf.range(tf.shape(ids, tf.int64)[0])
        texts = tf.fill(tf.shape(rows), "")
        if not self._ids_only:
            texts = self._source_tokenizer.decode(ids)
        found = self._search(ids, texts, rows, options)
        return {"ids": found.ids, "scores": found.scores, "lengths": found.lengths}

    def score_ids(self, ids: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the log-probabilities of target ids, given the source ids."""
        source = self._translator.source_tokenizer.vocab_size
        target = self._translator.target_tokenizer.vocab_size
        ids, targets = _paired(ids, targets)
        assertions = [
            *_ids_assertions(ids, source, "ids", ends=True),
            *_ids_assertions(targets, target, "targets", ends=False),
        ]
        with tf.control_dependencies(assertions):
            ids, targets = tf.identity(ids), tf.identity(targets)
        return self._score(ids, targets)

    def _defaults(self) -> dict[str, tf.Tensor]:
        """Returns the options that requests may have, as the export has them."""
        values = DecodingOptions.inputs(vars(self._options), self._inputs)
        return {k: tf.constant(v, self._inputs[k].dtype) for k, v in values.items()}

    def _beam_search(
        self,
        ids: tf.Tensor,
        texts: tf.Tensor,
        owners: tf.Tensor,
        options: dict[str, tf.Tensor],
    ) -> Hypotheses:
        """Runs beam search with the translator's limits and constraints.

        Rows with equal options are searched together, one such group after another.

        Args:
            ids: [R, S] int32, the sources; a row of PAD has the empty output.
            texts: [R] strings, the same sources.
            owners: [R] int64, the request's text to which each row belongs.
            options: the options that `translate` takes, for its texts.
        """
        size = tf.reduce_max(tf.concat([[0], owners + 1], 0))
        options = {
            name: value if name in PHRASES else tf.reshape(value, [-1])
            for name, value in options.items()
        }
        fits = options["n_best"] <= options["beam_size"]
        assertions = [_require(*each) for each in conditions(DecodingOptions, options)]
        assertions.append(_require(fits, "n_best must be at most beam_size"))
        for name, value in options.items():
            count = tf.shape(value, tf.int64)[0]
            message = f"{name} must have one value, or one for each row"
            assertions.append(_require((count == 1) | (count == size), message))
        with tf.control_dependencies(assertions):
            options = {name: tf.identity(value) for name, value in options.items()}

        def places(values: tf.Tensor) -> tf.Tensor:
            return tf.minimum(owners, tf.shape(values, tf.int64)[0] - 1)

        text = tf.TensorSpec([], tf.string)
        keys = []
        for value in options.values():
            key = tf.map_fn(tf.io.serialize_tensor, value, fn_output_signature=text)
            keys.append(tf.gather(key, places(key)))
        first, groups = tf.unique(tf.strings.join(keys))

        def search_group(group: tf.Tensor) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
            rows = tf.where(groups == group)[:, 0]
            chosen = {k: value[places(value)[rows[0]]] for k, value in options.items()}
            own = tf.gather(ids, rows), tf.gather(texts, rows)
            phrases, copied = self._phrases_of(chosen), self._copied(own[1])
            search = self._translator.engine.search_graph.search
            found = search(self._options, chosen, *own, phrases, copied=copied)
            scores = tf.stack([found.scores, found.log_probs], 2)
            ragged = tf.RaggedTensor.from_tensor
            return ragged(found.ids, ragged_rank=2), ragged(scores, ragged_rank=1)

        # The numbers of outputs and of tokens differ between groups.
        of_ids = tf.RaggedTensorSpec([None] * 3, tf.int32, 2, tf.int64)
        of_scores = tf.RaggedTensorSpec([None, None, 2], tf.float32, 1, tf.int64)
        numbers, specs = tf.range(tf.size(first)), (of_ids, of_scores)
        with self._restored():
            found = tf.map_fn(search_group, numbers, fn_output_signature=specs)
        order = tf.argsort(tf.argsort(groups, stable=True))
        all_ids, scores = (
            tf.gather(tensor.merge_dims(0, 1).to_tensor(fill), order)
            for tensor, fill in zip(found, (PAD, NEG_INF), strict=True)
        )
        lengths = tf.math.count_nonzero(all_ids, axis=2, dtype=tf.int32)
        # Without rows, the last axis got lost.
        scores = tf.reshape(scores, tf.concat([tf.shape(all_ids)[:2], [2]], 0))
        return Hypotheses(all_ids, scores[:, :, 0], scores[:, :, 1], lengths)

    def _phrases_of(self, options: dict[str, tf.Tensor]) -> Phrases:
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
        self, phrases: tf.Tensor, make: ForbiddenTables
    ) -> tuple[tf.Tensor, ...]:
        """Returns the tables of phrases [any]; the export's own are constants."""
        phrases = tf.boolean_mask(phrases, phrases != "")
        own = tf.constant(self._options.forbidden, tf.string)
        return tf.cond(
            tf.io.serialize_tensor(phrases) == tf.io.serialize_tensor(own),
            lambda: tuple(map(tf.constant, self._own_tables)),
            lambda: make(phrases),
        )

    def _score(self, ids: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Scores targets [B, T], given the sources [B, S]."""
        with self._restored():
            scores = score_targets(self._translator.model, ids, targets)
        names = "log_prob", "tokens", "token_log_probs"
        return dict(zip(names, scores, strict=True))

    def _restored(self) -> contextlib.AbstractContextManager[object]:
        """Within it, the model computes with the rounded weights."""
        if not self._is_rounded:
            return contextlib.nullcontext()
        weights = (weight.restored() for weight in self._weights)
        pairs = zip(self._translator.model.weights, weights, strict=True)
        return keras.StatelessScope(list(pairs))

    def serve(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps texts to n-best texts, with the options of the export."""
        return self._translate(texts, **self._defaults())

    def translate(self, texts: tf.Tensor, **options: tf.Tensor) -> dict[str, tf.Tensor]:
        """Maps texts to n-best texts, with these options."""
        is_blank = tf.strings.regex_full_match(texts, BLANK)
        texts = self._form.preprocess_graph(texts, self._options.raw)
        ids, rows, owners, is_truncated = self._sources(texts, is_blank)
        found = self._search(ids, rows, owners, options)
        targets, scores = self._decode(found.ids), found.scores
        if self._may_split:
            with tf.control_dependencies([scores]):  # and so of the check of its shape
                alpha = tf.broadcast_to(options["alpha"], tf.shape(texts))
            kind = self._options.length_penalty
            targets, scores = _joined(targets, found, owners, alpha, kind)
        outputs = self._form.postprocess_graph(texts, targets)
        return {
            "texts": tf.where(is_blank[:, None], "", outputs),
            "scores": scores,
            "is_truncated": is_truncated,
        }

    def score(self, texts: tf.Tensor, targets: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the log-probabilities of the targets, given the texts."""
        texts, targets = _paired(texts, targets)
        targets = tf.strings.regex_replace(targets, WHITE_ENDS, "")
        target_ids, is_cut = self._encode(self._target_tokenizer, targets)
        texts = self._form.preprocess_graph(texts, self._options.raw)
        source_ids, is_truncated = self._encode(self._source_tokenizer, texts)
        scores = self._score(source_ids, target_ids)
        return scores | {"ids": target_ids, "is_truncated": is_truncated | is_cut}

    def _decode(self, ids: tf.Tensor) -> tf.Tensor:
        """Decodes ids [B, n, T] to texts [B, n], one line each."""
        batch, n, length = tf.unstack(tf.shape(ids))
        texts = self._target_tokenizer.decode(tf.reshape(ids, [batch * n, length]))
        return tf.reshape(tf.strings.regex_replace(texts, "\n", " "), [batch, n])

    def _copied(self, texts: tf.Tensor) -> tf.Tensor | None:
        """Returns the ids of protected phrases in texts [B]."""
        if not self._options.protect:
            return None
        pieces = self._translator.source_tokenizer.pieces
        found = protected_parts(texts, self._options.protect, pieces)
        ids = self._target_tokenizer.encode(found.values)[:, :-1]
        return found.with_values(ids).to_tensor(PAD)

    def _sources(self, texts: tf.Tensor, is_blank: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Returns R rows for texts [B], some of which may be blank [B].

        Returns:
            The ids [R, S] int32 (a blank text is a row of PAD, whose output is empty);
            the same sources as texts [R]; for each row, int64 [R], the text of which it
            is a part, in increasing order; and whether the texts were truncated, [B].
        """
        if not self._options.split_sentences:
            return self._fitting(texts, is_blank)
        sentences = split_sentences(texts, self._form.tags)
        texts_of_rows = sentences.value_rowids()
        ids, rows, owners, is_truncated = self._fitting(
            sentences.values, tf.gather(is_blank, texts_of_rows)
        )
        cut = tf.math.unsorted_segment_max(
            tf.cast(is_truncated, tf.int32), texts_of_rows, sentences.nrows()
        )
        return ids, rows, tf.gather(texts_of_rows, owners), cut > 0

    def _fitting(self, texts: tf.Tensor, is_blank: tf.Tensor) -> tuple[tf.Tensor, ...]:
        """Does what `_sources` does, but splits only what is too long."""
        ids, is_long = self._encode(self._source_tokenizer, texts)
        ids = tf.where(is_blank[:, None], PAD, ids)
        is_long &= ~is_blank
        owners = tf.range(tf.size(texts, tf.int64))
        if not self._splits_long_inputs:
            return ids, texts, owners, is_long
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
        return (
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
    alpha: tf.Tensor,
    kind: LengthPenalty,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Joins the targets for the parts of texts, as `Translator` does.

    Args:
        targets: [R, n] strings.
        found: their hypotheses.
        owners: [R], the text of which each row is a part, in increasing order.
        alpha: [B], the exponent of each text's length penalty.
        kind: the length penalty.

    Returns:
        The targets [B, n] of the texts, and their scores [B, n].
    """
    size = tf.size(alpha, tf.int64)

    def total(values: tf.Tensor) -> tf.Tensor:
        return tf.math.unsorted_segment_sum(values, owners, size)

    log_probs = total(found.log_probs)
    of_text, of_row = alpha[:, None], tf.gather(alpha, owners)[:, None]
    joined_scores = log_probs / length_penalties(total(found.lengths), of_text, kind)
    penalties = length_penalties(found.lengths, of_row, kind)
    coverage = total(found.scores - found.log_probs / penalties)
    joined_scores += tf.where(tf.math.is_inf(log_probs), 0.0, coverage)
    is_split = total(tf.ones_like(owners)) > 1
    scores = tf.where(is_split[:, None], joined_scores, total(found.scores))

    ranks = tf.shape(targets, tf.int64)[1]
    by_rank = tf.range(ranks)[:, None] * size + owners
    parts = tf.RaggedTensor.from_value_rowids(
        tf.reshape(tf.transpose(targets), [-1]), tf.reshape(by_rank, [-1]), ranks * size
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


def _paired(sources: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the two sides of pairs, after a check of their numbers."""
    are_pairs = tf.shape(sources)[0] == tf.shape(targets)[0]
    message = "sources and targets must be of equal length: row by row they are pairs"
    with tf.control_dependencies([_require(are_pairs, message)]):
        return tf.identity(sources), tf.identity(targets)


def _require(condition: tf.Tensor, message: str) -> tf.Operation:
    """Returns the operation that raises the message unless all elements are true."""
    return tf.debugging.Assert(tf.reduce_all(condition), [message])
