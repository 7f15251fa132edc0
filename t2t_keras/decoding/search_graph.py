"""The search of a batch as a graph, with the limits and constraints of the options.

`GraphEngine` and the SavedModel contain it.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.constraint import (
    AllOf,
    BatchConstraint,
    Constraint,
    ForcedPrefix,
    MinimumLength,
    NoRepeatedNgrams,
)
from t2t_keras.decoding.engine import AlignmentHead
from t2t_keras.decoding.ensemble import DecodingModel, Ensemble
from t2t_keras.decoding.forbidden_phrases import ForbiddenPhrases
from t2t_keras.decoding.options import DecodingOptions, constraint_name
from t2t_keras.decoding.phrases import Phrases
from t2t_keras.decoding.required_phrases import RequiredPhrases
from t2t_keras.decoding.sampling import sample
from t2t_keras.decoding.search_loop import Hypotheses, SearchLoop, compiled
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.vocabulary import PAD


class SearchInputs(NamedTuple):
    """A batch to be searched, as tensors.

    Attributes:
        tensors: values that replace those of the options of these names.
        ids: [B, S] int32, the sources, padded with PAD. A row of PAD has the empty
            output.
        texts: [B] strings, the same sources as the text processor writes them.
        phrases: the glossary and the forbidden phrases.
        prefixes: [B, P] ids with which the outputs must begin, padded with PAD.
        seeds: [B, 2] int32, the seeds of samples; only with `sampling`.
        copied: [B, M, L] int32, the target's ids, without EOS, of the protected parts
            of the sources, padded with PAD; only with `protect`.
    """

    tensors: Mapping[str, tf.Tensor]
    ids: tf.Tensor
    texts: tf.Tensor
    phrases: Phrases
    prefixes: tf.Tensor | None = None
    seeds: tf.Tensor | None = None
    copied: tf.Tensor | None = None


class SearchGraph:
    """Beam search or sampling with a model, for the options of decoding.

    Args:
        problem: the problem, whose constraint may be used.
        model: the model.
        target_tokenizer: the vocabulary of targets.
    """

    def __init__(
        self, problem: Problem, model: DecodingModel, target_tokenizer: Tokenizer
    ) -> None:
        self._problem = problem
        self._model = model
        self._target_tokenizer = target_tokenizer
        self._constraint: BatchConstraint | None = None

    def is_compiled(self, options: DecodingOptions) -> bool:
        """Returns whether XLA compiles searches with these options.

        It does where the option `jit_compile` wants it, the model's cache can have a
        fixed size, and no operation or shape of the search depends on texts.
        """
        if options.jit_compile == "auto":
            is_wanted = bool(tf.config.list_logical_devices("GPU"))
        else:
            is_wanted = options.jit_compile == "true"
        if not is_wanted:
            return False
        depends_on_texts = (
            options.constraint != "none"
            or options.sampling
            or options.no_repeat_ngram
            or options.needs_texts
            or options.forbidden
        )
        return not depends_on_texts and self._model.reserves_cache

    def constraint(self, name: str) -> BatchConstraint | None:
        """Returns the problem's constraint for the target tokenizer.

        Raises:
            UserError: the problem has no constraint of that name, or the constraint
                cannot be used with the tokenizer.
        """
        if name == "none":
            return None
        make_constraint = self._problem.constraint
        name_of_problem = constraint_name(self._problem)
        if make_constraint is None or name != name_of_problem:
            names = dict.fromkeys((name_of_problem, "none"))
            raise UserError(
                f"constraint: problem '{self._problem.name}' has no '{name}'; the "
                f"choice is {' or '.join(names)}"
            )
        if self._constraint is None:
            self._constraint = make_constraint(self._problem, self._target_tokenizer)
        return self._constraint

    def search(self, options: DecodingOptions, inputs: SearchInputs) -> Hypotheses:
        """Searches a batch.

        XLA compiles the search if the options allow it and there are no phrases.

        Args:
            options: the options. The graph depends on the values of `constraint`,
                `length_penalty`, `no_repeat_ngram` and `sampling`, and on whether there
                are a coverage penalty and phrases.
            inputs: the batch, and values of the other options.
        """
        if options.sampling:
            return self._sample(options, inputs)
        if not self.is_compiled(options) or any(inputs.phrases):
            return self._beam_search(options, inputs, SearchLoop())

        def search(
            ids: tf.Tensor, prefixes: tf.Tensor | None, loop: SearchLoop
        ) -> Hypotheses:
            rounded = inputs._replace(ids=ids, prefixes=prefixes)
            return self._beam_search(options, rounded, loop)

        extra_length = _values(options, inputs)["extra_length"]
        return compiled(search, inputs.ids, inputs.prefixes, extra_length)

    def _sample(self, options: DecodingOptions, inputs: SearchInputs) -> Hypotheses:
        """Draws samples; see `search`."""
        constraint, max_length = self._constraint_of(options, inputs)
        values = _values(options, inputs)
        return sample(
            self._model,
            inputs.ids,
            seeds=inputs.seeds,
            max_length=max_length,
            num_samples=values["n_best"],
            temperature=values["temperature"],
            top_k=values["top_k"],
            top_p=values["top_p"],
            alpha=values["alpha"],
            penalty_formula=options.length_penalty,
            constraint=constraint,
        )

    def _beam_search(
        self, options: DecodingOptions, inputs: SearchInputs, loop: SearchLoop
    ) -> Hypotheses:
        """Runs beam search in a loop; see `search`."""
        constraint, max_length = self._constraint_of(options, inputs)
        values = _values(options, inputs)
        required = None
        if inputs.phrases.glossary or options.protect:
            required_ids = inputs.copied  # [B, M, L]
            if inputs.phrases.glossary:
                required_ids = inputs.phrases.required(inputs.texts, inputs.copied)
            required = RequiredPhrases(
                required_ids,
                max_length,
                0 if inputs.prefixes is None else _row_lengths(inputs.prefixes),
                self._target_tokenizer.vocab_size,
            )
            max_length = required.max_length
        return beam_search(
            self._model,
            inputs.ids,
            beam_size=values["beam_size"],
            alpha=values["alpha"],
            max_length=max_length,
            n_best=values["n_best"],
            penalty_formula=options.length_penalty,
            coverage_penalty=(
                values["coverage_penalty"] if options.coverage_penalty else None
            ),
            constraint=constraint,
            allocation=required,
            loop=loop,
        )

    def _constraint_of(
        self, options: DecodingOptions, inputs: SearchInputs
    ) -> tuple[Constraint, tf.Tensor]:
        """Returns the constraint of a batch, and the maximum lengths [B]."""
        vocab_size = self._target_tokenizer.vocab_size
        values = _values(options, inputs)
        prefixes = inputs.prefixes
        lengths = _row_lengths(inputs.ids)  # [B]
        max_length = tf.maximum(lengths + values["extra_length"], 1)  # [B]
        if prefixes is not None:
            max_length = tf.maximum(max_length, _row_lengths(prefixes) + 1)
        constraints: list[Constraint] = []
        if not isinstance(options.constraint, str):
            constraints.append(options.constraint)
        elif options.constraint != "none":
            of_batch = self.constraint(options.constraint)
            assert of_batch is not None  # it would be "none"
            # It raises limits below which no output is allowed.
            constraint, max_length = of_batch(inputs.texts, max_length)
            constraints.append(constraint)
        max_length = tf.where(lengths == 0, 0, max_length)  # [B]
        constraints.append(MinimumLength(values["min_length"], vocab_size))
        if prefixes is not None:
            constraints.append(ForcedPrefix(prefixes, vocab_size))
        if options.no_repeat_ngram:
            constraints.append(
                NoRepeatedNgrams(options.no_repeat_ngram, vocab_size, prefixes)
            )
        if inputs.phrases.forbidden:
            constraints.append(ForbiddenPhrases(*inputs.phrases.forbidden))
        constraint = constraints[0] if len(constraints) == 1 else AllOf(constraints)
        return constraint, max_length


def _values(options: DecodingOptions, inputs: SearchInputs) -> dict[str, Any]:
    """Returns the values of all options by name, some of them tensors."""
    return {**vars(options), **inputs.tensors}


def _row_lengths(ids: tf.Tensor) -> tf.Tensor:
    """Returns the number of tokens in each row of ids [B, T], int32 [B]."""
    return tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)


class TargetScores(NamedTuple):
    """The log-probabilities of a batch of targets.

    Attributes:
        log_probs: [B] float32, summed over the tokens, each given the earlier ones.
        lengths: [B] int32, the numbers of tokens.
        token_log_probs: [B, T] float32, of each token; 0 for padding.
    """

    log_probs: tf.Tensor
    lengths: tf.Tensor
    token_log_probs: tf.Tensor


def score_targets(
    model: DecodingModel, source: tf.Tensor, target: tf.Tensor
) -> TargetScores:
    """Computes the log-probabilities of targets, all positions at once.

    Args:
        model: the model.
        source: ids [B, S], padded with PAD.
        target: ids [B, T], padded with PAD; EOS counts where it is given.
    """
    is_token = target != PAD  # [B, T]
    log_probs = tf.nn.log_softmax(model(source, target))  # [B, T, V]
    token_log_probs = tf.gather(log_probs, target, axis=2, batch_dims=2)  # [B, T]
    token_log_probs = tf.where(is_token, token_log_probs, 0.0)
    return TargetScores(
        log_probs=tf.reduce_sum(token_log_probs, axis=1),  # [B]
        lengths=tf.reduce_sum(tf.cast(is_token, tf.int32), axis=1),  # [B]
        token_log_probs=token_log_probs,
    )


def likeliest_tokens(
    model: DecodingModel, count: int, source: tf.Tensor, target: tf.Tensor
) -> tuple[tf.Tensor]:
    """Returns the likeliest tokens at the last position of each target.

    Args:
        model: the model.
        count: the number of tokens, K.
        source: ids [B, S], padded with PAD.
        target: ids [B, T], padded with PAD; the last token of each is not read.

    Returns:
        Ids [B, K] int32, the likeliest first, without PAD; K is at most V - 1.
    """
    logits = model(source, target)  # [B, T, V]
    lengths = tf.reduce_sum(tf.cast(target != PAD, tf.int32), axis=1)  # [B]
    final = tf.gather(logits, lengths - 1, batch_dims=1)  # [B, V]
    size = tf.shape(final)[1]
    final -= tf.one_hot(PAD, size, on_value=final.dtype.max, dtype=final.dtype)
    return (tf.math.top_k(final, tf.minimum(count, size - 1)).indices,)


def attention_weights(
    model: DecodingModel, head: AlignmentHead, source: tf.Tensor, target: tf.Tensor
) -> tuple[tf.Tensor]:
    """Computes the attention weights of a head, float32 [B, T, S].

    Row t belongs to the position that predicts target token t.

    Args:
        model: the model.
        head: the encoder-decoder attention.
        source: ids [B, S], padded with PAD.
        target: ids [B, T], padded with PAD.

    Raises:
        UserError: the model is an ensemble.
    """
    if isinstance(model, Ensemble):
        raise UserError("alignment: an ensemble has none; take one of its runs")
    _, maps = model.decoder_outputs(source, target)
    resolved = head.of_model(model.hparams)
    assert resolved.layer is not None  # `of_model` puts it in
    weights = maps.cross[resolved.layer - 1]  # [B, H, T, S]
    if resolved.head is None:
        return (tf.reduce_mean(weights, axis=1),)  # [B, T, S]
    return (weights[:, resolved.head - 1],)  # [B, T, S]
