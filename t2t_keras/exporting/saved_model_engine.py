"""A SavedModel as an engine of `Translator`, by its signatures of ids."""

import functools
from collections.abc import Iterator, Sequence
from typing import NoReturn

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.batches import (
    padded,
    padded_width,
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
    penalty_of_tokens,
    refuse_changes,
)
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.search_loop import rounded_length
from t2t_keras.errors import UserError
from t2t_keras.problem import TextProcessor
from t2t_keras.text.tokenizer import Tokenizer

# `Translator` itself applies it.
_FREE_OPTIONS = ("batch_tokens",)

# Characters that some vocabularies leave out or replace.
_PROBE = "a \u2460\u0416\u4e2d\U0001f600 \u00df"


class SavedModelEngine:
    """Computes a SavedModel that `export_saved_model` wrote; see `Engine`.

    Requests may have the options of the signature `search_ids`; all other options are
    built in. It returns no attention, and cannot force prefixes.

    Args:
        served: what `load_saved_model` returned.
        problem_name: name of the problem.
        text_processor: the text processor.
        source_tokenizer: the vocabulary of sources.
        target_tokenizer: the vocabulary of targets.
        options: the decoding options of the export.

    Attributes:
        request_options: the names of the options that requests may have.
    """

    name = "tensorflow"
    divides_batches = True

    def __init__(
        self,
        served: tf.Module,
        problem_name: str,
        text_processor: TextProcessor,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        options: DecodingOptions,
    ) -> None:
        # `served` keeps the weights alive.
        self._served = served
        self._signatures = served.signatures
        self.problem_name = problem_name
        self.text_processor = text_processor
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.options = options
        defaults = self._signatures["options"]()
        self._dtypes = {name: value.dtype for name, value in defaults.items()}
        self.request_options = tuple(defaults)
        # The graph reads the text of a source from its ids, which may lack some of it.
        probe = source_tokenizer.decode(source_tokenizer.encode(_PROBE))
        self._keeps_texts = probe == _PROBE

    def check(self, options: DecodingOptions) -> None:
        """Refuses changes of options that are built in, and what ids cannot tell."""
        reads_texts = options.needs_texts or options.constraint != "none"
        if reads_texts and not self._keeps_texts:
            raise UserError(
                "constraint, glossary and protect read the text of a source, but the "
                "vocabulary of this export does not keep all characters; load the run "
                "directory, or call the signature `translate` with TensorFlow"
            )
        names = vars(options).keys() - {*self.request_options, *_FREE_OPTIONS}
        refuse_changes(
            options,
            self.options,
            sorted(names),
            "an export has it built in; the options are "
            f"{', '.join(self.request_options)}",
        )

    def search(
        self,
        sources: Sequence[Source],
        options: DecodingOptions,
        progress: Progress | None = None,
    ) -> list[list[TokenHypothesis]]:
        """Returns the n best hypotheses of each source; see `Engine`."""
        if any(source.prefix for source in sources):
            self._refuse_prefixes()
        values = DecodingOptions.inputs(vars(options), self._dtypes)
        inputs = {
            name: tf.constant(value, self._dtypes[name])
            for name, value in values.items()
        }
        search_batch = functools.partial(
            self._search_batch, options=options, inputs=inputs
        )
        is_compiled = self.options.jit_compile == "true"
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

        def score_batch(source: np.ndarray, target: np.ndarray) -> list[tf.Tensor]:
            tensors = self._signatures["score_ids"](
                ids=tf.constant(source), targets=tf.constant(target)
            )
            return [tensors[k] for k in ("log_prob", "tokens", "token_log_probs")]

        return score_pairs(score_batch, sources, targets, options.batch_tokens)

    def next_tokens(
        self, sources: Sequence[Source], count: int, options: DecodingOptions
    ) -> NoReturn:
        """Refuses next tokens, because the graph takes no prefixes."""
        self._refuse_prefixes()

    def alignment_head(self, head: AlignmentHead) -> NoReturn:
        """Refuses alignments, because the graph returns no attention."""
        raise UserError("alignment: a SavedModel returns none; load the run directory")

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        head: AlignmentHead,
        options: DecodingOptions,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Refuses alignments, because the graph returns no attention."""
        self.alignment_head(head)

    def _refuse_prefixes(self) -> NoReturn:
        raise UserError(
            "prefixes: a SavedModel cannot force them; load the run directory"
        )

    def _search_batch(
        self,
        batch: Sequence[Source],
        options: DecodingOptions,
        inputs: dict[str, tf.Tensor],
    ) -> list[list[TokenHypothesis]]:
        """Returns the hypotheses of each source of one batch."""
        ids = tf.constant(padded([source.ids for source in batch]))  # [B, S]
        tensors = self._signatures["search_ids"](ids=ids, **inputs)
        # [B, n, T], [B, n], [B, n]
        arrays = [tensors[name].numpy() for name in ("ids", "scores", "lengths")]
        results = []
        for target_ids, scores, lengths in zip(*arrays, strict=True):
            penalties = [penalty_of_tokens(n, options) for n in lengths.tolist()]
            log_probs = scores.astype(np.float64) * penalties  # [n]
            results.append(n_best_tokens(target_ids, scores, log_probs, lengths))
        if options.coverage_penalty:
            self._set_log_probs(batch, results, options)
        return results

    def _set_log_probs(
        self,
        batch: Sequence[Source],
        n_best_lists: list[list[TokenHypothesis]],
        options: DecodingOptions,
    ) -> None:
        """Computes the log-probabilities, which scores with a coverage penalty hide."""
        sources = []
        targets = []
        for source, hypotheses in zip(batch, n_best_lists, strict=True):
            for hypothesis in hypotheses:
                if hypothesis.ids:
                    sources.append(source.ids)
                    targets.append(hypothesis.ids)
        scores = iter(self.score(sources, targets, options))
        for hypotheses in n_best_lists:
            for k, hypothesis in enumerate(hypotheses):
                if hypothesis.ids:
                    log_prob = next(scores).log_prob
                    hypotheses[k] = hypothesis._replace(log_prob=log_prob)
