"""Translator: maps a list of texts to their translations, with any engine.

A text is preprocessed, encoded, and split if it is too long. The engine searches the
parts in batches of similar length. Their hypotheses are decoded and joined; duplicates
are removed, and the others postprocessed.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from t2t_keras.checking import NonNegative, checked
from t2t_keras.decoding.engine import (
    AlignmentHead,
    Engine,
    Hypothesis,
    Score,
    Source,
    TokenHypothesis,
    replace_duplicates,
)
from t2t_keras.decoding.inputs import (
    InputSplitter,
    SplitInput,
    checked_pairs,
    checked_texts,
    join_hypotheses,
    truncate,
)
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError, flags_as_arguments, quantity
from t2t_keras.options import require_known
from t2t_keras.problem import TextProcessor
from t2t_keras.text.alignment import Alignment, word_alignment, words_of_tokens
from t2t_keras.text.tokenizer import Tokenizer


class _Request(NamedTuple):
    """What a call asks for, besides its texts; see `Translator.n_best`."""

    options: DecodingOptions
    token_scores: bool
    alignment: AlignmentHead | None
    advance: Callable[[int], None] | None


class _Pairs(NamedTuple):
    """Encoded sources and targets, truncated."""

    sources: list[Sequence[int]]
    targets: list[Sequence[int]]
    are_truncated: list[bool]


class Translator:
    """An engine with its tokenizers, as a function of texts.

        translator = t2t_keras.load("runs/my_run")  # or an export
        translator.translate(["A house.", "A dog runs."])
        translator.n_best(["A house."], 4, alpha=1.0)
        translator.score(["A house."], ["Ein Haus."])

    Every call takes the options of `DecodingOptions`; an engine refuses those that it
    lacks. The inputs are sorted by length into batches; this changes neither the order
    of the outputs nor, except for rounding, the outputs themselves.

    A blank input (see `is_blank`) has the empty output, with score 0. An output
    is one line: line breaks in it become spaces. The problem's text processor
    determines what inputs and outputs look like.

    With the option `split_sentences`, an input of several sentences is split into them
    (see `text.sentences`), and its output is their outputs, joined. An input or
    a sentence of more than `max_source_length` tokens is split as well (see
    `split_long_text`). All parts are decoded like separate inputs, each with its own
    limits. Their best outputs are joined to the best output of the whole, their second
    best to the second best, and so on; there are as many as the part with the fewest
    has (see `inputs.join_hypotheses`). With the option `truncate`, or if the text
    processor cannot join parts, what is too long is truncated instead, with a warning.

    Args:
        engine: computes the model.

    Attributes:
        engine: the same.
        options: the default options of every call.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.options = engine.options

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.engine.problem_name!r}, engine={self.engine_name!r})"

    @property
    def engine_name(self) -> str:
        """The name of the library that computes the model, as for `--engine`."""
        return self.engine.name

    @property
    def source_tokenizer(self) -> Tokenizer:
        """The vocabulary of sources."""
        return self.engine.source_tokenizer

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The vocabulary of targets."""
        return self.engine.target_tokenizer

    @property
    def text_processor(self) -> TextProcessor:
        """The conversion between users' texts and tokenizers' texts."""
        return self.engine.text_processor

    def translate(
        self,
        texts: Iterable[str],
        prefixes: Iterable[str] | None = None,
        **options: Any,
    ) -> list[str]:
        """Returns the best output for each text, with the arguments of `n_best`."""
        return [best[0].text for best in self.n_best(texts, None, prefixes, **options)]

    @checked
    def n_best(
        self,
        texts: Iterable[str],
        n: int | None = None,
        prefixes: Iterable[str] | None = None,
        *,
        start_index: NonNegative = 0,
        advance: Callable[[int], None] | None = None,
        token_scores: bool = False,
        alignment: AlignmentHead | None = None,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the n best outputs for each text, best first; or n samples, as drawn.

        Outputs that reached their limit without EOS come after all that end in EOS. A
        constraint or a short limit may leave fewer than n outputs, but there is always
        one: if no output is possible, it is empty and its score is -inf. Duplicates are
        replaced by outputs of a wider beam.

        Args:
            texts: the inputs.
            n: the option `n_best`.
            prefixes: the text that each output must begin with; may be "". If the
                input is split, the prefix is for the first part.
            start_index: number of inputs in earlier calls, added to the input numbers
                in warnings.
            advance: called after each batch with the number of its inputs, 0 if they
                were searched before. What it raises ends the call.
            token_scores: whether the outputs get `token_log_probs`. They are computed
                by teacher forcing after the search, as in `score`.
            alignment: the attention from which the outputs get an `alignment`: the
                pairs (i, j) of source word i and target word j, from 0, of the texts
                that the model reads and writes; see `align`.
            **options: see `DecodingOptions`.

        Raises:
            UserError: an option's value is impossible, does not suit the problem, or is
                not supported by the engine; texts or prefixes are not lists of strings,
                or not of equal length; the model has no such head, or the problem's
                outputs have no words to align.
        """
        if n is not None:
            options["n_best"] = n
        resolved = self.choose(**options)
        texts = checked_texts(texts)
        prefix_ids = None
        if prefixes is not None:
            prefix_ids = self.encode_prefixes(prefixes, len(texts))
        preprocess = self.text_processor.preprocess
        texts = [preprocess(text, resolved.raw) for text in texts]
        request = _Request(resolved, token_scores, alignment, advance)
        return self._n_best(None, texts, prefix_ids, start_index, request)

    def n_best_of_ids(
        self,
        ids: Sequence[Sequence[int]],
        texts: Sequence[str],
        prefixes: Sequence[Sequence[int]] | None = None,
        *,
        start_index: int = 0,
        advance: Callable[[int], None] | None = None,
        token_scores: bool = False,
        alignment: AlignmentHead | None = None,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Does what `n_best` does, for inputs that are encoded already.

        Args:
            ids: the ids of each input, EOS last.
            texts: the same inputs, preprocessed by the text processor.
            prefixes: the ids that each output must begin with.
            start_index: see `n_best`.
            advance: see `n_best`.
            token_scores: see `n_best`.
            alignment: see `n_best`.
            **options: see `DecodingOptions`.
        """
        request = _Request(self.choose(**options), token_scores, alignment, advance)
        return self._n_best(ids, texts, prefixes, start_index, request)

    def score(
        self, sources: Iterable[str], targets: Iterable[str], **options: Any
    ) -> list[Score]:
        """Returns the log-probability of each target, given its source.

        The targets have the form of the texts that `translate` returns. Sources and
        targets of more than `max_source_length` tokens are always truncated, with a
        warning: they cannot be split in the same places.

        Raises:
            UserError: sources or targets are not lists of strings, or not of equal
                length, or the text processor refuses a target.
        """
        resolved = self.choose(**options)
        pairs = self._encode_pairs(sources, targets, resolved)
        scores = self.engine.score(pairs.sources, pairs.targets, resolved)
        results = []
        for target, score, is_truncated in zip(
            pairs.targets, scores, pairs.are_truncated, strict=True
        ):
            ids = tuple(target)
            log_prob, token_log_probs = score
            results.append(
                Score(log_prob, len(ids), ids, token_log_probs, is_truncated)
            )
        return results

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
        tokens are. Words are separated by ASCII white space in the texts that the model
        reads and writes; put spaces between the words of languages without spaces.

        Args:
            sources: the sources; see `score`.
            targets: the targets, in the form of the texts that `translate` returns.
            head: the attention that is read; None: the default of `AlignmentHead`.
            **options: see `DecodingOptions`.

        Returns:
            For each pair of texts, the pairs (i, j) of source word i and target word j,
            from 0, in increasing order.

        Raises:
            UserError: see `score`; or the model has no such head, or the problem's
                targets have no words to align.
        """
        head = self.alignment_head(head)
        resolved = self.choose(**options)
        pairs = self._encode_pairs(sources, targets, resolved)
        return self._align(pairs.sources, pairs.targets, head, resolved)

    def alignment_head(self, head: AlignmentHead | None = None) -> AlignmentHead:
        """Returns the head of a word alignment, with the default layer put in.

        Raises:
            UserError: the model has no such layer or head, or the words of the
                problem's outputs cannot be aligned.
        """
        if not self.text_processor.aligns_outputs:
            raise UserError(
                f"alignment: the words of the outputs of problem "
                f"'{self.engine.problem_name}' cannot be aligned; leave it out"
            )
        return self.engine.alignment_head(head or AlignmentHead())

    def choose(self, **options: Any) -> DecodingOptions:
        """Returns the default options with the given changes.

        Raises:
            UserError: there is no such option, or its value is impossible, does not
                suit the problem, or is not supported by the engine.
        """
        if not options:
            return self.options
        try:
            require_known(DecodingOptions, options, context="decode_hparams")
        except UserError as error:
            raise UserError(flags_as_arguments(str(error))) from None
        resolved = dataclasses.replace(self.options, **options)
        problem_name = self.engine.problem_name
        if resolved.raw and not self.text_processor.splits_raw_text:
            raise UserError(
                f"raw: problem '{problem_name}' takes every input as it is; leave it "
                "out"
            )
        if resolved.split_sentences and not self.text_processor.splits_long_sources:
            raise UserError(
                "split_sentences: the outputs for the sentences of an input of problem "
                f"'{problem_name}' cannot be joined; leave it out"
            )
        self.engine.check(resolved)
        return resolved

    def encode_prefixes(self, prefixes: Iterable[str], count: int) -> list[list[int]]:
        """Returns the ids with which outputs must begin, as `n_best_of_ids` takes them.

        Args:
            prefixes: the texts, see `n_best`.
            count: the number of inputs.

        Raises:
            UserError: the prefixes are not as many strings.
        """
        texts = checked_texts(prefixes, "prefixes")
        if len(texts) != count:
            prefix_count = quantity(len(texts), "prefixes", "prefix")
            raise UserError(f"{quantity(count, 'texts')} but {prefix_count}")
        # The next word's token brings its own space.
        rows = self.target_tokenizer.encode_batch([text.rstrip() for text in texts])
        return [ids[:-1] for ids in rows]  # without EOS

    def _encode_pairs(
        self, sources: Iterable[str], targets: Iterable[str], options: DecodingOptions
    ) -> _Pairs:
        """Encodes and truncates sources and targets.

        Raises:
            UserError: see `score`.
        """
        sources, targets = checked_pairs(sources, targets)
        text_processor = self.text_processor
        sources = [text_processor.preprocess(text, options.raw) for text in sources]
        targets = list(map(text_processor.preprocess_target, sources, targets))
        source_ids = self.source_tokenizer.encode_batch(sources)
        target_ids = self.target_tokenizer.encode_batch(targets)
        limit = options.max_source_length
        pairs = _Pairs([], [], [])
        for i, (source, target) in enumerate(zip(source_ids, target_ids, strict=True)):
            pairs.sources.append(truncate(source, limit, i))
            pairs.targets.append(truncate(target, limit, i, "target"))
            pairs.are_truncated.append(max(len(source), len(target)) > limit)
        return pairs

    def _n_best(
        self,
        ids: Sequence[Sequence[int]] | None,
        texts: Sequence[str],
        prefixes: Sequence[Sequence[int]] | None,
        start_index: int,
        request: _Request,
    ) -> list[list[Hypothesis]]:
        """Does what `n_best_of_ids` does; without ids, the texts are encoded."""
        options = request.options
        if request.alignment is not None:
            head = self.alignment_head(request.alignment)
            request = request._replace(alignment=head)
        splitter = InputSplitter(
            self.source_tokenizer, self.text_processor, options, start_index
        )
        inputs = splitter.split(ids, texts, prefixes)
        # Blank inputs have nothing to search.
        rows = [i for i, split_input in enumerate(inputs) if split_input.parts]
        if request.advance is not None:
            request.advance(len(inputs) - len(rows))
        outputs = self._search([inputs[i] for i in rows], request)
        if options.n_best > 1 and not options.sampling:
            replace_duplicates(
                outputs,
                options.beam_size,
                lambda duplicates, beam_multiplier: self._search(
                    [inputs[rows[k]] for k in duplicates], request, beam_multiplier
                ),
            )
        results = [[Hypothesis("", 0.0, 0.0, ())] for _ in inputs]
        for i, hypotheses in zip(rows, outputs, strict=True):
            results[i] = hypotheses
        return results

    def _search(
        self, inputs: Sequence[SplitInput], request: _Request, beam_multiplier: int = 1
    ) -> list[list[Hypothesis]]:
        """Returns the outputs for inputs.

        Args:
            inputs: the inputs, none of them blank.
            request: what the call asks for.
            beam_multiplier: a factor for the beam size and the number of outputs.
        """
        options = request.options
        if beam_multiplier > 1:
            options = dataclasses.replace(
                options,
                beam_size=options.beam_size * beam_multiplier,
                n_best=options.n_best * beam_multiplier,
                batch_tokens=max(options.batch_tokens // beam_multiplier, 1),
                jit_compile="false",  # for few inputs
            )

        def progress(batch: Sequence[Source]) -> None:
            if request.advance is not None:
                count = sum(source.part == 0 for source in batch)
                # A wider beam searches inputs that have been counted; it may be ended.
                request.advance(count if beam_multiplier == 1 else 0)

        sources = [part for split_input in inputs for part in split_input.parts]
        n_best_lists = self.engine.search(sources, options, progress)
        hypotheses = iter(self._decode(sources, n_best_lists, request))
        outputs = []
        for split_input in inputs:
            parts = [next(hypotheses) for _ in split_input.parts]
            tags = self.text_processor.tags
            joined = join_hypotheses(split_input, parts, options, tags)
            outputs.append(self._postprocess(split_input, joined))
        return outputs

    def _decode(
        self,
        sources: Sequence[Source],
        n_best_lists: Sequence[Sequence[TokenHypothesis]],
        request: _Request,
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses for sources as texts, with what the call asks for."""
        decode = self.target_tokenizer.decode
        results: list[list[Hypothesis]] = []
        # The ids of each hypothesis and of its source.
        source_ids: list[Sequence[int]] = []
        target_ids: list[Sequence[int]] = []
        for source, hypotheses in zip(sources, n_best_lists, strict=True):
            row = []
            for ids, score, log_prob in hypotheses:
                text = decode(ids).replace("\n", " ")
                row.append(Hypothesis(text, score, log_prob, ids))
                source_ids.append(source.ids)
                target_ids.append(ids)
            results.append(row)
        options = request.options
        if request.token_scores:
            scores = iter(self.engine.score(source_ids, target_ids, options))
            for row in results:
                for k, hypothesis in enumerate(row):
                    token_log_probs = next(scores).token_log_probs
                    row[k] = hypothesis._replace(token_log_probs=token_log_probs)
        if request.alignment is not None:
            head = request.alignment
            alignments = iter(self._align(source_ids, target_ids, head, options))
            for row in results:
                for k, hypothesis in enumerate(row):
                    row[k] = hypothesis._replace(alignment=next(alignments))
        return results

    def _align(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        head: AlignmentHead,
        options: DecodingOptions,
    ) -> list[Alignment]:
        """Returns the word alignment of each target with its source, as ids."""
        alignments: list[Alignment] = [()] * len(sources)
        for i, weights in self.engine.attention(sources, targets, head, options):
            source_words = words_of_tokens(self.source_tokenizer, sources[i])
            target_words = words_of_tokens(self.target_tokenizer, targets[i])
            alignments[i] = word_alignment(weights, source_words, target_words)
        return alignments

    def _postprocess(
        self, split_input: SplitInput, hypotheses: Sequence[Hypothesis]
    ) -> list[Hypothesis]:
        """Returns the outputs for an input as users read them."""
        outputs = []
        for hypothesis in hypotheses:
            text, is_repaired = self.text_processor.postprocess(
                split_input.text, hypothesis.text
            )
            output = hypothesis._replace(
                text=text,
                is_repaired=is_repaired,
                is_truncated=split_input.is_truncated,
                sentences=split_input.sentences,
            )
            outputs.append(output)
        return outputs
