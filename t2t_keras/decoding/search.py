"""The decoding of a batch in the graph: its limits, its constraints, and the search."""

from collections.abc import Mapping

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
from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.loop import Hypotheses
from t2t_keras.decoding.options import DecodingOptions, constraint_name
from t2t_keras.decoding.phrases import ForbiddenPhrases, RequiredPhrases
from t2t_keras.decoding.sampling import sample
from t2t_keras.model.transformer import Transformer
from t2t_keras.option import UserError
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizer import Tokenizer


class Search:
    """Decodes batches of ids as the options say, in `Translator` and in SavedModels."""

    def __init__(
        self, problem: Problem, model: Transformer | Ensemble, tokenizer: Tokenizer
    ) -> None:
        self._problem = problem
        self._model = model
        self._tokenizer = tokenizer  # of the target
        self._constraint: BatchConstraint | None = None

    def __call__(
        self,
        options: DecodingOptions,
        numbers: Mapping[str, tf.Tensor],
        ids: tf.Tensor,
        texts: tf.Tensor,
        prefixes: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
        copied: tf.Tensor | None = None,
    ) -> Hypotheses:
        """Decodes a batch.

        Args:
            options: the options.
            numbers: tensors that take the place of options of these names.
            ids: [B, S] int32, the sources, padded with PAD. A row of PAD has the empty
                output.
            texts: [B] strings, the same sources as the text form writes them.
            prefixes: [B, P] ids that the outputs have to begin with, padded with PAD.
            seeds: [B, 2] int32, the seeds of samples; only with `sampling`.
            copied: [B, M, L] int32, the target's ids, without EOS, of what is protected
                in the sources, padded with PAD; only with `protect`.
        """
        values = {**vars(options), **numbers}
        lengths = _lengths(ids)
        limits = tf.maximum(lengths + values["extra_length"], 1)
        if prefixes is not None:
            limits = tf.maximum(limits, _lengths(prefixes) + 1)
        constraints: list[Constraint] = []
        if not isinstance(options.constraint, str):
            constraints.append(options.constraint)
        elif of_batch := self.constraint(options.constraint):
            # It raises limits below which no output is allowed.
            constraint, limits = of_batch(texts, limits)
            constraints.append(constraint)
        limits = tf.where(lengths == 0, 0, limits)
        constraints += self._constraints(options, values["min_length"], prefixes)
        if options.sampling:
            return sample(
                self._model,
                ids,
                seeds=seeds,
                max_length=limits,
                num_samples=values["n_best"],
                temperature=values["temperature"],
                top_k=values["top_k"],
                top_p=values["top_p"],
                alpha=values["alpha"],
                kind=options.length_penalty,
                constraint=AllOf(constraints),
            )
        required = self._required(options, texts, copied, limits, prefixes)
        return beam_search(
            self._model,
            ids,
            beam_size=values["beam_size"],
            alpha=values["alpha"],
            max_length=required.max_length if required else limits,
            n_best=values["n_best"],
            kind=options.length_penalty,
            coverage_penalty=options.coverage_penalty,
            constraint=AllOf(constraints),
            required=required,
        )

    def constraint(self, name: str) -> BatchConstraint | None:
        """Returns the problem's constraint for the target tokenizer.

        Raises:
            UserError: the problem has no constraint of that name, or the constraint
                cannot be used with the tokenizer.
        """
        if name == "none":
            return None
        make = self._problem.constraint
        if make is None or name != constraint_name(self._problem):
            known = dict.fromkeys((constraint_name(self._problem), "none"))
            raise UserError(
                f"constraint: problem '{self._problem.name}' has no '{name}'; the "
                f"choice is {' or '.join(known)}"
            )
        if self._constraint is None:
            self._constraint = make(self._problem, self._tokenizer)
        return self._constraint

    def _constraints(
        self,
        options: DecodingOptions,
        min_length: int | tf.Tensor,
        prefixes: tf.Tensor | None,
    ) -> list[Constraint]:
        """Returns the constraints that do not depend on the problem."""
        vocab_size = self._tokenizer.vocab_size
        constraints: list[Constraint] = [MinimumLength(min_length, vocab_size)]
        if prefixes is not None:
            constraints.append(ForcedPrefix(prefixes, vocab_size))
        if n := options.no_repeat_ngram:
            constraints.append(NoRepeatedNgrams(n, vocab_size, prefixes))
        if options.forbidden:
            token_bytes = self._tokenizer.token_bytes()
            constraints.append(ForbiddenPhrases(options.forbidden, token_bytes))
        return constraints

    def _required(
        self,
        options: DecodingOptions,
        texts: tf.Tensor,
        copied: tf.Tensor | None,
        limits: tf.Tensor,
        prefixes: tf.Tensor | None,
    ) -> RequiredPhrases | None:
        """Returns the phrases that outputs must contain; see `__call__`."""
        if not options.needs_texts:
            return None
        ids = self._tokenizer.encode_batch([target for _, target in options.glossary])
        pairs = zip(options.glossary, ids, strict=True)
        terms = [(source, target[:-1]) for (source, _), target in pairs]
        forced = 0 if prefixes is None else _lengths(prefixes)
        vocab_size = self._tokenizer.vocab_size
        return RequiredPhrases(terms, texts, copied, limits, forced, vocab_size)


def _lengths(ids: tf.Tensor) -> tf.Tensor:
    """Returns the number of tokens [B] in each row of ids [B, T], padded with PAD."""
    return tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
