"""A CTranslate2 model as an engine of `Translator`, without TensorFlow."""

import dataclasses
import functools
import itertools
import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import ctranslate2
import numpy as np

from t2t_keras.checking import Positive
from t2t_keras.decoding.batches import batches, batches_of_pairs
from t2t_keras.decoding.engine import (
    AlignmentHead,
    Progress,
    Source,
    TokenHypothesis,
    TokenScores,
    penalty_of_tokens,
    refuse_changes,
)
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError, quantity
from t2t_keras.exporting.settings import (
    SETTINGS,
    ExportSettings,
    registered_text_processor,
)
from t2t_keras.problem import TextProcessor
from t2t_keras.text.tokenizer import Tokenizer, load_tokenizer
from t2t_keras.text.vocabulary import EOS, PAD

from .ctranslate2_pool import TranslatorPool

_log = logging.getLogger(__name__)

PAD_TOKEN = "<pad>"
EOS_TOKEN = "</s>"

# Source tokens times beam size of a batch; larger batches are slower.
_MAX_BATCH_WIDTH = 4096
# With 1, about one output in 100 differs from that of TensorFlow; 2 is no better.
_PATIENCE = 1.5
# Suppressed tokens have lower log-probabilities.
_MIN_LOG_PROB = -1e9

_UNSUPPORTED = (
    "coverage_penalty",
    "glossary",
    "protect",
    "forbidden",
    "constraint",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CTranslate2Settings(ExportSettings):
    """The settings of an export for CTranslate2.

    Attributes:
        tags: words before sources that are one token; None: the registered problem's
            text processor is used.
        positions: the number of tokens in the longest output.
        compute_type: CTranslate2's type of computation on the machine that wrote it.
    """

    tags: list[str] | None = None
    positions: Positive
    compute_type: str


def require_supported(options: DecodingOptions) -> None:
    """Refuses options that CTranslate2 does not support.

    Raises:
        UserError: one of them is set.
    """
    refuse_changes(
        options,
        DecodingOptions(),
        _UNSUPPORTED,
        "CTranslate2 does not support it; use the run (--engine=tensorflow) or an "
        "export with --format=savedmodel",
    )


def token_strings(tokenizer: Tokenizer) -> list[str]:
    """Returns a distinct, non-empty string for every id of a vocabulary."""
    strings = [PAD_TOKEN, EOS_TOKEN]
    taken = {*strings, ""}
    for token, piece in enumerate(tokenizer.pieces[len(strings) :], len(strings)):
        if piece in taken:
            piece = f"<{token}>"
        while piece in taken:
            piece = f"<{piece}>"
        strings.append(piece)
        taken.add(piece)
    return strings


class CTranslate2Engine:
    """Computes a model that `export_ctranslate2` wrote; see `Engine`.

    In float32 greedy search gives the outputs of TensorFlow. Other searches differ:

    - Beam search ends when 1.5 times `beam_size` hypotheses are finished, and only the
      `beam_size` best continuations of a step can finish one. TensorFlow searches
      while a better one is possible, and considers twice as many continuations.
    - `no_repeat_ngram` also excludes sequences that are repeated in the source.
    - A seed gives the same samples each time, but other samples than TensorFlow.

    `coverage_penalty`, `glossary`, `protect`, `forbidden` and constraints are refused.

    Args:
        export_dir: the directory of the export.

    Attributes:
        settings: the content of `t2t_export.json`, as attributes.
        compute_type: CTranslate2's type of computation, such as `int8_float32`.

    Raises:
        UserError: the directory was not written by `t2t export`.
    """

    name = "ctranslate2"
    divides_batches = False

    def __init__(self, export_dir: str | Path) -> None:
        path = Path(export_dir)
        settings = CTranslate2Settings.read(path)
        self.settings = settings
        self.problem_name = settings.problem
        self.options = DecodingOptions.of_recorded(settings.decoding, path / SETTINGS)
        if settings.tags is None:
            self.text_processor = registered_text_processor(settings.problem, path)
        else:
            self.text_processor = TextProcessor(tags=tuple(settings.tags))
        self.source_tokenizer = load_tokenizer(next(path.glob("source.*")))
        self.target_tokenizer = load_tokenizer(next(path.glob("target.*")))
        self._source_strings = token_strings(self.source_tokenizer)
        self._target_strings = token_strings(self.target_tokenizer)
        self._target_ids = {token: i for i, token in enumerate(self._target_strings)}
        self._pool = TranslatorPool(path)
        self._model = self._pool.model
        self.compute_type = self._model.compute_type
        if self.compute_type != settings.compute_type:
            _log.warning(
                "%s was verified in %s, but this machine computes in %s",
                path,
                settings.compute_type,
                self.compute_type,
            )

    def check(self, options: DecodingOptions) -> None:
        """Refuses options that CTranslate2 lacks, and outputs that may be too long."""
        require_supported(options)
        max_positions = options.max_source_length + options.extra_length
        if max_positions > self.settings.positions:
            raise UserError(
                f"max_source_length and extra_length: their sum, {max_positions}, is "
                f"more than the {self.settings.positions} positions of the export; "
                "export the model again with these options"
            )

    def search(
        self,
        sources: Sequence[Source],
        options: DecodingOptions,
        progress: Progress | None = None,
    ) -> list[list[TokenHypothesis]]:
        """Returns the n best hypotheses of each source; see `Engine`."""
        max_lengths = []
        for source in sources:
            self._require_room(source)
            max_length = len(source.ids) + options.extra_length
            max_lengths.append(max(max_length, len(source.prefix) + 1))
        if options.sampling:
            return self._sample(sources, max_lengths, options, progress)
        return self._beam_search(sources, max_lengths, options, progress)

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        options: DecodingOptions,
    ) -> list[TokenScores]:
        """Returns the log-probabilities of targets; see `Engine`."""
        scores = [TokenScores(0.0, ())] * len(sources)
        score_batch = self._model.score_batch
        for i, result in self._run_pairs(score_batch, sources, targets, options):
            # CTranslate2 adds EOS, even to targets that have reached their limit.
            row = tuple(result.log_probs[: len(targets[i])])
            scores[i] = TokenScores(math.fsum(row), row)
        return scores

    def next_tokens(
        self, sources: Sequence[Source], count: int, options: DecodingOptions
    ) -> list[list[int]]:
        """Returns the likeliest tokens after prefixes; see `Engine`.

        They are the hypotheses of a beam search that is one token longer than the
        prefix. After a prefix, CTranslate2 4.8 drops the one that ends in EOS unless it
        is the best, and returns an arbitrary token such as PAD instead.
        """
        waiting = []
        for source in sources:
            self._require_room(source)
            waiting += self._model.translate_batch(
                [_strings(self._source_strings, source.ids)],
                [_strings(self._target_strings, source.prefix)],
                asynchronous=True,
                beam_size=count,
                num_hypotheses=count,
                max_input_length=0,
                max_decoding_length=len(source.prefix) + 1,
                min_decoding_length=0,
                return_end_token=True,
                return_scores=True,
                suppress_sequences=[[PAD_TOKEN]],
            )
        results = []
        for source, future in zip(sources, waiting, strict=True):
            result = future.result()
            index = len(source.prefix)
            scores = {}
            for row, score in zip(result.hypotheses, result.scores, strict=True):
                # CTranslate2 has divided it by the length.
                log_prob = score * (index + 1)
                if log_prob > _MIN_LOG_PROB:
                    scores[self._target_ids[row[index]]] = log_prob
            if EOS not in scores and len(scores) < len(result.scores):
                scores[EOS] = self._end_log_prob(source, scores, options)
            results.append(sorted(scores, key=scores.__getitem__, reverse=True))
        return results

    def _end_log_prob(
        self, source: Source, log_probs: Mapping[int, float], options: DecodingOptions
    ) -> float:
        """Returns the log-probability of EOS after a prefix.

        Args:
            source: the source with its prefix.
            log_probs: the log-probabilities of other next tokens, by token. The result
                is shifted by the same constant as they are.
            options: the options.
        """
        if not log_probs:
            return 0.0
        next_token, log_prob = next(iter(log_probs.items()))
        targets = [[*source.prefix, token] for token in (EOS, next_token)]
        eos_scores, token_scores = self.score([source.ids] * 2, targets, options)
        difference = eos_scores.token_log_probs[-1] - token_scores.token_log_probs[-1]
        return log_prob + difference

    def alignment_head(self, head: AlignmentHead) -> AlignmentHead:
        """Returns the attention head to read, of which an export has only one."""
        if head != AlignmentHead():
            raise UserError(
                "alignment: CTranslate2 has the attention of the default head only; "
                "leave out layer and head"
            )
        return head

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        head: AlignmentHead,
        options: DecodingOptions,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the index and the attention weights of each pair; see `Engine`.

        The weights come from greedy search with the whole target as a prefix: in beam
        search CTranslate2 4.8 mixes up the weights of different hypotheses. They do not
        include EOS of the source.
        """
        force = functools.partial(
            self._model.translate_batch,
            beam_size=1,
            max_decoding_length=max(map(len, targets), default=1),
            return_end_token=True,
            return_attention=True,
        )
        for i, result in self._run_pairs(force, sources, targets, options):
            yield i, np.array(result.attention[0][: len(targets[i])])

    def _require_room(self, source: Source) -> None:
        """Refuses a prefix after which the model has no position for a token."""
        prefix_length = len(source.prefix)
        if prefix_length >= self.settings.positions:
            raise UserError(
                f"prefixes[{source.call_index}] has "
                f"{quantity(prefix_length, 'tokens')}; with this export a "
                f"prefix can have at most {self.settings.positions - 1}"
            )

    def _sample(
        self,
        sources: Sequence[Source],
        max_lengths: Sequence[int],
        options: DecodingOptions,
        progress: Progress | None,
    ) -> list[list[TokenHypothesis]]:
        """Returns n samples for each source, as drawn."""
        model = self._pool.seeded_model(options.seed)
        # Samples depend on the batches, so these must not depend on other calls.
        lengths = [len(source.ids) for source in sources]
        groups = batches(lengths, options.batch_tokens, self._pool.workers)
        samples = self._translate(
            model, groups, sources, max_lengths, options, progress, never_pad=True
        )
        results = []
        for i, limit in enumerate(max_lengths):
            results.append([x._replace(ids=x.ids[:limit]) for x in samples[i]])
        self._rescore(sources, results, range(len(sources)), options)
        return results

    def _beam_search(
        self,
        sources: Sequence[Source],
        max_lengths: Sequence[int],
        options: DecodingOptions,
        progress: Progress | None,
    ) -> list[list[TokenHypothesis]]:
        """Returns the n best hypotheses of each source, best first.

        A batch is searched with the largest limit of its sources, and CTranslate2 may
        choose PAD. Sources with outputs beyond their own limit or with PAD are searched
        again, in batches of equal limits and with PAD suppressed, which changes the
        probabilities of the other tokens.
        """
        lengths = [len(source.ids) for source in sources]
        width = min(options.batch_tokens, _MAX_BATCH_WIDTH // options.beam_size)
        width = max(width, 1)
        groups = batches(lengths, width, self._pool.num_idle)
        hypotheses = self._translate(
            self._model, groups, sources, max_lengths, options, progress
        )
        results = [hypotheses[i] for i in range(len(sources))]
        failed = []
        for i, limit in enumerate(max_lengths):
            if any(len(x.ids) > limit or PAD in x.ids for x in results[i]):
                failed.append(i)
        failed.sort(key=max_lengths.__getitem__)
        for _, same_limit in itertools.groupby(failed, max_lengths.__getitem__):
            rows = list(same_limit)
            row_lengths = [lengths[i] for i in rows]
            groups = [
                [rows[k] for k in group]
                for group in batches(row_lengths, width, self._pool.num_idle)
            ]
            hypotheses = self._translate(
                self._model, groups, sources, max_lengths, options, never_pad=True
            )
            for i in rows:
                results[i] = hypotheses[i]
        has_prefixes = any(source.prefix for source in sources)
        if options.min_length or options.no_repeat_ngram or has_prefixes:
            failed = list(range(len(sources)))
        self._rescore(sources, results, failed, options)
        for row in results:
            row.sort(key=lambda x: (x.ids[-1] != EOS, -x.score))
        return [row[: options.n_best] for row in results]

    def _rescore(
        self,
        sources: Sequence[Source],
        results: list[list[TokenHypothesis]],
        rows: Sequence[int],
        options: DecodingOptions,
    ) -> None:
        """Replaces the log-probabilities of the hypotheses of some sources.

        Those of CTranslate2's search are not the model's where tokens are suppressed.
        """
        source_ids = []
        target_ids = []
        for i in rows:
            for hypothesis in results[i]:
                source_ids.append(sources[i].ids)
                target_ids.append(hypothesis.ids)
        scores = iter(self.score(source_ids, target_ids, options))
        for i in rows:
            for k, hypothesis in enumerate(results[i]):
                log_prob = next(scores).log_prob
                results[i][k] = _hypothesis(hypothesis.ids, log_prob, options)

    def _translate(
        self,
        model: ctranslate2.Translator,
        groups: Sequence[Sequence[int]],
        sources: Sequence[Source],
        max_lengths: Sequence[int],
        options: DecodingOptions,
        progress: Progress | None = None,
        never_pad: bool = False,
    ) -> dict[int, list[TokenHypothesis]]:
        """Returns the hypotheses of sources by their index.

        Args:
            model: the model.
            groups: the indices of the sources of each batch.
            sources: the sources.
            max_lengths: the largest number of tokens in an output of each source.
            options: the options.
            progress: called after each batch.
            never_pad: whether PAD is suppressed.
        """
        arguments = _arguments(options)

        def submit(rows: Sequence[int]) -> list[ctranslate2.AsyncTranslationResult]:
            max_length = max(max_lengths[i] for i in rows)
            return model.translate_batch(
                [_strings(self._source_strings, sources[i].ids) for i in rows],
                [_strings(self._target_strings, sources[i].prefix) for i in rows],
                asynchronous=True,
                suppress_sequences=[[PAD_TOKEN]] if never_pad else None,
                max_decoding_length=max_length,
                min_decoding_length=min(options.min_length, max_length),
                **arguments,
            )

        hypotheses = {}
        for rows, results in self._pool.run(groups, submit):
            for i, result in zip(rows, results, strict=True):
                hypotheses[i] = self._hypotheses(result, options)
            if progress is not None:
                progress([sources[i] for i in rows])
        return hypotheses

    def _hypotheses(
        self, result: ctranslate2.TranslationResult, options: DecodingOptions
    ) -> list[TokenHypothesis]:
        """Returns the hypotheses of one result."""
        exponent = _exponent(options)
        hypotheses: list[TokenHypothesis] = []
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            ids = tuple(map(self._target_ids.__getitem__, tokens))
            # CTranslate2 has divided it by length ** exponent.
            log_prob = score * len(ids) ** exponent
            if log_prob > _MIN_LOG_PROB or not hypotheses:
                hypotheses.append(_hypothesis(ids, log_prob, options))
        return hypotheses

    def _run_pairs(
        self,
        call: Callable[..., list[ctranslate2.AsyncScoringResult]],
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        options: DecodingOptions,
    ) -> Iterator[tuple[int, ctranslate2.ScoringResult]]:
        """Yields the index of each pair with the result of a method of the model."""

        def submit(rows: Sequence[int]) -> list[ctranslate2.AsyncScoringResult]:
            return call(
                [_strings(self._source_strings, sources[i]) for i in rows],
                [_strings(self._target_strings, targets[i]) for i in rows],
                max_input_length=0,
                asynchronous=True,
            )

        groups = batches_of_pairs(
            sources, targets, options.batch_tokens, self._pool.num_idle
        )
        for rows, results in self._pool.run(groups, submit):
            yield from zip(rows, results, strict=True)


def _arguments(options: DecodingOptions) -> dict[str, object]:
    """Returns the arguments of `translate_batch` that all batches share."""
    arguments: dict[str, object] = {
        "length_penalty": _exponent(options),
        "no_repeat_ngram_size": options.no_repeat_ngram,
        "return_end_token": True,
        "return_scores": True,
        "max_input_length": 0,
    }
    if options.sampling:
        return arguments | {
            "beam_size": 1,
            "num_hypotheses": options.n_best,
            "sampling_topk": options.top_k,
            "sampling_topp": options.top_p,
            "sampling_temperature": options.temperature,
        }
    # All hypotheses are returned, and the engine ranks them by the length penalty.
    return arguments | {
        "beam_size": options.beam_size,
        "num_hypotheses": options.beam_size,
        "patience": _PATIENCE,
    }


def _exponent(options: DecodingOptions) -> float:
    """Returns the exponent of CTranslate2's length penalty, length ** exponent."""
    exponents = {"average": 1.0, "none": 0.0}
    return exponents.get(options.length_penalty, options.alpha)


def _hypothesis(
    ids: tuple[int, ...], log_prob: float, options: DecodingOptions
) -> TokenHypothesis:
    """Returns a hypothesis with its score."""
    score = log_prob / penalty_of_tokens(len(ids), options)
    return TokenHypothesis(ids, score, log_prob)


def _strings(strings: Sequence[str], ids: Sequence[int]) -> list[str]:
    """Returns the strings of tokens without EOS, which CTranslate2 adds."""
    return [strings[token] for token in ids if token != EOS]
