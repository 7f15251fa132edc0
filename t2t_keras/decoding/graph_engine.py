"""The engine of a run: its model as compiled graphs; and the model's translator."""

import functools
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from t2t_keras.console import busy, say
from t2t_keras.decoding.batches import (
    padded,
    padded_width,
    run_pairs,
    score_pairs,
    search_in_batches,
)
from t2t_keras.decoding.engine import (
    AlignmentHead,
    Progress,
    Source,
    TokenHypothesis,
    TokenScores,
    n_best_tokens,
)
from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.phrases import Phrases, protected_parts
from t2t_keras.decoding.search_graph import (
    SearchGraph,
    SearchInputs,
    attention_weights,
    likeliest_tokens,
    score_targets,
)
from t2t_keras.decoding.search_loop import Hypotheses, rounded_length
from t2t_keras.decoding.translator import Translator
from t2t_keras.model.backend import Nest, require_tensorflow
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.vocabulary import EOS, PAD

_MAX_FUNCTIONS = 32  # a new combination of options replaces the oldest one

# The options that are inputs of the graph, with their dtypes.
_TENSOR_DTYPES = DecodingOptions.dtypes("is_tensor")

# A tf.function of a batch, for which TensorFlow has no type.
_Function: TypeAlias = Any


class GraphEngine:
    """Computes a model of this process; see `Engine`.

    A function is traced for each combination of the options that change the graph. The
    other options are its inputs.

    Args:
        problem: the problem of the model.
        model: the model.
        source_tokenizer: the vocabulary of sources.
        target_tokenizer: the vocabulary of targets.

    Attributes:
        model: the same.
        search_graph: the search of a batch.
    """

    name = "tensorflow"
    divides_batches = True

    def __init__(
        self,
        problem: Problem,
        model: DecodingModel,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
    ) -> None:
        require_tensorflow()
        self.problem_name = problem.name
        self.text_processor = problem.text_processor
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.options = DecodingOptions.of_problem(problem)
        self.search_graph = SearchGraph(problem, model, target_tokenizer)
        self._functions: dict[Hashable, _Function] = {}
        # The phrases of the latest request, because the next one often has the same.
        self._phrases: dict[Hashable, Phrases] = {}
        self._says_compiling = False

    def check(self, options: DecodingOptions) -> None:
        """Refuses a constraint that the problem does not have."""
        if isinstance(options.constraint, str):
            self.search_graph.constraint(options.constraint)

    def search(
        self,
        sources: Sequence[Source],
        options: DecodingOptions,
        progress: Progress | None = None,
    ) -> list[list[TokenHypothesis]]:
        """Returns the n best hypotheses of each source; see `Engine`."""
        is_compiled = self.search_graph.is_compiled(options)
        if is_compiled and not self._says_compiling:
            self._says_compiling = True
            say("XLA compiles the search once for each size of batch")
        search_batch = functools.partial(
            self._search_batch,
            options=options,
            phrases=self._phrases_of(options),
            has_prefixes=any(source.prefix for source in sources),
            is_compiled=is_compiled,
        )
        width_of = rounded_length if is_compiled else padded_width
        return search_in_batches(
            search_batch, sources, options.batch_tokens, progress, width_of
        )

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        options: DecodingOptions,
    ) -> list[TokenScores]:
        """Returns the log-probabilities of targets; see `Engine`."""
        function = self._traced("score", _pairs_function, score_targets, self.model)
        return score_pairs(function, sources, targets, options.batch_tokens)

    def next_tokens(
        self, sources: Sequence[Source], count: int, options: DecodingOptions
    ) -> list[list[int]]:
        """Returns the likeliest tokens after prefixes; see `Engine`."""
        function = self._traced(
            ("next", count), _pairs_function, likeliest_tokens, self.model, count
        )
        targets = [[*source.prefix, EOS] for source in sources]
        source_ids = [source.ids for source in sources]
        results: list[list[int]] = [[]] * len(sources)
        rows = run_pairs(function, source_ids, targets, options.batch_tokens)
        for i, (tokens,) in rows:
            results[i] = tokens.tolist()
        return results

    def alignment_head(self, head: AlignmentHead) -> AlignmentHead:
        """Returns the attention head to read; see `Engine`."""
        return head.of_model(self.model.hparams)

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        head: AlignmentHead,
        options: DecodingOptions,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the index and the attention weights of each pair; see `Engine`."""
        function = self._traced(
            head, _pairs_function, attention_weights, self.model, head
        )
        rows = run_pairs(function, sources, targets, options.batch_tokens)
        for i, (weights,) in rows:
            yield i, weights

    def _phrases_of(self, options: DecodingOptions) -> Phrases:
        """Returns the glossary and the forbidden phrases of options."""
        key = options.glossary, options.forbidden
        phrases = self._phrases.get(key)
        if phrases is None:
            phrases = Phrases.from_options(options, self.target_tokenizer)
            self._phrases = {key: phrases}
        return phrases

    def _search_batch(
        self,
        batch: Sequence[Source],
        options: DecodingOptions,
        phrases: Phrases,
        has_prefixes: bool,
        is_compiled: bool,
    ) -> list[list[TokenHypothesis]]:
        """Returns the hypotheses of each source of one batch."""
        inputs: dict[str, Nest] = {
            "tensors": {
                name: tf.constant(getattr(options, name), dtype)
                for name, dtype in _TENSOR_DTYPES.items()
            },
            "ids": padded([source.ids for source in batch]),  # [B, S]
            "texts": tf.constant([source.text for source in batch]),  # [B]
            "phrases": phrases,
        }
        if has_prefixes:
            inputs["prefixes"] = padded([source.prefix for source in batch])  # [B, P]
        if options.sampling:
            seeds = [(options.seed, source.call_index) for source in batch]
            inputs["seeds"] = np.array(seeds, np.int32)  # [B, 2]
        if options.protect:
            inputs["copied"] = self._copied(batch, options)  # [B, M, L]
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        key = (
            options.constraint,
            options.length_penalty,
            options.no_repeat_ngram,
            bool(options.coverage_penalty),
            is_compiled,
            *map(bool, phrases),
            *inputs,
        )
        function = self._traced(
            key, _search_function, self.search_graph, options, inputs
        )
        arrays = [tensor.numpy() for tensor in Hypotheses(*function(inputs))]
        return [n_best_tokens(*row) for row in zip(*arrays, strict=True)]

    def _copied(self, batch: Sequence[Source], options: DecodingOptions) -> np.ndarray:
        """Returns the ids of protected parts, [B, M, L]; see `SearchInputs`."""
        parts = protected_parts(
            tf.constant([source.text for source in batch]),
            options.protect,
            self.source_tokenizer.pieces,
        )
        texts = [text.decode() for text in parts.values.numpy()]
        ids = [row[:-1] for row in self.target_tokenizer.encode_batch(texts)]
        rows = tf.ragged.constant(ids, tf.int32, ragged_rank=1, inner_shape=())
        return parts.with_values(rows).to_tensor(PAD).numpy()

    def _traced(
        self, key: Hashable, build: Callable[..., _Function], *arguments: object
    ) -> _Function:
        """Returns the traced function for a key, built at its first use.

        All threads share it.
        """
        function: _Function = self._functions.get(key)
        if function is None:
            function = self._functions.setdefault(key, build(*arguments))
            with busy("building the graph"):
                function.get_concrete_function()
            for oldest in list(self._functions)[:-_MAX_FUNCTIONS]:
                self._functions.pop(oldest, None)
        return function


def _search_function(
    search_graph: SearchGraph, options: DecodingOptions, inputs: dict[str, Nest]
) -> _Function:
    """Returns the search of batches with the structure of these inputs."""
    specs = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None] * x.shape.rank, x.dtype), inputs
    )

    def search(inputs: dict[str, Nest]) -> Hypotheses:
        return search_graph.search(options, SearchInputs(**inputs))

    return tf.function(search, input_signature=[specs], autograph=False)


def _pairs_function(function: _Function, *arguments: object) -> _Function:
    """Returns a function of its arguments, and of the ids of sources and targets."""
    ids = tf.TensorSpec([None, None], tf.int32)

    def call(source: tf.Tensor, target: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return function(*arguments, source, target)

    return tf.function(call, input_signature=[ids, ids], autograph=False)


class ModelTranslator(Translator):
    """A `Translator` whose model is at hand: it can be evaluated and exported.

        translator = ModelTranslator(problem, model, tokenizer, tokenizer)

    Args:
        problem: the problem, which has the default options.
        model: the model, or an ensemble.
        source_tokenizer: the vocabulary of sources.
        target_tokenizer: the vocabulary of targets.

    Attributes:
        engine: the `GraphEngine`.
        problem: the problem.
        model: the model.
        origin: see `RunConfig`; exports record it.
    """

    engine: GraphEngine

    def __init__(
        self,
        problem: Problem,
        model: DecodingModel,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
    ) -> None:
        super().__init__(
            GraphEngine(problem, model, source_tokenizer, target_tokenizer)
        )
        self.problem = problem
        self.model = model
        self.origin: dict[str, str] = {}

    def with_compute_dtype(self, dtype: str) -> "ModelTranslator":
        """Returns a copy, with the same options, that computes in another dtype.

        Args:
            dtype: the hyper-parameter `compute_dtype`.
        """
        copy = ModelTranslator(
            self.problem,
            self.model.with_compute_dtype(dtype),
            self.source_tokenizer,
            self.target_tokenizer,
        )
        copy.options = self.options
        copy.origin = self.origin
        return copy

    def save_tokenizers(self, path: Path) -> None:
        """Writes `source.spm` and `target.spm` (or `.subwords`) to a directory."""
        for side, tokenizer in (
            ("source", self.source_tokenizer),
            ("target", self.target_tokenizer),
        ):
            tokenizer.save(path / f"{side}{tokenizer.suffix}")
