"""Inputs that are split into parts before the search, and joined after it.

With the option `split_sentences`, an input of several sentences is split into them. An
input or a sentence of more than `max_source_length` tokens is split as well, or
truncated if its outputs could not be joined.
"""

import logging
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from t2t_keras.decoding.engine import Hypothesis, Source, penalty_of_tokens
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError, quantity, require_unicode
from t2t_keras.problem import TextProcessor
from t2t_keras.text.alignment import joined_alignment
from t2t_keras.text.sentences import (
    is_blank,
    join_outputs,
    split_long_text,
    split_sentences,
)
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.vocabulary import EOS

_log = logging.getLogger(__name__)


class SplitInput(NamedTuple):
    """An input and its parts.

    Attributes:
        text: the whole input, preprocessed.
        parts: what is searched: the input itself, or its parts; nothing if it is blank.
        is_truncated: whether tokens were left out.
        sentences: the number of sentences into which it was split.
    """

    text: str
    parts: Sequence[Source] = ()
    is_truncated: bool = False
    sentences: int = 1


def splits_long_inputs(text_processor: TextProcessor, options: DecodingOptions) -> bool:
    """Returns whether inputs that are too long are split, and not truncated."""
    is_possible = text_processor.splits_long_sources and options.max_source_length > 1
    return is_possible and not options.truncate


def sentences_of(
    text: str, text_processor: TextProcessor, options: DecodingOptions
) -> list[str]:
    """Returns the sentences of an input; the input itself if it is not split."""
    if not options.split_sentences:
        return [text]
    return split_sentences(text, text_processor.tags)


class InputSplitter:
    """Splits inputs into parts that fit the model.

    Args:
        tokenizer: the source tokenizer.
        text_processor: tells whether outputs can be joined, which tags there are, and
            which words begin sentences.
        options: the decoding options.
        start_index: number of inputs in earlier calls, for messages.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        text_processor: TextProcessor,
        options: DecodingOptions,
        start_index: int = 0,
    ) -> None:
        self._tokenizer = tokenizer
        self._text_processor = text_processor
        self._options = options
        self._splits_long_inputs = splits_long_inputs(text_processor, options)
        self._start_index = start_index

    def split(
        self,
        ids: Sequence[Sequence[int]] | None,
        texts: Sequence[str],
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[SplitInput]:
        """Splits inputs.

        Args:
            ids: the ids of each input, EOS last; None: the texts are encoded.
            texts: the same as texts.
            prefixes: the ids that each output must begin with; if an input is split,
                they belong to its first part.
        """
        sentences = [self._sentences(text) for text in texts]
        sources = self._encode(sentences, ids)
        # Later parts are numbered as inputs that follow all others.
        next_index = len(texts)
        inputs: list[SplitInput] = []
        for i, text in enumerate(texts):
            if not sources[i]:
                inputs.append(SplitInput(text))
                continue
            parts: list[Source] = []
            is_truncated = False
            for sentence in sources[i]:
                parts += self._fit(sentence, self._start_index + i)
                is_long = len(sentence.ids) > self._options.max_source_length
                is_truncated |= is_long and not self._splits_long_inputs
            prefix = prefixes[i] if prefixes is not None else ()
            parts[0] = parts[0]._replace(call_index=i, prefix=prefix)
            for k, part in enumerate(parts[1:], 1):
                parts[k] = part._replace(call_index=next_index, part=k)
                next_index += 1
            inputs.append(SplitInput(text, parts, is_truncated, len(sources[i])))
        return inputs

    def _sentences(self, text: str) -> list[str]:
        """Returns the sentences of an input; none if it is blank."""
        if is_blank(text):
            return []
        return sentences_of(text, self._text_processor, self._options)

    def _encode(
        self, sentences: Sequence[Sequence[str]], ids: Sequence[Sequence[int]] | None
    ) -> list[list[Source]]:
        """Returns the sentences of each input as sources."""
        several = sum(len(row) > 1 for row in sentences)
        if several:
            _log.info(splitting_note(several, len(sentences)))
        # All are encoded in one call, which is faster.
        to_encode: list[str] = []
        for row in sentences:
            if ids is None or len(row) > 1:
                to_encode += row
        encoded = iter(self._tokenizer.encode_batch(to_encode))
        sources = []
        for i, row in enumerate(sentences):
            if ids is not None and len(row) == 1:
                sources.append([Source(ids[i], row[0])])
            else:
                sources.append([Source(next(encoded), text) for text in row])
        return sources

    def _fit(self, source: Source, index: int) -> list[Source]:
        """Splits or truncates a source of more than `max_source_length` tokens.

        Args:
            source: an input or one of its sentences.
            index: index of the input, for messages.
        """
        limit = self._options.max_source_length
        if len(source.ids) <= limit:
            return [source]
        if not self._splits_long_inputs:
            return [source._replace(ids=truncate(source.ids, limit, index))]
        encode = self._tokenizer.encode_batch
        tags = self._text_processor.tags
        rows = split_long_text(source.text, encode, limit, tags)
        _log.info(
            "input %d has %d tokens; it is split into %d parts (max_source_length)",
            index + 1,
            len(source.ids),
            len(rows),
        )
        return [Source(row, self._tokenizer.decode(row)) for row in rows]


def truncate(
    ids: Sequence[int], limit: int, index: int, noun: str = "input"
) -> Sequence[int]:
    """Truncates ids to `limit` tokens, EOS included, with a warning.

    Args:
        ids: the ids of a text, EOS last.
        limit: the option `max_source_length`.
        index: index of the text, for the warning.
        noun: what the text is, for the warning.
    """
    if len(ids) <= limit:
        return ids
    _log.warning(
        "%s %d has %d tokens; all after the first %d are left out (max_source_length)",
        noun,
        index + 1,
        len(ids),
        limit - 1,
    )
    return [*ids[: limit - 1], EOS]


def splitting_note(several: int, inputs: int) -> str:
    """Returns the sentence that says that inputs were split into sentences.

    Args:
        several: number of inputs with several sentences.
        inputs: number of all inputs.
    """
    verb = "has" if several == 1 else "have"
    return (
        f"{several:,} of {quantity(inputs, 'inputs')} {verb} several sentences, "
        "which are translated one by one; split_sentences=false turns this off"
    )


def join_hypotheses(
    split_input: SplitInput,
    parts: Sequence[Sequence[Hypothesis]],
    options: DecodingOptions,
    tags: Sequence[str] = (),
) -> list[Hypothesis]:
    """Joins the hypotheses for the parts of an input, rank by rank.

    The log-probability is the sum; the score is that sum over the penalty for all
    tokens together, plus the coverage penalties.

    Args:
        split_input: the input.
        parts: the hypotheses for each part; the result has as many as the part with the
            fewest.
        options: the decoding options.
        tags: see `TextProcessor`.
    """
    if len(parts) == 1:
        return list(parts[0])
    return [
        _join_rank(split_input, rank, options, tags)
        for rank in zip(*parts, strict=False)
    ]


def _join_rank(
    split_input: SplitInput,
    parts: Sequence[Hypothesis],
    options: DecodingOptions,
    tags: Sequence[str],
) -> Hypothesis:
    """Joins one hypothesis of each part."""
    ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] = ()
    for part in parts:
        ids += part.ids
        token_log_probs += part.token_log_probs
    log_prob = math.fsum(part.log_prob for part in parts)
    score = log_prob / penalty_of_tokens(len(ids), options)
    if options.coverage_penalty and log_prob > -math.inf:
        for part in parts:
            penalty = penalty_of_tokens(len(part.ids), options)
            score += part.score - part.log_prob / penalty
    texts = [part.text for part in parts]
    text = join_outputs(texts)
    alignment = joined_alignment(
        [part.alignment for part in parts],
        split_input.text,
        [source.text for source in split_input.parts],
        text,
        texts,
        tags,
    )
    return Hypothesis(
        text, score, log_prob, ids, token_log_probs=token_log_probs, alignment=alignment
    )


def checked_texts(texts: Iterable[str], name: str = "texts") -> list[str]:
    """Checks texts and returns them as a list.

    Args:
        texts: the argument to check.
        name: the argument's name, for error messages.

    Raises:
        UserError: `texts` is one string or not iterable, or an element is not a string
            or has a lone surrogate.
    """
    if isinstance(texts, str | bytes):
        raise UserError(
            f"{name} must be a list of strings, not one string; pass [text]"
        )
    try:
        texts = list(texts)
    except TypeError:
        cls = type(texts).__name__
        raise UserError(f"{name} must be a list of strings, not {cls}") from None
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise UserError(
                f"{name}[{i}] must be a string (str), not {type(text).__name__}"
            )
        if not text.isascii():
            require_unicode(f"{name}[{i}]", text)
    return texts


def checked_pairs(
    sources: Iterable[str], targets: Iterable[str]
) -> tuple[list[str], list[str]]:
    """Checks the two sides of pairs of texts and returns them as lists.

    Raises:
        UserError: see `checked_texts`; or they are not of equal length.
    """
    sources = checked_texts(sources, "sources")
    targets = checked_texts(targets, "targets")
    if len(sources) != len(targets):
        raise UserError(
            f"{quantity(len(sources), 'sources')} but "
            f"{quantity(len(targets), 'targets')}: line by line they must be pairs"
        )
    return sources, targets
