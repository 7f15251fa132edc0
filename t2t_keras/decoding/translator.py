"""Translator: maps a list of texts to their translations."""

import dataclasses
import itertools
import logging
import math
import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import tensorflow as tf

from t2t_keras.arguments import checked
from t2t_keras.decoding.beam_search import (
    NOTHING,
    Hypotheses,
    beam_search,
    length_penalty,
)
from t2t_keras.decoding.constraint import (
    AllOf,
    BatchConstraint,
    Constraint,
    ForbiddenPhrases,
    ForcedPrefix,
    MinimumLength,
    NoRepeatedNgrams,
    Phrases,
    RequiredPhrases,
    protected_parts,
)
from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.decoding.options import DecodingOptions, constraint_name
from t2t_keras.decoding.sampling import sample
from t2t_keras.decoding.scoring import AlignmentHead, score_targets
from t2t_keras.decoding.texts import (
    MOST_BATCHES_AT_ONCE,
    Hypothesis,
    Score,
    batches,
    checked_pairs,
    checked_texts,
    joined_alignment,
    padded,
    prefix_ids,
    replace_repeated,
    splitting_note,
    truncated,
    word_alignment,
)
from t2t_keras.entry_points import unknown_name
from t2t_keras.errors import UserError
from t2t_keras.model.backend import require_tensorflow
from t2t_keras.problem import Alignment, Problem, is_blank
from t2t_keras.text.sentence_ends import split_sentences
from t2t_keras.text.sentences import join_outputs, split_long_text
from t2t_keras.text.token_words import words_of_tokens
from t2t_keras.text.tokenizer import PAD, Tokenizer
from t2t_keras.type_hints import NonNegative

_log = logging.getLogger(__name__)


_MOST_GRAPHS = 32  # those of further combinations of options replace the oldest

# The options that are inputs of the decoding graph, with their dtypes.
_NUMBERS = DecodingOptions.dtypes("is_tensor")

# A traced function of a batch.
_Graph = Callable[..., tuple[tf.Tensor, ...]]


class _Part(NamedTuple):
    """A source, or a part of a source that was split.

    Attributes:
        text: the text.
        ids: its ids, EOS last; none if it is blank.
        is_truncated: whether its end was cut off.
    """

    text: str
    ids: Sequence[int]
    is_truncated: bool = False


class Translator:
    """A model with its tokenizers.

        translator = Translator(problem, model, tokenizer, tokenizer)
        translator.translate(["A house.", "A dog runs."])
        translator.n_best(["A house."], 4, alpha=1.0)

    Every call takes the options of `DecodingOptions`, whose defaults come from the
    problem. The inputs are sorted by length into batches; this changes neither the
    order of the outputs nor, except for rounding, the outputs themselves.

    A blank input (see `problem.is_blank`) has the empty output, with score 0. An output
    is one line: line breaks in it become spaces. The problem's text form determines
    what inputs and outputs look like.

    With the option `split_sentences`, an input of several sentences is split into them
    (see `text.sentence_ends`), and its output is that of its sentences, joined. An
    input or a sentence of more than `max_source_length` tokens is split as well (see
    `text.sentences`). All parts are decoded like separate inputs, each with its own
    limits. Their best outputs are joined to the best output of the whole, their second
    best to the second best, and so on; there are as many as the part with the fewest
    has. The log-probability is the sum, and the score is that sum over the penalty for
    all tokens together, plus the coverage penalties. With the option `truncate`, or if
    the text form cannot join parts, what is too long is truncated instead, with a
    warning.

    Attributes:
        options: the default options of every call.
    """

    def __init__(
        self,
        problem: Problem,
        model: DecodingModel,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
    ) -> None:
        require_tensorflow()
        self.problem = problem
        self.model = model
        self.source_tokenizer = source_tokenizer
        self.target_tokenizer = target_tokenizer
        self.options = DecodingOptions.of(problem)
        self._constraint: BatchConstraint | None = None
        self._graphs: dict[Hashable, _Graph] = {}
        self._phrases: dict[Hashable, Phrases] = {}  # of the last request
        self._form = problem.text_processor

    def translate(
        self,
        texts: Sequence[str],
        prefixes: Sequence[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Returns the best output for each text; arguments are those of `n_best`."""
        return [best[0].text for best in self.n_best(texts, None, prefixes, **options)]

    @checked
    def n_best(
        self,
        texts: Iterable[str],
        n: int | None = None,
        prefixes: Iterable[str] | None = None,
        *,
        before: NonNegative = 0,
        advance: Callable[[int], None] | None = None,
        token_scores: bool = False,
        alignment: AlignmentHead | None = None,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the n best outputs for each text, best first; or n samples, as drawn.

        Outputs that reached their limit without EOS come after all that end in EOS. A
        constraint or a short limit may leave fewer than n outputs, but there is always
        one: if no output is possible, it is empty and its score is -inf. Different
        tokens may have the same text: the best of equal outputs is kept, and outputs
        of a wider beam replace the others.

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
            forced = prefix_ids(prefixes, len(texts), self.target_tokenizer)
        texts = [self._form.preprocess(text, chosen.raw) for text in texts]
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
        ids = [
            () if is_blank(text) else row for row, text in zip(ids, texts, strict=True)
        ]
        # Later parts of inputs are decoded like inputs that follow all others.
        count = len(texts)
        parts, later, sentences = self._split(ids, texts, numbers, before, chosen)
        sources = [part.ids for part in parts]
        if prefixes is not None:
            prefixes = [*prefixes, *[()] * (len(parts) - count)]
        # Those of the last request cost no work.
        key = chosen.glossary, chosen.forbidden
        phrases = self._phrases.get(key) or Phrases.of(chosen, self.target_tokenizer)
        self._phrases = {key: phrases}

        def search(lines: list[int], wider: int = 1) -> list[list[Hypothesis]]:
            """Returns the outputs for some inputs; the beam is `wider` times wider."""
            rows = [*lines, *(j for i in lines for j in later.get(i, ()))]
            lengths = [len(sources[j]) for j in rows]
            most = max(chosen.batch_tokens // wider, 1)
            groups = batches(lengths, most, batches_at_once())
            groups = [[rows[k] for k in group] for group in groups]

            def decode_batch(batch: list[int]) -> list[list[Hypothesis]]:
                return self._decode(
                    [sources[j] for j in batch],
                    [parts[j].text for j in batch],
                    None if prefixes is None else [prefixes[j] for j in batch],
                    batch,
                    phrases,
                    chosen,
                    wider,
                )

            found: dict[int, list[Hypothesis]] = {}
            executor = ThreadPoolExecutor(batches_at_once())
            try:
                decoded = executor.map(decode_batch, groups)
                for batch, lists in zip(groups, decoded, strict=True):
                    found.update(zip(batch, lists, strict=True))
                    if wider == 1:
                        advance(sum(j < count for j in batch))
            finally:
                executor.shutdown(cancel_futures=True)
            if token_scores or alignment is not None:
                self._annotate(found, sources, token_scores, alignment, chosen)
            outputs: list[list[Hypothesis]] = []
            for i in lines:
                own = [i, *later.get(i, ())]
                targets = found[i]
                if len(own) > 1:
                    of_parts = [found[j] for j in own]
                    own_parts = [parts[j].text for j in own]
                    targets = join_parts(
                        of_parts, texts[i], own_parts, chosen, self._form.tags
                    )
                is_cut = any(parts[j].is_truncated for j in own)
                outputs.append([])
                for target in targets:
                    text, is_repaired = self._form.postprocess(texts[i], target.text)
                    output = target._replace(
                        text=text,
                        is_repaired=is_repaired,
                        is_truncated=is_cut,
                        sentences=sentences.get(i, 1),
                    )
                    outputs[-1].append(output)
            return outputs

        results = [[Hypothesis("", 0.0, 0.0, ())] for _ in texts]
        outputs = search(numbers)
        if chosen.n_best > 1 and not chosen.sampling:
            replace_repeated(
                outputs,
                chosen.beam_size,
                lambda rows, wider: search([numbers[k] for k in rows], wider),
            )
        for i, best in zip(numbers, outputs, strict=True):
            results[i] = best
        return results

    def score(
        self, sources: Sequence[str], targets: Sequence[str], **options: Any
    ) -> list[Score]:
        """Returns the log-probability of each target, given its source.

        The targets have the form of the texts that `translate` returns. Sources and
        targets of more than `max_source_length` tokens are always truncated, with a
        warning: they cannot be split in the same places.

        Raises:
            UserError: sources or targets are not lists of strings, or not of equal
                length, or the text form refuses a target.
        """
        chosen = self.choose(**options)
        ids, target_ids, are_cut = self._encode_pairs(sources, targets, chosen)
        scores = zip(self._score(ids, target_ids, chosen), are_cut, strict=True)
        return [score._replace(is_truncated=is_cut) for score, is_cut in scores]

    @checked
    def align(
        self,
        sources: Iterable[str],
        targets: Iterable[str],
        head: AlignmentHead | None = None,
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
            head: the attention that is read; None: that of `AlignmentHead`.
            **options: see `DecodingOptions`.

        Returns:
            For each pair of texts, the pairs (i, j) of source word i and target word j,
            from 0, in increasing order.

        Raises:
            UserError: see `score`; or the model has no such head, or the problem's
                targets have no words to align.
        """
        head, chosen = self.alignment_head(head), self.choose(**options)
        ids, target_ids, _ = self._encode_pairs(sources, targets, chosen)
        return self._align(ids, target_ids, head, chosen)

    def alignment_head(self, head: AlignmentHead | None = None) -> AlignmentHead:
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
        return (head or AlignmentHead()).of_model(self.model.hparams)

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

    def save_tokenizers(self, path: Path) -> None:
        """Writes `source.spm` and `target.spm` (or `.subwords`) to a directory."""
        source, target = self.source_tokenizer, self.target_tokenizer
        source.save(path / f"source{source.suffix}")
        target.save(path / f"target{target.suffix}")

    def choose(self, **options: Any) -> DecodingOptions:
        """Returns the default options with the given changes.

        Raises:
            UserError: there is no such option, or its value is impossible or does not
                suit the problem.
        """
        if not options:
            return self.options
        known = vars(self.options)
        for name in options:
            if name not in known:
                message = unknown_name("decode_hparams", name, known, noun="option ")
                raise UserError(message)
        chosen = dataclasses.replace(self.options, **options)
        if chosen.raw and not self._form.splits_raw_text:
            raise UserError(
                f"raw: problem '{self.problem.name}' takes every input as it is; leave "
                "it out"
            )
        if chosen.split_sentences and not self._form.splits_long_sources:
            raise UserError(
                "split_sentences: the outputs for the sentences of an input of problem "
                f"'{self.problem.name}' cannot be joined; leave it out"
            )
        if isinstance(chosen.constraint, str):
            self.constraint(chosen.constraint)  # raises
        return chosen

    def splits(self, options: DecodingOptions) -> bool:
        """Returns whether inputs that are too long are split, and not truncated."""
        is_possible = self._form.splits_long_sources and options.max_source_length > 1
        return is_possible and not options.truncate

    def search(
        self,
        options: DecodingOptions,
        numbers: Mapping[str, tf.Tensor],
        ids: tf.Tensor,
        texts: tf.Tensor,
        phrases: Phrases,
        prefixes: tf.Tensor | None = None,
        seeds: tf.Tensor | None = None,
        copied: tf.Tensor | None = None,
    ) -> Hypotheses:
        """Decodes a batch of ids, in the graph; SavedModels contain it as well.

        Args:
            options: the options. The graph depends on the values of `constraint`,
                `length_penalty`, `no_repeat_ngram` and `sampling`, and on whether there
                are a coverage penalty and phrases.
            numbers: tensors that take the place of options of these names.
            ids: [B, S] int32, the sources, padded with PAD. A row of PAD has the empty
                output.
            texts: [B] strings, the same sources as the text form writes them.
            phrases: the glossary and the forbidden phrases.
            prefixes: [B, P] ids that the outputs have to begin with, padded with PAD.
            seeds: [B, 2] int32, the seeds of samples; only with `sampling`.
            copied: [B, M, L] int32, the target's ids, without EOS, of the protected
                parts of the sources, padded with PAD; only with `protect`.
        """
        values = {**vars(options), **numbers}
        lengths = tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
        limits = tf.maximum(lengths + values["extra_length"], 1)
        forced: int | tf.Tensor = 0
        if prefixes is not None:
            forced = tf.math.count_nonzero(prefixes, axis=1, dtype=tf.int32)
            limits = tf.maximum(limits, forced + 1)
        constraints: list[Constraint] = []
        if not isinstance(options.constraint, str):
            constraints.append(options.constraint)
        elif options.constraint != "none":
            of_batch = self.constraint(options.constraint)
            assert of_batch is not None  # it would be "none"
            # It raises limits below which no output is allowed.
            of_problem, limits = of_batch(texts, limits)
            constraints.append(of_problem)
        limits = tf.where(lengths == 0, 0, limits)
        vocab_size = self.target_tokenizer.vocab_size
        constraints.append(MinimumLength(values["min_length"], vocab_size))
        if prefixes is not None:
            constraints.append(ForcedPrefix(prefixes, vocab_size))
        if n := options.no_repeat_ngram:
            constraints.append(NoRepeatedNgrams(n, vocab_size, prefixes))
        if phrases.forbidden:
            constraints.append(ForbiddenPhrases(*phrases.forbidden))
        constraint = constraints[0] if len(constraints) == 1 else AllOf(constraints)
        if options.sampling:
            return sample(
                self.model,
                ids,
                seeds=seeds,
                max_length=limits,
                num_samples=values["n_best"],
                temperature=values["temperature"],
                top_k=values["top_k"],
                top_p=values["top_p"],
                alpha=values["alpha"],
                kind=options.length_penalty,
                constraint=constraint,
            )
        required = None
        if phrases.glossary or options.protect:
            wanted = phrases.required(texts, copied) if phrases.glossary else copied
            required = RequiredPhrases(wanted, limits, forced, vocab_size)
        return beam_search(
            self.model,
            ids,
            beam_size=values["beam_size"],
            alpha=values["alpha"],
            max_length=required.max_length if required else limits,
            n_best=values["n_best"],
            kind=options.length_penalty,
            coverage_penalty=(
                values["coverage_penalty"] if options.coverage_penalty else None
            ),
            constraint=constraint,
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
        make = self.problem.constraint
        if make is None or name != constraint_name(self.problem):
            known = dict.fromkeys((constraint_name(self.problem), "none"))
            raise UserError(
                f"constraint: problem '{self.problem.name}' has no '{name}'; the "
                f"choice is {' or '.join(known)}"
            )
        if self._constraint is None:
            self._constraint = make(self.problem, self.target_tokenizer)
        return self._constraint

    def _split(
        self,
        ids: Sequence[Sequence[int]],
        texts: Sequence[str],
        numbers: Sequence[int],
        before: int,
        options: DecodingOptions,
    ) -> tuple[list[_Part], dict[int, range], dict[int, int]]:
        """Splits sources into sentences, and those of more than `max_source_length`.

        Args:
            ids: the ids of each source.
            texts: the same sources as texts.
            numbers: the sources that are not blank.
            before: see `n_best`.
            options: the options.

        Returns:
            All parts; for each source that was split, the places of its later parts,
            which follow all sources, while its first part stands in its own place; and
            the numbers of sentences of the sources with several.
        """
        parts = [_Part(*pair) for pair in zip(texts, ids, strict=True)]
        sentences = self._sentences(texts, numbers, options)
        later: dict[int, range] = {}
        for i in numbers:
            own = [
                fitting
                for part in sentences.get(i, [parts[i]])
                for fitting in self._fit(part, before + i, options)
            ]
            if len(own) > 1:
                later[i] = range(len(parts), len(parts) + len(own) - 1)
            parts[i] = own[0]
            parts += own[1:]
        return parts, later, {i: len(found) for i, found in sentences.items()}

    def _sentences(
        self, texts: Sequence[str], numbers: Sequence[int], options: DecodingOptions
    ) -> dict[int, list[_Part]]:
        """Returns the sentences of those sources that have several.

        Args:
            texts: the sources.
            numbers: the sources that are not blank.
            options: the options.
        """
        if not options.split_sentences:
            return {}
        tags = self._form.tags
        found = ((i, split_sentences(texts[i], tags)) for i in numbers)
        several = {i: sentences for i, sentences in found if len(sentences) > 1}
        flat = list(itertools.chain(*several.values()))
        encoded = iter(self.source_tokenizer.encode_batch(flat) if flat else ())
        if several:
            _log.info(splitting_note(len(several), len(texts)))
        return {
            i: [_Part(sentence, next(encoded)) for sentence in sentences]
            for i, sentences in several.items()
        }

    def _fit(self, part: _Part, number: int, options: DecodingOptions) -> list[_Part]:
        """Splits or truncates a part of more than `max_source_length` tokens.

        Args:
            part: the part.
            number: number of the source, from 0, for messages.
            options: the options.
        """
        most = options.max_source_length
        if len(part.ids) <= most:
            return [part]
        if not self.splits(options):
            (cut,) = truncated([part.ids], most, number)
            return [_Part(part.text, cut, is_truncated=True)]
        text = tf.constant(part.text)
        rows = split_long_text(text, self._encode, most, self._form.tags).to_list()
        _log.info(
            "input %d has %d tokens; it is split into %d parts (max_source_length)",
            number + 1,
            len(part.ids),
            len(rows),
        )
        return [_Part(self.source_tokenizer.decode(row), row) for row in rows]

    def _encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the source tokenizer's ids [N, (T)] of texts [N]."""
        words = [text.decode() for text in texts.numpy()]
        ids = self.source_tokenizer.encode_batch(words)
        flat = np.array([token for row in ids for token in row], np.int32)
        return tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in ids])

    def _encode_pairs(
        self, sources: Iterable[str], targets: Iterable[str], options: DecodingOptions
    ) -> tuple[list[Sequence[int]], list[Sequence[int]], list[bool]]:
        """Returns the ids of sources and targets, and whether any was truncated.

        Raises:
            UserError: see `score`.
        """
        sources, targets = checked_pairs(sources, targets)
        sources = [self._form.preprocess(text, options.raw) for text in sources]
        ids = self.source_tokenizer.encode_batch(sources)
        wanted = map(self._form.preprocess_target, sources, targets)
        target_ids = self.target_tokenizer.encode_batch(list(wanted))
        most = options.max_source_length
        are_cut = [
            max(map(len, pair)) > most for pair in zip(ids, target_ids, strict=True)
        ]
        cut_targets = truncated(target_ids, most, kind="target")
        return truncated(ids, most), cut_targets, are_cut

    def _forced(
        self,
        key: Hashable,
        function: _Graph,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        options: DecodingOptions,
    ) -> Iterator[tuple[int, tuple[np.ndarray, ...]]]:
        """Yields the number of each pair, and the results of a function of its ids."""
        ids = tf.TensorSpec([None, None], tf.int32)
        graph = self._graph(
            key, lambda: tf.function(function, input_signature=[ids, ids])
        )
        lengths = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
        for batch in batches(lengths, options.batch_tokens):
            sides = (padded([side[i] for i in batch]) for side in (sources, targets))
            results = (tensor.numpy() for tensor in graph(*sides))
            yield from zip(batch, zip(*results, strict=True), strict=True)

    def _score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        options: DecodingOptions,
    ) -> list[Score]:
        """Returns the log-probability of each target, given its source, as ids."""
        scores = [Score(0.0, 0)] * len(sources)
        for i, (log_prob, count, each) in self._forced(
            "score",
            lambda source, target: score_targets(self.model, source, target),
            sources,
            targets,
            options,
        ):
            tokens = tuple(targets[i]), tuple(each[:count].tolist())
            scores[i] = Score(float(log_prob), int(count), *tokens)
        return scores

    def _align(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        head: AlignmentHead,
        options: DecodingOptions,
    ) -> list[Alignment]:
        """Returns the word alignment of each target with its source, as ids."""
        alignments: list[Alignment] = [()] * len(sources)
        for i, (weights,) in self._forced(
            head,
            lambda source, target: (head.weights(self.model, source, target),),
            sources,
            targets,
            options,
        ):
            alignments[i] = word_alignment(
                weights,
                words_of_tokens(self.source_tokenizer, sources[i]),
                words_of_tokens(self.target_tokenizer, targets[i]),
            )
        return alignments

    def _annotate(
        self,
        found: dict[int, list[Hypothesis]],
        sources: Sequence[Sequence[int]],
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
        phrases: Phrases,
        options: DecodingOptions,
        wider: int,
    ) -> list[list[Hypothesis]]:
        """Decodes one batch; the beam and n are `wider` times those of the options."""
        scalars = {name: getattr(options, name) for name in _NUMBERS}
        for name in ("beam_size", "n_best"):
            scalars[name] *= wider
        inputs: dict[str, Any] = {
            "numbers": {n: tf.constant(x, _NUMBERS[n]) for n, x in scalars.items()},
            "ids": padded(sources),
            "texts": tf.constant(texts),
            "phrases": phrases,
        }
        if prefixes is not None:
            inputs["prefixes"] = padded(prefixes)
        if options.sampling:
            inputs["seeds"] = np.array([(options.seed, i) for i in numbers], np.int32)
        if options.protect:
            inputs["copied"] = self._copied(texts, options)
        inputs = tf.nest.map_structure(tf.convert_to_tensor, inputs)
        key = (
            options.constraint,
            options.length_penalty,
            options.no_repeat_ngram,
            bool(options.coverage_penalty),
            *map(bool, phrases),
            *inputs,
        )
        specs = tf.nest.map_structure(
            lambda x: tf.TensorSpec([None] * x.shape.rank, x.dtype), inputs
        )
        graph = self._graph(
            key,
            lambda: tf.function(
                lambda inputs: self.search(options, **inputs),
                input_signature=[specs],
                autograph=False,
            ),
        )
        hypotheses = graph(inputs)
        found: list[list[Hypothesis]] = []
        for row in zip(*(tensor.numpy() for tensor in hypotheses), strict=True):
            targets: list[Hypothesis] = []
            for ids, score, log_prob, length in zip(*row, strict=True):
                if length or not targets:
                    tokens = tuple(ids[:length].tolist())
                    text = self.target_tokenizer.decode(tokens).replace("\n", " ")
                    target = Hypothesis(text, float(score), float(log_prob), tokens)
                    targets.append(target)
            found.append(targets)
        return found

    def _copied(self, texts: list[str], options: DecodingOptions) -> np.ndarray:
        """Returns the ids of the protected parts of texts, see `search`: [B, M, L]."""
        found = protected_parts(
            tf.constant(texts), options.protect, self.source_tokenizer.pieces
        )
        parts = [part.decode() for part in found.values.numpy()]
        ids = [ids[:-1] for ids in self.target_tokenizer.encode_batch(parts)]
        rows = tf.ragged.constant(ids, tf.int32, ragged_rank=1, inner_shape=())
        return found.with_values(rows).to_tensor(PAD).numpy()

    def _graph(self, key: Hashable, build: Callable[[], _Graph]) -> _Graph:
        """Returns the compiled function for the key; all threads share it."""
        graph = self._graphs.get(key)
        if graph is None:
            graph = self._graphs.setdefault(key, build())
            for oldest in list(self._graphs)[:-_MOST_GRAPHS]:
                self._graphs.pop(oldest, None)
        return graph


def batches_at_once() -> int:
    """Returns how many batches are decoded at the same time, each in a thread.

    A GPU decodes one batch at a time.
    """
    has_gpu = bool(tf.config.list_logical_devices("GPU"))
    return 1 if has_gpu else min(os.cpu_count() or 1, MOST_BATCHES_AT_ONCE)


def join_parts(
    parts: Sequence[Sequence[Hypothesis]],
    source: str,
    source_parts: Sequence[str],
    options: DecodingOptions,
    tags: Sequence[str] = (),
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
        alignments = [part.alignment for part in rank]
        joined.append(
            Hypothesis(
                text,
                score,
                log_prob,
                ids,
                token_log_probs=tuple(x for p in rank for x in p.token_log_probs),
                alignment=joined_alignment(
                    alignments, source, source_parts, text, texts, tags
                ),
            )
        )
    return joined
