"""The interface between `Translator` and the programs that compute a model.

A translator works with texts, and an engine with ids. To run a model in another
program, write a class with the attributes and methods of `Engine`, which need not be a
subclass of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from t2t_keras.decoding.alignment import AlignmentHead
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text_processor import TextProcessor


class Source(NamedTuple):
    """An input, or a part of an input that was split.

    Attributes:
        ids: its ids, EOS last.
        text: the same as text.
        prefix: the ids with which each hypothesis must begin.
        call_index: its index in the call, which samples depend on.
        part: its index among the parts of its input.
    """

    ids: Sequence[int]
    text: str
    prefix: Sequence[int] = ()
    call_index: int = 0
    part: int = 0


class TokenHypothesis(NamedTuple):
    """One hypothesis as ids.

    Attributes:
        ids: the tokens; the last is EOS unless the hypothesis reached its limit.
        score: the log-probability over the length penalty, plus the coverage penalty
            if there is one.
        log_prob: the log-probability.
    """

    ids: tuple[int, ...]
    score: float
    log_prob: float


class TokenScores(NamedTuple):
    """The log-probability of a target, and of each of its tokens."""

    log_prob: float
    token_log_probs: tuple[float, ...]


# Called with the sources of each batch when the batch has been searched.
Progress = Callable[[Sequence[Source]], None]


class Engine(Protocol):
    """Computes hypotheses and scores of ids. Several threads may call it at once.

    Attributes:
        problem_name: name of the problem, for messages.
        text_processor: turns texts into what the source tokenizer encodes, and outputs
            into what users read.
        source_tokenizer: the vocabulary of sources.
        target_tokenizer: the vocabulary of targets.
        options: the default options.
        divides_batches: whether one call of `search` keeps all cores busy, because it
            searches several batches in threads.
        has_fixed_beam: whether the beam size is built in, so that no wider search can
            replace duplicate outputs.
    """

    problem_name: str
    text_processor: TextProcessor
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    options: DecodingOptions
    divides_batches: bool
    has_fixed_beam: bool

    def check(self, options: DecodingOptions) -> None:
        """Refuses options that the engine does not have.

        Raises:
            UserError: there is one.
        """

    def search(
        self,
        sources: Sequence[Source],
        options: DecodingOptions,
        progress: Progress | None = None,
    ) -> list[list[TokenHypothesis]]:
        """Returns the n best hypotheses of each source, best first; or n samples.

        There may be fewer than n, but there is always one.
        """

    def score(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        options: DecodingOptions,
    ) -> list[TokenScores]:
        """Returns the log-probabilities of targets, EOS last, given their sources."""

    def next_tokens(
        self, sources: Sequence[Source], count: int, options: DecodingOptions
    ) -> list[list[int]]:
        """Returns the likeliest tokens after the prefix of each source, best first.

        PAD is never one of them. There may be fewer than `count`.

        Raises:
            UserError: the engine cannot force prefixes.
        """

    def alignment_head(self, head: AlignmentHead) -> AlignmentHead:
        """Returns the attention head to read, with the engine's defaults.

        Raises:
            UserError: the engine has no such head, or returns no attention.
        """

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        head: AlignmentHead,
        options: DecodingOptions,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Yields the index and the attention weights of each pair, in any order.

        The weights are [T, S] or larger. Row t belongs to the position that predicts
        target token t.
        """


def n_best_tokens(
    ids: np.ndarray, scores: np.ndarray, log_probs: np.ndarray, lengths: np.ndarray
) -> list[TokenHypothesis]:
    """Returns the hypotheses of a sentence, without empty ones after the best.

    Args:
        ids: [n, T], padded with PAD.
        scores: [n]
        log_probs: [n]
        lengths: [n], numbers of tokens.
    """
    hypotheses: list[TokenHypothesis] = []
    for row, score, log_prob, length in zip(
        ids, scores, log_probs, lengths, strict=True
    ):
        if length or not hypotheses:
            tokens = tuple(row[:length].tolist())
            hypotheses.append(TokenHypothesis(tokens, float(score), float(log_prob)))
    return hypotheses


def refuse_changes(
    options: DecodingOptions, fixed: DecodingOptions, names: Iterable[str], reason: str
) -> None:
    """Refuses options that differ from those that an engine has.

    Args:
        options: the options.
        fixed: the options that the engine has.
        names: the names of those that cannot be changed.
        reason: why, for the message.

    Raises:
        UserError: an option differs.
    """
    for name in names:
        if getattr(options, name) != getattr(fixed, name):
            raise UserError(f"{name}: {reason}")
