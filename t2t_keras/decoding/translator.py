"""Translator: a list of texts in, their translations out."""

import dataclasses
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.backend import require_tensorflow
from t2t_keras.decoding.batching import batches, padded
from t2t_keras.decoding.beam_search import Hypotheses, beam_search
from t2t_keras.decoding.brackets import (
    BalancedBrackets,
    BracketPieces,
    shortest_trees,
)
from t2t_keras.decoding.constraint import (
    AllOf,
    Constraint,
    ForcedPrefix,
    MinimumLength,
)
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.sampling import sample
from t2t_keras.decoding.scoring import Score, score_targets
from t2t_keras.decoding.text_form import checked_texts, is_blank, text_form
from t2t_keras.errors import UserError
from t2t_keras.model.transformer import Transformer
from t2t_keras.problem import Problem
from t2t_keras.text.punctuation import word_kinds
from t2t_keras.text.tokenizer import EOS, Tokenizer

_log = logging.getLogger(__name__)


class Hypothesis(NamedTuple):
    """One output.

    Attributes:
        text: after the problem's `postprocess`.
        score: log-probability over length penalty.
        log_prob: log-probability.
        ids: the pieces; the last is EOS unless the output reached its limit.
        is_repaired: of a problem of trees: the pieces were no tree over the words, and
            the text is that of `Brackets.repair`.
    """

    text: str
    score: float
    log_prob: float
    ids: tuple[int, ...]
    is_repaired: bool = False

    @property
    def tokens(self) -> int:
        """Number of pieces, EOS included."""
        return len(self.ids)


class Translator:
    """A model between its tokenizers.

        translator = Translator(problem, model, tokenizer, tokenizer)
        translator.translate(["A house.", "A dog runs."])
        translator.n_best(["A house."], 4, alpha=1.0)

    Any option of `DecodingOptions` may be given to any call; the problem's are the
    defaults. The inputs are sorted by length into batches; this changes neither the
    order of the outputs nor, but for rounding, the outputs.

    A blank input (nothing but white space) has the empty output, with score 0. An
    output is one line: a line break in it becomes a space.

    The inputs of a problem of trees are words with white space between them, or raw
    sentences with the option `raw`; every output is a tree over exactly these
    words.

    Attributes:
        options: the defaults of every call.
    """

    def __init__(
        self,
        problem: Problem,
        model: Transformer,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
    ) -> None:
        require_tensorflow()
        self.problem = problem
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.options = DecodingOptions.of(problem)
        self._graphs: dict[Any, Callable] = {}
        self._form = text_form(problem)

    def translate(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Returns the best output of each text; arguments as in `n_best`."""
        return [best[0].text for best in self.n_best(texts, None, prefixes, **options)]

    def n_best(
        self,
        texts: Sequence[str],
        n: int | None = None,
        prefixes: Sequence[str] | None = None,
        *,
        before: int = 0,
        advance: Callable[[int], None] | None = None,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the n best outputs of each text, best first; or n samples, as drawn.

        Outputs that reached their limit without EOS come after all that did not. There
        are fewer than n where a constraint or a short limit leaves fewer, but never
        none: if nothing is possible, the output is empty and its score -inf.

        Args:
            texts: the inputs.
            n: the option `n_best`.
            prefixes: for each input, what its output has to begin with; may be "".
            before: how many inputs came before these, for their numbers in warnings.
            advance: called after each batch with the number of inputs it had.
            **options: see `DecodingOptions`.

        Raises:
            UserError: an option's value is impossible or does not suit the problem;
                texts or prefixes are not lists of strings, or not of equal length.
        """
        if n is not None:
            options["n_best"] = n
        chosen = self.choose(**options)
        texts = checked_texts(texts)
        if prefixes is not None:
            prefixes = checked_texts(prefixes, "prefixes")
            if len(prefixes) != len(texts):
                raise UserError(f"{len(texts)} texts but {len(prefixes)} prefixes")
        advance = advance or (lambda inputs: None)

        texts = [self._form.source_text(text, chosen.raw) for text in texts]
        numbers = [i for i, text in enumerate(texts) if not is_blank(text)]
        sources = self._encode_sources(
            [texts[i] for i in numbers], [before + i for i in numbers], chosen
        )
        forced = None
        if prefixes is not None:
            wanted = self.target_tokenizer.encode_batch([prefixes[i] for i in numbers])
            forced = [ids[:-1] for ids in wanted]  # without EOS

        results = [[Hypothesis("", 0.0, 0.0, ())] for _ in texts]
        advance(len(texts) - len(numbers))
        for batch in batches([len(ids) for ids in sources], chosen.batch_tokens):
            hypotheses = self._decode(
                [sources[i] for i in batch],
                [texts[numbers[i]].split(" ") for i in batch],
                None if forced is None else [forced[i] for i in batch],
                [numbers[i] for i in batch],
                chosen,
            )
            for row, i in enumerate(batch):
                source = texts[numbers[i]]
                results[numbers[i]] = self._outputs(source, hypotheses, row)
            advance(len(batch))
        return results

    def score(
        self, sources: Sequence[str], targets: Sequence[str], **options: Any
    ) -> list[Score]:
        """Returns how probable the model finds each target, given its source.

        The targets of a problem of trees are bracketed trees.

        Raises:
            UserError: sources or targets are not lists of strings, or not of equal
                length, or a target is not a tree over the words of its source.
        """
        sources = checked_texts(sources, "sources")
        targets = checked_texts(targets, "targets")
        if len(sources) != len(targets):
            raise UserError(
                f"{len(sources)} sources but {len(targets)} targets: "
                "line by line they must be pairs"
            )
        chosen = self.choose(**options)
        sources = [self._form.source_text(text, chosen.raw) for text in sources]
        source_ids = self._encode_sources(sources, range(len(sources)), chosen)
        wanted = map(self._form.target_text, sources, targets)
        target_ids = self.target_tokenizer.encode_batch(list(wanted))
        lengths = [
            max(len(source), len(target))
            for source, target in zip(source_ids, target_ids, strict=True)
        ]
        results = [Score(0.0, 0)] * len(sources)
        for batch in batches(lengths, chosen.batch_tokens):
            log_probs, tokens = self._graph("score", self._build_scoring)(
                padded([source_ids[i] for i in batch]),
                padded([target_ids[i] for i in batch]),
            )
            pairs = zip(log_probs.numpy(), tokens.numpy(), strict=True)
            for i, (log_prob, count) in zip(batch, pairs, strict=True):
                results[i] = Score(float(log_prob), int(count))
        return results

    def choose(self, **options: Any) -> DecodingOptions:
        """Returns the defaults with some options changed.

        Raises:
            UserError: a value is impossible or does not suit the problem.
        """
        chosen = dataclasses.replace(self.options, **options)
        if chosen.raw and self.problem.output != "trees":
            raise UserError(
                f"raw is for problems of trees; '{self.problem.name}' has none"
            )
        if chosen.constraint == "brackets":
            _ = self.bracket_pieces  # raises
        return chosen

    def restrict(
        self,
        options: DecodingOptions,
        kinds: tf.Tensor,
        limits: tf.Tensor,
        min_length: int | tf.Tensor,
    ) -> tuple[tf.Tensor, list[Constraint]]:
        """Returns what the options allow an output to be, in a graph.

        Args:
            options: the options.
            kinds: [B, W] int32, of each source's words, as for `BalancedBrackets`.
            limits: [B] int32, most pieces of each output.
            min_length: the option; may be a tensor.

        Returns:
            The limits, raised where nothing allowed would be short enough, and the
            constraints.
        """
        constraints: list[Constraint] = [
            MinimumLength(min_length, self.target_tokenizer.vocab_size)
        ]
        if options.constraint == "brackets":
            limits = tf.maximum(limits, shortest_trees(kinds))
            constraints.append(BalancedBrackets(self.bracket_pieces, kinds, limits))
        elif options.constraint != "none":
            constraints.append(options.constraint)
        return limits, constraints

    @functools.cached_property
    def bracket_pieces(self) -> BracketPieces:
        """What the target's pieces are as brackets; `UserError` if they are none."""
        return BracketPieces.of(self.problem.symbols, self.target_tokenizer)

    def _encode_sources(
        self, texts: Sequence[str], numbers: Sequence[int], options: DecodingOptions
    ) -> list[list[int]]:
        """Returns the pieces of each text, cut where there are too many."""
        encoded = self.source_tokenizer.encode_batch(list(texts))
        most = options.max_source_length
        for i, ids in enumerate(encoded):
            if len(ids) > most:
                encoded[i] = [*ids[: most - 1], EOS]
                _log.warning(
                    "input %d has %d tokens; all after the first %d are left out "
                    "(max_source_length)",
                    numbers[i] + 1,
                    len(ids),
                    most - 1,
                )
        return encoded

    def _decode(
        self,
        sources: list[list[int]],
        words: list[list[str]],
        prefixes: list[list[int]] | None,
        numbers: list[int],
        options: DecodingOptions,
    ) -> Hypotheses:
        """Runs one batch; returns arrays."""
        forced = prefixes or [()] * len(sources)
        limits = [
            max(len(source) + options.extra_length, len(prefix) + 1, 1)
            for source, prefix in zip(sources, forced, strict=True)
        ]
        kinds: list[list[int]] = [[] for _ in words]
        if options.constraint == "brackets":
            kinds = [word_kinds(row) for row in words]
        graph = self._graph(
            (options.sampling, options.constraint, prefixes is not None),
            lambda: self._build_decoding(options, prefixes is not None),
        )
        hypotheses = graph(
            {
                "source": padded(sources),
                "kinds": padded(kinds),
                "prefix": padded(forced),
                "limit": np.array(limits, np.int32),
                "seed": np.array([(options.seed, i) for i in numbers], np.int32),
            },
            {name: getattr(options, name) for name in _NUMBERS},
        )
        return Hypotheses(*(tensor.numpy() for tensor in hypotheses))

    def _outputs(
        self, source: str, hypotheses: Hypotheses, row: int
    ) -> list[Hypothesis]:
        """Returns the outputs for one input."""
        outputs = []
        for ids, score, log_prob, length in zip(
            *(array[row] for array in hypotheses), strict=True
        ):
            if length or not outputs:
                pieces = tuple(ids[:length].tolist())
                text = self.target_tokenizer.decode(pieces).replace("\n", " ")
                text, is_repaired = self._form.repaired(source, text)
                text = self.problem.postprocess(source, text)
                outputs.append(
                    Hypothesis(text, float(score), float(log_prob), pieces, is_repaired)
                )
        return outputs

    def _graph(self, key: Any, build: Callable[[], Callable]) -> Callable:
        """Returns the function under the key, traced at its first call."""
        if key not in self._graphs:
            self._graphs[key] = build()
        return self._graphs[key]

    def _build_decoding(self, options: DecodingOptions, has_prefixes: bool) -> Callable:
        """Returns the function that decodes a batch; numbers and shapes may vary."""
        batch_spec = {
            "source": tf.TensorSpec([None, None], tf.int32),
            "kinds": tf.TensorSpec([None, None], tf.int32),
            "prefix": tf.TensorSpec([None, None], tf.int32),
            "limit": tf.TensorSpec([None], tf.int32),
            "seed": tf.TensorSpec([None, 2], tf.int32),
        }
        number_spec = {name: tf.TensorSpec([], kind) for name, kind in _NUMBERS.items()}

        @tf.function(input_signature=[batch_spec, number_spec])
        def decode(
            batch: dict[str, tf.Tensor], numbers: dict[str, tf.Tensor]
        ) -> Hypotheses:
            limits, constraints = self.restrict(
                options, batch["kinds"], batch["limit"], numbers["min_length"]
            )
            if has_prefixes:
                vocab_size = self.target_tokenizer.vocab_size
                constraints.append(ForcedPrefix(batch["prefix"], vocab_size))
            if options.sampling:
                return sample(
                    self.model,
                    batch["source"],
                    seeds=batch["seed"],
                    max_length=limits,
                    num_samples=numbers["n_best"],
                    temperature=numbers["temperature"],
                    top_k=numbers["top_k"],
                    top_p=numbers["top_p"],
                    alpha=numbers["alpha"],
                    constraint=AllOf(constraints),
                )
            return beam_search(
                self.model,
                batch["source"],
                beam_size=numbers["beam_size"],
                alpha=numbers["alpha"],
                max_length=limits,
                n_best=numbers["n_best"],
                constraint=AllOf(constraints),
            )

        return decode

    def _build_scoring(self) -> Callable:
        """Returns the function that scores a batch of pairs."""
        ids = tf.TensorSpec([None, None], tf.int32)
        return tf.function(
            lambda source, target: score_targets(self.model, source, target),
            input_signature=[ids, ids],
        )


# The options that are numbers of the graph: another value needs no new trace.
_NUMBERS = {
    "beam_size": tf.int32,
    "n_best": tf.int32,
    "alpha": tf.float32,
    "min_length": tf.int32,
    "temperature": tf.float32,
    "top_k": tf.int32,
    "top_p": tf.float32,
}
