"""Translator: maps a list of texts to their translations."""

import dataclasses
import logging
import math
import os
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.alignment import (
    AlignmentHead,
    joined_alignment,
    word_alignment,
    word_starts,
)
from t2t_keras.decoding.batching import MOST_BATCHES_AT_ONCE, batches, padded
from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.loop import NOTHING, Hypotheses, length_penalty
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.scoring import Score, score_targets
from t2t_keras.decoding.search import Search
from t2t_keras.decoding.texts import checked_pairs, checked_texts, is_blank
from t2t_keras.model.backend import require_tensorflow
from t2t_keras.model.transformer import Transformer
from t2t_keras.option import UserError, nearest
from t2t_keras.problem import Alignment, Problem
from t2t_keras.text.protected import find_protected, protected_pattern
from t2t_keras.text.sentences import join_outputs, split_long_text
from t2t_keras.text.tokenizer import EOS, PAD, Tokenizer, words_of_tokens

_log = logging.getLogger(__name__)


# A traced function of a batch.
_Graph = Callable[..., tuple[tf.Tensor, ...]]


class Hypothesis(NamedTuple):
    """One output.

    Attributes:
        text: the output as the problem's text form writes it, in one line.
        score: the log-probability over the length penalty, plus the coverage penalty
            if there is one.
        log_prob: the log-probability.
        ids: the token ids; the last is EOS unless the output reached its limit. The
            output for an input that was split has those of its parts, one after
            another.
        is_repaired: whether the text form had to repair the model's output.
        token_log_probs: the log-probability of each token, if asked for; in float32
            their sum is `log_prob`, except for rounding.
        alignment: the word alignment, if asked for; see `Translator.n_best`.
    """

    text: str
    score: float
    log_prob: float
    ids: tuple[int, ...]
    is_repaired: bool = False
    token_log_probs: tuple[float, ...] = ()
    alignment: Alignment = ()

    @property
    def tokens(self) -> int:
        """Number of tokens, EOS included."""
        return len(self.ids)


class Translator:
    """A model with its tokenizers.

        translator = Translator(problem, model, tokenizer, tokenizer)
        translator.translate(["A house.", "A dog runs."])
        translator.n_best(["A house."], 4, alpha=1.0)

    Every call takes the options of `DecodingOptions`, whose defaults come from the
    problem. The inputs are sorted by length into batches; this changes neither the
    order of the outputs nor, except for rounding, the outputs themselves.

    A blank input (only white space) has the empty output, with score 0. An output is
    one line: line breaks in it become spaces. The problem's text form determines what
    inputs and outputs look like.

    An input of more than `max_source_length` tokens is split (see `text.sentences`)
    and its parts are decoded like separate inputs, each with its own limits. Their best
    outputs are joined to the best output of the whole, their second best to the second
    best, and so on; there are as many as the part with the fewest has. The
    log-probability is the sum, and the score is that sum over the penalty for all
    tokens together, plus the coverage penalties. With the option `truncate`, or if the
    text form cannot join parts, the input is truncated instead, with a warning.

    Attributes:
        options: the default options of every call.
        search: the decoding of a batch of ids, in the graph.
    """

    def __init__(
        self,
        problem: Problem,
        model: Transformer | Ensemble,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
    ) -> None:
        require_tensorflow()
        self.problem = problem
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.options = DecodingOptions.of(problem)
        self.search = Search(problem, model, target_tokenizer)
        self._graphs: dict[Hashable, _Graph] = {}
        self._patterns: dict[tuple[str, ...], str] = {}  # of the option `protect`
        self._form = problem.text_form

    def translate(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Returns the best output for each text; arguments are those of `n_best`."""
        return [best[0].text for best in self.n_best(texts, None, prefixes, **options)]

    def n_best(
        self,
        texts: Sequence[str],
        n: int | None = None,
        prefixes: Sequence[str] | None = None,
        *,
        before: int = 0,
        advance: Callable[[int], None] | None = None,
        token_scores: bool = False,
        alignment: AlignmentHead | None = None,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the n best outputs for each text, best first; or n samples, as drawn.

        Outputs that reached their limit without EOS come after all that end in EOS. A
        constraint or a short limit may leave fewer than n outputs, but there is always
        one: if no output is possible, it is empty and its score is -inf.

        Args:
            texts: the inputs.
            n: the option `n_best`.
            prefixes: the text that each output has to begin with; may be "". If the
                input is split, the prefix is for the first part.
            before: number of inputs in earlier calls, added to the input numbers in
                warnings.
            advance: called after each batch with the number of its inputs.
            token_scores: whether the outputs get `token_log_probs`. They are computed
                by teacher forcing after the search, as in `score`.
            alignment: the attention from which the outputs get an `alignment`: the
                pairs (i, j) of source word i and target word j, from 0, of the texts
                that the model reads and writes; see `align`.
            **options: see `DecodingOptions`.

        Raises:
            UserError: an option's value is impossible or does not suit the problem;
                texts or prefixes are not lists of strings, or not of equal length; the
                model has no such head, or the problem's outputs have no words to align.
        """
        if n is not None:
            options["n_best"] = n
        chosen = self.choose(**options)
        texts = checked_texts(texts)
        forced = None
        if prefixes is not None:
            prefixes = checked_texts(prefixes, "prefixes")
            if len(prefixes) != len(texts):
                raise UserError(f"{len(texts)} texts but {len(prefixes)} prefixes")
            encoded = self.target_tokenizer.encode_batch(prefixes)
            forced = [ids[:-1] for ids in encoded]  # without EOS
        texts = [self._form.source_text(text, chosen.raw) for text in texts]
        ids = self.source_tokenizer.encode_batch(texts)
        return self.decode(
            ids,
            texts,
            forced,
            before=before,
            advance=advance,
            token_scores=token_scores,
            alignment=alignment,
            **options,
        )

    def decode(
        self,
        ids: Sequence[Sequence[int]],
        texts: Sequence[str],
        prefixes: Sequence[Sequence[int]] | None = None,
        *,
        before: int = 0,
        advance: Callable[[int], None] | None = None,
        token_scores: bool = False,
        alignment: AlignmentHead | None = None,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Does what `n_best` does, for sources that are encoded already.

        Args:
            ids: the ids of each source, EOS last.
            texts: the same sources as texts, which text form and constraint need.
            prefixes: the ids that each output has to begin with.
            before: see `n_best`.
            advance: see `n_best`.
            token_scores: see `n_best`.
            alignment: see `n_best`.
            **options: see `DecodingOptions`.
        """
        chosen = self.choose(**options)
        if alignment is not None:
            alignment = self.alignment_head(alignment)
        advance = advance or (lambda inputs: None)
        numbers = [i for i, text in enumerate(texts) if not is_blank(text)]
        advance(len(texts) - len(numbers))
        # Later parts of long inputs are decoded like inputs that follow all others.
        count, lines = len(texts), numbers
        ids, parts, later = self._split(ids, texts, numbers, before, chosen)
        numbers = [*numbers, *range(count, len(parts))]
        if prefixes is not None:
            prefixes = [*prefixes, *[()] * (len(parts) - count)]
        sources = self._cut([ids[i] for i in numbers], numbers, before, chosen)
        lengths = [len(source) for source in sources]
        groups = batches(lengths, chosen.batch_tokens, batches_at_once())

        def decode_batch(batch: list[int]) -> Hypotheses:
            rows = [numbers[i] for i in batch]
            return self._decode(
                [sources[i] for i in batch],
                [parts[i] for i in rows],
                None if prefixes is None else [prefixes[i] for i in rows],
                rows,
                chosen,
            )

        found: dict[int, list[Hypothesis]] = {}
        executor = ThreadPoolExecutor(batches_at_once())
        try:
            decoded = executor.map(decode_batch, groups)
            for batch, hypotheses in zip(groups, decoded, strict=True):
                for row, i in enumerate(batch):
                    found[numbers[i]] = self._targets(hypotheses, row)
                advance(sum(numbers[i] < count for i in batch))
        finally:
            executor.shutdown(cancel_futures=True)
        if token_scores or alignment is not None:
            known = dict(zip(numbers, sources, strict=True))
            self._annotate(found, known, token_scores, alignment, chosen)
        results = [[Hypothesis("", 0.0, 0.0, ())] for _ in texts]
        for i in lines:
            targets = found[i]
            if i in later:
                others = (found[j] for j in later[i])
                sides = texts[i], [parts[i], *(parts[j] for j in later[i])]
                targets = _joined([targets, *others], *sides, chosen)
            results[i] = [self._output(texts[i], target) for target in targets]
        return results

    def score(
        self, sources: Sequence[str], targets: Sequence[str], **options: Any
    ) -> list[Score]:
        """Returns the log-probability of each target, given its source.

        The targets have the form of the texts that `translate` returns. A source of
        more than `max_source_length` tokens is always truncated, with a warning: its
        target cannot be split in the same places.

        Raises:
            UserError: sources or targets are not lists of strings, or not of equal
                length, or the text form refuses a target.
        """
        chosen = self.choose(**options)
        source_ids, target_ids = self._encode_pairs(sources, targets, chosen)
        return self._score(source_ids, target_ids, chosen)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        head: AlignmentHead = AlignmentHead(),  # noqa: B008, it is immutable
        **options: Any,
    ) -> list[Alignment]:
        """Returns the word alignment of each target with its source.

        Every target token is aligned with the source token to which the position that
        predicts it attends most, EOS left out; two words are aligned if any of their
        tokens are. Words are what white space separates in the texts that the model
        reads and writes, so a language without spaces has to be given as words.

        Args:
            sources: the sources; see `score`.
            targets: the targets, in the form of the texts that `translate` returns.
            head: the attention that is read.
            **options: see `DecodingOptions`.

        Returns:
            For each pair of texts, the pairs (i, j) of source word i and target word j,
            from 0, in increasing order.

        Raises:
            UserError: see `score`; or the model has no such head, or the problem's
                targets have no words to align.
        """
        head, chosen = self.alignment_head(head), self.choose(**options)
        pairs = self._encode_pairs(sources, targets, chosen)
        return self._align(*pairs, head, chosen)

    def alignment_head(self, head: AlignmentHead) -> AlignmentHead:
        """Returns the head of a word alignment, with the default layer put in.

        Raises:
            UserError: the model has no such layer or head, or the words of the
                problem's outputs cannot be aligned.
        """
        if not self._form.aligns_outputs:
            raise UserError(
                f"alignment: the words of the outputs of problem "
                f"'{self.problem.name}' cannot be aligned; leave it out"
            )
        return head.of_model(self.model.hparams)

    def with_compute_dtype(self, dtype: str) -> Self:
        """Returns a copy, with the same options, that computes in another dtype.

        Args:
            dtype: the hyper-parameter `compute_dtype`.
        """
        copy = type(self)(
            self.problem,
            self.model.with_compute_dtype(dtype),
            self.source_tokenizer,
            self.target_tokenizer,
        )
        copy.options = self.options
        return copy

    def choose(self, **options: Any) -> DecodingOptions:
        """Returns the default options with the given changes.

        Raises:
            UserError: there is no such option, or its value is impossible or does not
                suit the problem.
        """
        known = vars(self.options)
        for name in options:
            if name not in known:
                raise UserError(f"there is no option '{name}'{nearest(name, known)}")
        chosen = dataclasses.replace(self.options, **options)
        if chosen.raw and not self._form.splits_raw_text:
            raise UserError(
                f"raw: problem '{self.problem.name}' takes every input as it is; leave "
                "it out"
            )
        if isinstance(chosen.constraint, str):
            _ = self.search.constraint(chosen.constraint)  # raises
        return chosen

    def splits(self, options: DecodingOptions) -> bool:
        """Returns whether inputs that are too long are split, and not truncated."""
        is_possible = self._form.splits_long_sources and options.max_source_length > 1
        return is_possible and not options.truncate

    def _split(
        self,
        ids: Sequence[Sequence[int]],
        texts: Sequence[str],
        numbers: Sequence[int],
        before: int,
        options: DecodingOptions,
    ) -> tuple[list[Sequence[int]], list[str], dict[int, range]]:
        """Splits sources of more than `max_source_length` tokens.

        Args:
            ids: the ids of each source.
            texts: the same sources as texts.
            numbers: the sources that are not blank.
            before: see `n_best`.
            options: the options.

        Returns:
            The ids and the texts of all parts; and for each source that was split, the
            places of its later parts, which follow all sources. Its first part stands
            in its own place.
        """
        ids, texts, later = list(ids), list(texts), dict[int, range]()
        most = options.max_source_length
        for i in numbers if self.splits(options) else ():
            if len(ids[i]) <= most:
                continue
            text = tf.constant(texts[i])
            parts = split_long_text(text, self._encode, most, self._form.tags)
            parts = parts.to_list()
            _log.info(
                "input %d has %d tokens; it is split into %d parts (max_source_length)",
                before + i + 1,
                len(ids[i]),
                len(parts),
            )
            decoded = [self.source_tokenizer.decode(part) for part in parts]
            later[i] = range(len(ids), len(ids) + len(parts) - 1)
            ids[i], texts[i] = parts[0], decoded[0]
            ids += parts[1:]
            texts += decoded[1:]
        return ids, texts, later

    def _encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the source tokenizer's ids [N, (T)] of texts [N]."""
        words = [text.decode() for text in texts.numpy()]
        ids = self.source_tokenizer.encode_batch(words)
        flat = np.array([token for row in ids for token in row], np.int32)
        return tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in ids])

    def _cut(
        self,
        sources: Sequence[Sequence[int]],
        numbers: Sequence[int],
        before: int,
        options: DecodingOptions,
    ) -> list[Sequence[int]]:
        """Truncates the ids of each source to `max_source_length`, with a warning."""
        most = options.max_source_length
        for number, ids in zip(numbers, sources, strict=True):
            if len(ids) > most:
                _log.warning(
                    "input %d has %d tokens; all after the first %d are left out "
                    "(max_source_length)",
                    before + number + 1,
                    len(ids),
                    most - 1,
                )
        return [ids if len(ids) <= most else [*ids[: most - 1], EOS] for ids in sources]

    def _encode_pairs(
        self, sources: Sequence[str], targets: Sequence[str], options: DecodingOptions
    ) -> tuple[list[Sequence[int]], list[list[int]]]:
        """Returns the ids of sources, truncated if too long, and of their targets.

        Raises:
            UserError: see `score`.
        """
        sources, targets = checked_pairs(sources, targets)
        sources = [self._form.source_text(text, options.raw) for text in sources]
        ids = self.source_tokenizer.encode_batch(sources)
        source_ids = self._cut(ids, range(len(sources)), 0, options)
        wanted = map(self._form.target_text, sources, targets)
        return source_ids, self.target_tokenizer.encode_batch(list(wanted))

    def _pair_batches(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        options: DecodingOptions,
    ) -> Iterator[tuple[list[int], np.ndarray, np.ndarray]]:
        """Yields the numbers of the pairs in each batch, and their padded ids."""
        pairs = zip(sources, targets, strict=True)
        lengths = [max(len(source), len(target)) for source, target in pairs]
        for batch in batches(lengths, options.batch_tokens):
            yield (
                batch,
                padded([sources[i] for i in batch]),
                padded([targets[i] for i in batch]),
            )

    def _score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        options: DecodingOptions,
    ) -> list[Score]:
        """Returns the log-probability of each target, given its source, as ids."""
        results = [Score(0.0, 0)] * len(sources)
        graph = self._graph("score", self._build_scoring)
        for batch, *ids in self._pair_batches(sources, targets, options):
            scores = zip(*(tensor.numpy() for tensor in graph(*ids)), strict=True)
            for i, (log_prob, count, each) in zip(batch, scores, strict=True):
                tokens = tuple(targets[i]), tuple(each[:count].tolist())
                results[i] = Score(float(log_prob), int(count), *tokens)
        return results

    def _align(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        head: AlignmentHead,
        options: DecodingOptions,
    ) -> list[Alignment]:
        """Returns the word alignment of each target with its source, as ids."""
        results: list[Alignment] = [()] * len(sources)
        graph = self._graph(head, lambda: self._build_attention(head))
        for batch, *ids in self._pair_batches(sources, targets, options):
            (maps,) = graph(*ids)
            for i, weights in zip(batch, maps.numpy(), strict=True):
                results[i] = word_alignment(
                    weights,
                    words_of_tokens(self.source_tokenizer, sources[i]),
                    words_of_tokens(self.target_tokenizer, targets[i]),
                )
        return results

    def _annotate(
        self,
        found: dict[int, list[Hypothesis]],
        sources: Mapping[int, Sequence[int]],
        token_scores: bool,
        head: AlignmentHead | None,
        options: DecodingOptions,
    ) -> None:
        """Puts `token_log_probs` and `alignment` into hypotheses; see `n_best`.

        Args:
            found: the hypotheses for each source.
            sources: the ids of each source.
            token_scores: see `n_best`.
            head: the head of the alignment; None: none is computed.
            options: the options.
        """
        places = [(i, k) for i in found for k in range(len(found[i]))]
        ids = [sources[i] for i, _ in places], [found[i][k].ids for i, k in places]
        scores = self._score(*ids, options) if token_scores else None
        alignments = self._align(*ids, head, options) if head is not None else None
        for number, (i, k) in enumerate(places):
            if scores:
                each = scores[number].token_log_probs
                found[i][k] = found[i][k]._replace(token_log_probs=each)
            if alignments:
                found[i][k] = found[i][k]._replace(alignment=alignments[number])

    def _decode(
        self,
        sources: list[Sequence[int]],
        texts: list[str],
        prefixes: list[Sequence[int]] | None,
        numbers: list[int],
        options: DecodingOptions,
    ) -> Hypotheses:
        """Decodes one batch; returns NumPy arrays."""
        static = DecodingOptions.names("is_static")
        graph = self._graph(
            (*(getattr(options, name) for name in static), prefixes is not None),
            lambda: self._build_decoding(options, prefixes is not None),
        )
        hypotheses = graph(
            {
                "source": padded(sources),
                "texts": tf.constant(texts),
                "prefix": padded(prefixes or [()] * len(sources)),
                "seed": np.array([(options.seed, i) for i in numbers], np.int32),
                "copied": self._copied(texts, options),
            },
            {
                name: getattr(options, name)
                for name in DecodingOptions.names("is_tensor")
            },
        )
        return Hypotheses(*(tensor.numpy() for tensor in hypotheses))

    def protected(self, texts: tf.Tensor, options: DecodingOptions) -> tf.RaggedTensor:
        """Returns what the option `protect` protects in texts [B]: [B, (M)]."""
        kinds = options.protect
        if kinds not in self._patterns:
            pieces = self.source_tokenizer.pieces
            self._patterns[kinds] = protected_pattern(kinds, pieces)
        return find_protected(texts, self._patterns[kinds])

    def _copied(self, texts: list[str], options: DecodingOptions) -> np.ndarray:
        """Returns the ids of what is protected in texts, see `Search`: [B, M, L]."""
        if not options.protect:
            return np.zeros((len(texts), 0, 0), np.int32)
        found = self.protected(tf.constant(texts), options)
        parts = [part.decode() for part in found.values.numpy()]
        ids = [ids[:-1] for ids in self.target_tokenizer.encode_batch(parts)]
        rows = tf.ragged.constant(ids, tf.int32, ragged_rank=1, inner_shape=())
        return found.with_values(rows).to_tensor(PAD).numpy()

    def _targets(self, hypotheses: Hypotheses, row: int) -> list[Hypothesis]:
        """Returns the targets for the source in one row of the batch."""
        targets: list[Hypothesis] = []
        for ids, score, log_prob, length in zip(
            *(array[row] for array in hypotheses), strict=True
        ):
            if length or not targets:
                tokens = tuple(ids[:length].tolist())
                text = self.target_tokenizer.decode(tokens).replace("\n", " ")
                targets.append(Hypothesis(text, float(score), float(log_prob), tokens))
        return targets

    def _output(self, source: str, target: Hypothesis) -> Hypothesis:
        """Returns a target in the form that the user sees."""
        text, is_repaired = self._form.output_text(source, target.text)
        return target._replace(text=text, is_repaired=is_repaired)

    def _graph(self, key: Hashable, build: Callable[[], _Graph]) -> _Graph:
        """Returns the compiled function for the key; all threads share it."""
        if key not in self._graphs:
            self._graphs.setdefault(key, build())
        return self._graphs[key]

    def _build_decoding(self, options: DecodingOptions, has_prefixes: bool) -> _Graph:
        """Returns the compiled function that decodes a batch of any shape."""
        batch_spec = {
            "source": tf.TensorSpec([None, None], tf.int32),
            "texts": tf.TensorSpec([None], tf.string),
            "prefix": tf.TensorSpec([None, None], tf.int32),
            "seed": tf.TensorSpec([None, 2], tf.int32),
            "copied": tf.TensorSpec([None, None, None], tf.int32),
        }
        number_spec = {
            name: tf.TensorSpec([], dtype)
            for name, dtype in DecodingOptions.dtypes("is_tensor").items()
        }

        @tf.function(input_signature=[batch_spec, number_spec], autograph=False)
        def decode(
            batch: dict[str, tf.Tensor], numbers: dict[str, tf.Tensor]
        ) -> Hypotheses:
            return self.search(
                options,
                numbers,
                batch["source"],
                batch["texts"],
                prefixes=batch["prefix"] if has_prefixes else None,
                seeds=batch["seed"],
                copied=batch["copied"] if options.protect else None,
            )

        return decode

    def _build_scoring(self) -> _Graph:
        """Returns the compiled function that scores a batch of pairs."""
        ids = tf.TensorSpec([None, None], tf.int32)
        return tf.function(
            lambda source, target: score_targets(self.model, source, target),
            input_signature=[ids, ids],
        )

    def _build_attention(self, head: AlignmentHead) -> _Graph:
        """Returns the compiled function of the attention that an alignment reads."""
        ids = tf.TensorSpec([None, None], tf.int32)
        return tf.function(
            lambda source, target: (head.weights(self.model, source, target),),
            input_signature=[ids, ids],
        )


def batches_at_once() -> int:
    """Returns how many batches are decoded at the same time, each in a thread.

    A GPU decodes one batch at a time.
    """
    has_gpu = bool(tf.config.list_logical_devices("GPU"))
    return 1 if has_gpu else min(os.cpu_count() or 1, MOST_BATCHES_AT_ONCE)


def _joined(
    parts: Sequence[Sequence[Hypothesis]],
    source: str,
    source_parts: Sequence[str],
    options: DecodingOptions,
) -> list[Hypothesis]:
    """Joins the targets for the parts of a source, rank by rank.

    There are as many as the part with the fewest targets has.
    """

    def penalty(length: int) -> float:
        alpha, kind = options.alpha, options.length_penalty
        return float(length_penalty(length, alpha, kind))

    joined = []
    for rank in zip(*parts, strict=False):
        texts = [part.text for part in rank]
        text = join_outputs(tf.ragged.constant([texts]))[0].numpy().decode()
        ids = tuple(token for part in rank for token in part.ids)
        log_prob = math.fsum(part.log_prob for part in rank)
        score = log_prob / penalty(len(ids))
        if options.coverage_penalty and log_prob > NOTHING:
            score += sum(p.score - p.log_prob / penalty(len(p.ids)) for p in rank)
        starts = word_starts(source, source_parts), word_starts(text, texts)
        alignments = [part.alignment for part in rank]
        joined.append(
            Hypothesis(
                text,
                score,
                log_prob,
                ids,
                token_log_probs=tuple(x for p in rank for x in p.token_log_probs),
                alignment=joined_alignment(alignments, *starts),
            )
        )
    return joined
