"""A CTranslate2 model that translates texts, without TensorFlow."""

import collections
import dataclasses
import functools
import importlib.metadata
import itertools
import logging
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import ctranslate2
import numpy as np

from t2t_keras import registry
from t2t_keras.arguments import checked
from t2t_keras.data.json_files import write_json
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.decoding.texts import (
    Hypothesis,
    Score,
    batches,
    checked_pairs,
    checked_texts,
    joined_alignment,
    prefix_ids,
    replace_repeated,
    splitting_note,
    truncated,
    word_alignment,
)
from t2t_keras.entry_points import unknown_name
from t2t_keras.errors import UserError, first_line
from t2t_keras.export.formats import (
    SETTINGS,
    ExportSettings,
    checksums,
    require_checksum,
    require_intact,
)
from t2t_keras.problem import Problem, TextProcessor, is_blank
from t2t_keras.text.sentence_ends import split_sentences
from t2t_keras.text.token_words import words_of_tokens
from t2t_keras.text.tokenizer import EOS, PAD, Tokenizer
from t2t_keras.text.tokenizers import load_tokenizer
from t2t_keras.type_hints import NonNegative, Positive

from .long_texts import join_outputs, split_long_text

_log = logging.getLogger(__name__)

PAD_TOKEN, EOS_TOKEN = "<pad>", "</s>"
Forced: TypeAlias = Literal["log_probs", "attention"]  # fields of `Found`

_WIDTH = 4096  # source tokens times beam size of a batch; larger ones are slower
_PATIENCE = 1.5  # with 1, about one output in 100 is not `Translator`'s; 2 is no better
_IMPOSSIBLE = -1e9  # suppressed tokens have lower log-probabilities


class _Source(NamedTuple):
    """An encoded input.

    Attributes:
        text: the text that the source tokenizer encodes.
        parts: the ids of its parts, EOS last; empty if it is blank.
        texts: the texts of its parts, also of what was cut off.
        is_truncated: whether an end was cut off.
        sentences: into how many sentences it was split.
    """

    text: str
    parts: Sequence[Sequence[int]] = ()
    texts: Sequence[str] = ()
    is_truncated: bool = False
    sentences: int = 1


class Found(NamedTuple):
    """A hypothesis for an encoded source.

    Attributes:
        ids: its tokens; the last is EOS unless it reached its limit.
        log_probs: the log-probability of each token. After the search it has one
            element, their sum.
        attention: [T, S], the attention weights for word alignment, if asked for.
    """

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    attention: tuple[Sequence[float], ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CTranslate2Settings(ExportSettings):
    """The settings of an export for CTranslate2.

    Attributes:
        tags: words before sources that are one token; None: the text form is that of
            the registered problem.
        positions: the number of tokens in the longest output.
        compute_type: CTranslate2's type of computation on the machine that wrote it.
    """

    tags: list[str] | None = None
    positions: Positive
    compute_type: str


class CTranslate2Translator:
    """A model that `export_ctranslate2` wrote, with the methods of `Translator`.

        translator = t2t_keras.load("served/ct2")
        translator.translate(["A house.", "A dog runs."])
        translator.n_best(["A house."], 4, alpha=1.0, token_scores=True)
        translator.score(["A house."], ["Ein Haus."])

    Inputs are converted, split and truncated as by `Translator`, and outputs have the
    same limits. In float32 greedy search gives the same outputs. Other searches differ:

    - Beam search ends when 1.5 times `beam_size` hypotheses are finished, and only the
      `beam_size` best continuations of a step can finish one. `Translator` searches
      while a better one is possible, and considers twice as many continuations.
    - `no_repeat_ngram` also excludes sequences that are repeated in the source.
    - A seed gives the same samples each time, but not those of `Translator`.

    `coverage_penalty`, `glossary`, `protect`, `forbidden` and constraints are refused.

    Args:
        export_dir: the directory of the export.

    Attributes:
        options: the default decoding options, chosen at export.
        settings: the content of `t2t_export.json`, as attributes.
        compute_type: CTranslate2's type of computation, such as `int8_float32`.

    Raises:
        UserError: the directory was not written by `t2t export`, or is damaged.
    """

    def __init__(self, export_dir: str | Path) -> None:
        path = Path(export_dir)
        require_intact(path)
        self._sums = dict(checksums(path))
        self._contents: dict[str, bytes] | None = None  # see `_files`
        settings = CTranslate2Settings.read(path)
        if settings is None:
            raise UserError(
                f"--export_dir: {path} has no {SETTINGS}; export the model again"
            )
        self.settings = settings
        self.options = DecodingOptions.of_recorded(settings.decoding, path / SETTINGS)
        if self.settings.tags is None:
            self._form = registry.problem(self.settings.problem).text_processor
        else:
            self._form = TextProcessor(tags=tuple(self.settings.tags))
        self.source_tokenizer, self.target_tokenizer = (
            load_tokenizer(next(path.glob(f"{side}.*")))
            for side in ("source", "target")
        )
        self._strings = {
            "source": token_strings(self.source_tokenizer),
            "target": token_strings(self.target_tokenizer),
        }
        self._target_ids = {token: i for i, token in enumerate(self._strings["target"])}
        # One thread for each batch is as fast as what CTranslate2 recommends for files,
        # and is not slowed down by other processes. OMP_NUM_THREADS changes it.
        self._threads = int(os.environ.get("OMP_NUM_THREADS") or 1)
        self._workers = max(len(os.sched_getaffinity(0)) // self._threads, 1)
        self._calls: set[object] = set()  # calls of `_run` that have not ended
        self._path = str(path)
        self._model = self._load(self._workers)
        self.compute_type = self._model.compute_type
        if self.compute_type != self.settings.compute_type:
            _log.warning(
                "%s was verified in %s, but this machine computes in %s",
                path,
                self.settings.compute_type,
                self.compute_type,
            )

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
        alignment: bool = False,
        **options: Any,
    ) -> list[list[Hypothesis]]:
        """Returns the n best outputs for each text, best first; or n samples.

        Args:
            texts: the inputs.
            n: the option `n_best`.
            prefixes: the text that each output has to begin with; may be "".
            before: number of inputs in earlier calls, added to the input numbers in
                warnings.
            advance: called after each batch with the number of its inputs.
            token_scores: whether the outputs get `token_log_probs`.
            alignment: whether the outputs get an `alignment`, from the attention that
                `t2t align` reads.
            **options: see `DecodingOptions`.

        Raises:
            UserError: an option's value is impossible or not supported by CTranslate2;
                texts or prefixes are not lists of strings, or not of equal length.
        """
        chosen = self.choose(**options | ({} if n is None else {"n_best": n}))
        sources = self._sources(checked_texts(texts), chosen, before)
        forced: list[list[int]] = [[] for _ in sources]
        if prefixes is not None:
            forced = prefix_ids(prefixes, len(sources), self.target_tokenizer)
            for i, ids in enumerate(forced):
                if len(ids) >= self.settings.positions:
                    raise UserError(
                        f"prefixes[{i}] has {len(ids)} tokens; with this export a "
                        f"prefix can have at most {self.settings.positions - 1}"
                    )
        advance = advance or (lambda inputs: None)
        numbers = [i for i, source in enumerate(sources) if source.parts]
        advance(len(sources) - len(numbers))

        def search(rows: list[int], wider: int) -> list[list[Hypothesis]]:
            places = [(i, k) for i in rows for k in range(len(sources[i].parts))]
            found = iter(
                self.search(
                    [sources[i].parts[k] for i, k in places],
                    chosen,
                    [[] if k else forced[i] for i, k in places],
                    wider,
                    lambda done: advance(
                        sum(not places[j][1] for j in done) * (wider == 1)
                    ),
                    token_scores,
                    alignment,
                )
            )
            return [
                self._joined(
                    sources[i], [next(found) for _ in sources[i].parts], chosen
                )
                for i in rows
            ]

        outputs = search(numbers, 1)
        if chosen.n_best > 1 and not chosen.sampling:
            replace_repeated(
                outputs,
                chosen.beam_size,
                lambda rows, wider: search([numbers[k] for k in rows], wider),
            )
        results = [[Hypothesis("", 0.0, 0.0, ())] for _ in sources]
        for i, best in zip(numbers, outputs, strict=True):
            results[i] = best
        return results

    def score(
        self, sources: Sequence[str], targets: Sequence[str], **options: Any
    ) -> list[Score]:
        """Returns the log-probability of each target, given its source.

        The targets have the form of the texts that `translate` returns. Sources and
        targets of more than `max_source_length` tokens are truncated, with a warning.

        Raises:
            UserError: sources or targets are not lists of strings, or not of equal
                length.
        """
        chosen = self.choose(**options)
        sources, targets = checked_pairs(sources, targets)
        read = [self._form.preprocess(text, chosen.raw) for text in sources]
        wanted = list(map(self._form.preprocess_target, read, targets))
        ids = self.source_tokenizer.encode_batch(read)
        target_ids = self.target_tokenizer.encode_batch(wanted)
        most = chosen.max_source_length
        pairs = truncated(ids, most)
        goals = truncated(target_ids, most, kind="target")
        found = self._force("log_probs", pairs, goals, chosen)
        return [
            Score(
                math.fsum(row),
                len(goal),
                tuple(goal),
                row,
                is_truncated=max(lengths) > most,
            )
            for goal, row, *lengths in zip(
                goals, found, map(len, ids), map(len, target_ids), strict=True
            )
        ]

    def choose(self, **options: Any) -> DecodingOptions:
        """Returns the default options with the given changes.

        Raises:
            UserError: there is no such option, its value is impossible, or the export
                does not support it.
        """
        known = vars(self.options)
        for name in options:
            if name not in known:
                message = unknown_name("decode_hparams", name, known, noun="option ")
                raise UserError(message)
        chosen = dataclasses.replace(self.options, **options)
        require_possible(chosen)
        if chosen.raw and not self._form.splits_raw_text:
            raise UserError(
                f"raw: problem '{self.settings.problem}' takes every input as it is; "
                "leave it out"
            )
        if chosen.split_sentences and not self._form.splits_long_sources:
            raise UserError(
                "split_sentences: the outputs for the sentences of an input of problem "
                f"'{self.settings.problem}' cannot be joined; leave it out"
            )
        longest = chosen.max_source_length + chosen.extra_length
        if longest > self.settings.positions:
            raise UserError(
                f"max_source_length and extra_length: their sum, {longest}, is more "
                f"than the {self.settings.positions} positions of the export; export "
                "the model again with these options"
            )
        return chosen

    def alignment_head(self) -> bool:
        """Returns the value that `n_best` takes as `alignment`.

        Raises:
            UserError: the words of the problem's outputs cannot be aligned.
        """
        if not self._form.aligns_outputs:
            raise UserError(
                "alignment: the words of the outputs of problem "
                f"'{self.settings.problem}' cannot be aligned; leave it out"
            )
        return True

    def search(
        self,
        sources: Sequence[Sequence[int]],
        options: DecodingOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
        wider: int = 1,
        advance: Callable[[Sequence[int]], None] = lambda done: None,
        token_scores: bool = False,
        attention: bool = False,
    ) -> list[list[Found]]:
        """Returns the n best hypotheses of encoded sources, or samples.

        Args:
            sources: the ids of each source, EOS last.
            options: what `choose` returned.
            prefixes: the ids that each hypothesis has to begin with.
            wider: a factor for beam size and n.
            advance: called after each batch with the indices of its sources.
            token_scores: whether each token gets a log-probability.
            attention: whether the hypotheses get their attention weights.
        """
        forced = prefixes or [()] * len(sources)
        limits = [
            max(len(ids) + options.extra_length, len(prefix) + 1)
            for ids, prefix in zip(sources, forced, strict=True)
        ]
        lengths = [len(ids) for ids in sources]
        results: list[list[Found]] = [[]] * len(sources)
        model, arguments = self._model, self._arguments(options, wider)
        if options.sampling:
            # A thread is seeded at its first draw: a new model has new threads.
            ctranslate2.set_random_seed(options.seed)
            model = self._load(1, self._files())

        def decode(groups: list[list[int]], never_pad: bool) -> Iterator[list[int]]:
            def submit(rows: list[int]) -> list[Any]:
                longest = max(limits[i] for i in rows)
                return model.translate_batch(
                    [self._tokens("source", sources[i]) for i in rows],
                    [self._tokens("target", forced[i]) for i in rows],
                    asynchronous=True,
                    suppress_sequences=[[PAD_TOKEN]] if never_pad else None,
                    max_decoding_length=longest,
                    min_decoding_length=min(options.min_length, longest),
                    **arguments,
                )

            for rows, found in self._run(groups, submit):
                for i, result in zip(rows, found, strict=True):
                    results[i] = self._hypotheses(result, arguments["length_penalty"])
                yield rows

        most = options.batch_tokens // wider
        if not options.sampling:
            most = min(most, _WIDTH // arguments["beam_size"])
        most = max(most, 1)
        # Samples depend on the batches, so these must not depend on other calls.
        threads = self._workers if options.sampling else self._idle()
        for rows in decode(batches(lengths, most, threads), options.sampling):
            advance(rows)
        inexact = [*range(len(sources))]
        if options.sampling:
            for i, limit in enumerate(limits):
                results[i] = [x._replace(ids=x.ids[:limit]) for x in results[i]]
        else:
            # A batch is searched with the largest limit of its sources, and PAD may be
            # chosen. Sources with outputs beyond their own limit or with PAD are
            # searched again, in batches of equal limits and with PAD suppressed, which
            # changes the probabilities of the other tokens.
            again = [
                i
                for i, limit in enumerate(limits)
                if any(len(x.ids) > limit or PAD in x.ids for x in results[i])
            ]
            again.sort(key=limits.__getitem__)
            for _, same in itertools.groupby(again, limits.__getitem__):
                rows = list(same)
                groups = batches([lengths[i] for i in rows], most, self._idle())
                collections.deque(
                    decode([[rows[k] for k in group] for group in groups], True), 0
                )
            is_changed = options.min_length or options.no_repeat_ngram or any(forced)
            inexact = inexact if is_changed else again
        self._annotate("log_probs", sources, results, inexact, options)
        if not options.sampling:
            for found in results:
                found.sort(key=lambda x: (x.ids[-1] != EOS, -_score(x, options)))
        results = [found[: options.n_best * wider] for found in results]
        if token_scores:
            self._annotate("log_probs", sources, results, range(len(sources)), options)
        if attention:
            self._annotate("attention", sources, results, range(len(sources)), options)
        return results

    def _arguments(self, options: DecodingOptions, wider: int) -> dict[str, Any]:
        """Returns the arguments of `translate_batch` that all batches share."""
        kinds = {"average": 1.0, "none": 0.0}
        arguments: dict[str, Any] = {
            "length_penalty": kinds.get(options.length_penalty, options.alpha),
            "no_repeat_ngram_size": options.no_repeat_ngram,
            "return_end_token": True,
            "return_scores": True,
            "max_input_length": 0,
        }
        if options.sampling:
            return arguments | {
                "beam_size": 1,
                "num_hypotheses": options.n_best * wider,
                "sampling_topk": options.top_k,
                "sampling_topp": options.top_p,
                "sampling_temperature": options.temperature,
            }
        # All are returned, and `search` ranks them by the length penalty.
        beams = options.beam_size * wider
        widths = {"beam_size": beams, "num_hypotheses": beams}
        return arguments | widths | {"patience": _PATIENCE}

    def _hypotheses(self, result: Any, exponent: float) -> list[Found]:
        """Returns the hypotheses of one result."""
        found: list[Found] = []
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            ids = tuple(map(self._target_ids.__getitem__, tokens))
            # CTranslate2 has divided it by length ** exponent.
            log_prob = score * len(ids) ** exponent
            if log_prob > _IMPOSSIBLE or not found:
                found.append(Found(ids, (log_prob,)))
        return found

    def _annotate(
        self,
        kind: Forced,
        sources: Sequence[Sequence[int]],
        results: list[list[Found]],
        rows: Iterable[int],
        options: DecodingOptions,
    ) -> None:
        """Sets a field of the hypotheses of some sources, by teacher forcing."""
        places = [(i, k) for i in rows for k in range(len(results[i]))]
        ids = [sources[i] for i, _ in places], [results[i][k].ids for i, k in places]
        values = self._force(kind, *ids, options)
        for (i, k), value in zip(places, values, strict=True):
            results[i][k] = results[i][k]._replace(**{kind: value})

    def _force(
        self,
        kind: Forced,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        options: DecodingOptions,
    ) -> list[tuple[Any, ...]]:
        """Returns the log-probability or the attention weights [S] of each token.

        The weights come from greedy search with the whole target as a prefix: in beam
        search CTranslate2 4.8 mixes up the weights of different hypotheses. They do not
        include EOS of the source.
        """
        call: Callable[..., list[Any]] = self._model.score_batch
        if kind == "attention":
            call = functools.partial(
                self._model.translate_batch,
                beam_size=1,
                max_decoding_length=max(map(len, targets), default=1),
                return_end_token=True,
                return_attention=True,
            )

        def submit(rows: list[int]) -> list[Any]:
            # CTranslate2 adds EOS, even to targets that have reached their limit.
            pairs = (
                [self._tokens(side, ids[i]) for i in rows]
                for side, ids in (("source", sources), ("target", targets))
            )
            return call(*pairs, max_input_length=0, asynchronous=True)

        results: list[tuple[Any, ...]] = [()] * len(sources)
        lengths = [max(map(len, pair)) for pair in zip(sources, targets, strict=True)]
        groups = batches(lengths, options.batch_tokens, self._idle())
        for rows, found in self._run(groups, submit):
            for i, result in zip(rows, found, strict=True):
                values = (
                    result.log_probs if kind == "log_probs" else result.attention[0]
                )
                results[i] = tuple(values[: len(targets[i])])
        return results

    def _run(
        self, groups: list[list[int]], submit: Callable[[list[int]], list[Any]]
    ) -> Iterator[tuple[list[int], list[Any]]]:
        """Yields each batch with its results while later batches are computed."""
        call = object()
        self._calls.add(call)
        waiting: collections.deque[list[Any]] = collections.deque()
        try:
            for i, rows in enumerate(groups):
                # One more than there are idle threads. CTranslate2 runs the batches of
                # all calls in order, so another call would wait for a longer queue.
                most = max(self._workers - len(self._calls) + 2, 1)
                waiting += map(submit, groups[i + len(waiting) : i + most])
                yield rows, [result.result() for result in waiting.popleft()]
        finally:
            self._calls.remove(call)

    def _idle(self) -> int:
        """Returns the number of idle threads, at least 1.

        In `t2t serve`, other calls may use the rest. CTranslate2's `num_active_batches`
        is not used: it may still count a batch that has ended, so the outputs of the
        same calls could differ by rounding.
        """
        return max(self._workers - len(self._calls), 1)

    def _tokens(self, side: str, ids: Sequence[int]) -> list[str]:
        """Returns the strings of tokens without EOS, which CTranslate2 adds."""
        strings = self._strings[side]
        return [strings[token] for token in ids if token != EOS]

    def _sources(
        self, texts: Sequence[str], options: DecodingOptions, before: int
    ) -> list[_Source]:
        """Encodes inputs, as sentences; splits or truncates those that are too long."""
        texts = [self._form.preprocess(text, options.raw) for text in texts]
        sentences = [[text] for text in texts]
        if options.split_sentences:
            sentences = [split_sentences(text, self._form.tags) for text in texts]
        most = options.max_source_length
        may_split = self._form.splits_long_sources and most > 1 and not options.truncate
        encode = self.source_tokenizer.encode_batch
        encoded = iter(encode(list(itertools.chain(*sentences))))
        found: list[_Source] = []
        for number, (text, own) in enumerate(zip(texts, sentences, strict=True)):
            rows = [next(encoded) for _ in own]
            if is_blank(text):
                found.append(_Source(text))
                continue
            parts: list[Sequence[int]] = []
            part_texts: list[str] = []
            is_cut = False
            for sentence, ids in zip(own, rows, strict=True):
                if len(ids) <= most or not may_split:
                    parts += truncated([ids], most, before + number)
                    part_texts.append(sentence)
                    is_cut |= len(ids) > most
                else:
                    split = split_long_text(sentence, encode, most, self._form.tags)
                    parts += split
                    part_texts += map(self.source_tokenizer.decode, split)
            found.append(_Source(text, parts, part_texts, is_cut, len(own)))
        if several := sum(source.sentences > 1 for source in found):
            _log.info(splitting_note(several, len(texts)))
        return found

    def _joined(
        self, source: _Source, found: list[list[Found]], options: DecodingOptions
    ) -> list[Hypothesis]:
        """Returns the outputs for an input, given the hypotheses for its parts."""
        outputs = []
        for rank in zip(*found, strict=False):
            texts = [
                self.target_tokenizer.decode(part.ids).replace("\n", " ")
                for part in rank
            ]
            joined = join_outputs(texts)
            text, is_repaired = self._form.postprocess(source.text, joined)
            whole = Found(
                tuple(token for part in rank for token in part.ids),
                tuple(x for part in rank for x in part.log_probs),
            )
            output = Hypothesis(
                text,
                _score(whole, options),
                math.fsum(whole.log_probs),
                whole.ids,
                is_repaired,
                whole.log_probs if len(whole.log_probs) == len(whole.ids) else (),
                is_truncated=source.is_truncated,
                sentences=source.sentences,
            )
            if rank[0].attention:
                alignment = joined_alignment(
                    [
                        word_alignment(
                            np.array(part.attention),
                            words_of_tokens(self.source_tokenizer, ids),
                            words_of_tokens(self.target_tokenizer, part.ids),
                        )
                        for part, ids in zip(rank, source.parts, strict=True)
                    ],
                    source.text,
                    source.texts,
                    joined,
                    texts,
                    self._form.tags,
                )
                output = output._replace(alignment=alignment)
            outputs.append(output)
        return outputs

    def _files(self) -> dict[str, bytes]:
        """Returns the files of the model, which are read once, for samples.

        Raises:
            UserError: one has changed since the translator was made.
        """
        if self._contents is None:
            path = Path(self._path)
            names = ["config.json", "model.bin"]
            names += [file.name for file in path.glob("*vocabulary.json")]
            try:
                contents = {name: (path / name).read_bytes() for name in names}
            except OSError as error:
                raise UserError(
                    f"--export_dir: cannot read {error.filename}: {error.strerror}; "
                    "copy or export the model again"
                ) from None
            for name, content in contents.items():
                require_checksum(path, name, content, self._sums)
            self._contents = contents
        return self._contents

    def _load(self, workers: int, files: dict[str, bytes] | None = None) -> Any:
        """Loads the model, to compute `workers` batches at once.

        Args:
            workers: number of batches.
            files: the contents of the files; None: they are read.
        """
        try:
            return ctranslate2.Translator(
                self._path,
                inter_threads=workers,
                intra_threads=self._threads,
                files=files,
            )
        except (RuntimeError, ValueError) as error:
            raise UserError(
                f"--export_dir: CTranslate2 cannot load {self._path}: "
                f"{first_line(error)}; export the model again"
            ) from None


def _score(found: Found, options: DecodingOptions) -> float:
    """Returns the log-probability over the length penalty; see `beam_search`."""
    length, log_prob = len(found.ids), math.fsum(found.log_probs)
    if options.length_penalty == "gnmt":
        return log_prob / ((5 + length) / 6) ** options.alpha
    if options.length_penalty == "power":
        return log_prob / length**options.alpha
    return log_prob / length if options.length_penalty == "average" else log_prob


def write_settings(
    path: Path, problem: Problem, options: DecodingOptions, **others: Any
) -> None:
    """Writes the settings that `CTranslate2Translator` reads.

    Args:
        path: the directory of the export.
        problem: the problem of the model.
        options: the default options.
        **others: further settings.
    """
    # None: the text form is taken from the registered problem.
    is_plain = type(problem.text_processor) is TextProcessor
    settings = {
        "version": importlib.metadata.version("t2t_keras"),
        "problem": problem.name,
        "languages": problem.languages,
        "tags": problem.text_processor.tags if is_plain else None,
        "decoding": options.recorded(),
        "positions": options.max_source_length + options.extra_length,
        "compute_type": ctranslate2.Translator(str(path)).compute_type,
    }
    write_json(path / SETTINGS, settings | others)


def require_possible(options: DecodingOptions) -> None:
    """Refuses options that CTranslate2 does not support.

    Raises:
        UserError: one of them is set.
    """
    names = ("coverage_penalty", "glossary", "protect", "forbidden")
    chosen = [name for name in names if getattr(options, name)]
    if options.constraint != "none":
        chosen.append("constraint")
    if chosen:
        raise UserError(
            f"{chosen[0]}: CTranslate2 does not support it; use the run or an export "
            "with --format savedmodel"
        )


def token_strings(tokenizer: Tokenizer) -> list[str]:
    """Returns a distinct, non-empty string for every id of a vocabulary."""
    strings = [PAD_TOKEN, EOS_TOKEN]
    known = {*strings, ""}
    for token, piece in enumerate(tokenizer.pieces[len(strings) :], len(strings)):
        if piece in known:
            piece = f"<{token}>"
        while piece in known:
            piece = f"<{piece}>"
        strings.append(piece)
        known.add(piece)
    return strings
