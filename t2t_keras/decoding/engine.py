"""The interface of engines, and what they return: hypotheses, scores, alignments.

Long outputs have lower log-probabilities than short ones. Dividing them by a length
penalty makes outputs of different lengths comparable.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, TypeVar

from t2t_keras.decoding.options import MAX_BEAM_SIZE, DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.hparam import GUIDED_HEAD, HParams
from t2t_keras.problem import LengthPenalty, TextProcessor
from t2t_keras.text.alignment import Alignment
from t2t_keras.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf


class AlignmentHead(NamedTuple):
    """The encoder-decoder attention from which word alignments are read.

    Attributes:
        layer: number of the decoder layer, from 1; None: `HParams.alignment_layer`.
        head: number of the head, from 1; None: the mean of the layer's heads, or, if
            no layer is given either, the head that guided alignment has trained.
    """

    layer: int | None = None
    head: int | None = None

    def of_model(self, hparams: HParams) -> Self:
        """Returns the head with the defaults that it has in a model.

        Raises:
            UserError: the model has no such layer or head.
        """
        counts = {"layer": hparams.decoder_layers, "head": hparams.num_heads}
        for name, count in counts.items():
            index = getattr(self, name)
            if index is not None and not 1 <= index <= count:
                raise UserError(
                    f"alignment: the model has no {name} {index}; give a number from "
                    f"1 to {count}"
                )
        if self.layer is not None:
            return self
        trained = GUIDED_HEAD if hparams.guided_alignment else None
        return self._replace(layer=hparams.alignment_layer, head=self.head or trained)


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
        name: name of the library that computes the model, as for `--engine`.
        problem_name: name of the problem, for messages.
        text_processor: turns texts into what the source tokenizer encodes, and outputs
            into what users read.
        source_tokenizer: the vocabulary of sources.
        target_tokenizer: the vocabulary of targets.
        options: the default options.
        divides_batches: whether one call of `search` keeps all cores busy, because it
            searches several batches in threads.
    """

    name: str
    problem_name: str
    text_processor: TextProcessor
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer
    options: DecodingOptions
    divides_batches: bool

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
    ) -> Iterator[tuple[int, "np.ndarray"]]:
        """Yields the index and the attention weights of each pair, in any order.

        The weights are [T, S] or larger. Row t belongs to the position that predicts
        target token t.
        """


def n_best_tokens(
    ids: "np.ndarray",
    scores: "np.ndarray",
    log_probs: "np.ndarray",
    lengths: "np.ndarray",
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


class Hypothesis(NamedTuple):
    """One output.

    Attributes:
        text: the output as the problem's text processor writes it, in one line.
        score: the log-probability over the length penalty, plus the coverage penalty
            if there is one.
        log_prob: the log-probability; NaN if the engine does not return it.
        ids: the token ids; the last is EOS unless the output reached its limit. The
            ids of an input that was split are the ids of its parts, joined.
        is_repaired: whether the text processor had to repair the model's output.
        token_log_probs: the log-probability of each token, if asked for; in float32
            their sum is `log_prob`, except for rounding.
        alignment: the word alignment, if asked for; see `Translator.n_best`.
        is_truncated: whether the input was truncated.
        sentences: the number of sentences into which `split_sentences` split the input.
    """

    text: str
    score: float
    log_prob: float = math.nan
    ids: tuple[int, ...] = ()
    is_repaired: bool = False
    token_log_probs: tuple[float, ...] = ()
    alignment: Alignment = ()
    is_truncated: bool = False
    sentences: int = 1

    @property
    def tokens(self) -> int:
        """Number of tokens, EOS included."""
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Hypothesis({self.text!r}, score={self.score:.4g})"


class Score(NamedTuple):
    """The log-probability of one target.

    Attributes:
        log_prob: the log-probability of the whole target, EOS included.
        tokens: the number of tokens, EOS included.
        ids: the token ids.
        token_log_probs: the log-probability of each token, given the earlier ones.
        is_truncated: whether the source or the target was truncated.
    """

    log_prob: float
    tokens: int
    ids: tuple[int, ...] = ()
    token_log_probs: tuple[float, ...] = ()
    is_truncated: bool = False

    def __repr__(self) -> str:
        return f"Score(log_prob={self.log_prob:.4g}, tokens={self.tokens})"


# A number, or a float32 tensor.
Length = TypeVar("Length", float, "tf.Tensor")


def length_penalty(
    length: Length, alpha: "float | tf.Tensor", formula: LengthPenalty
) -> Length:
    """Returns the length penalty.

    Args:
        length: number of tokens, EOS included; for `power` and `average` at least 1.
        alpha: the exponent of `gnmt` and `power`.
        formula: `gnmt` is ((5 + length) / 6) ** alpha (Wu et al., 2016); `power` is
            length ** alpha; `average` is the length; `none` is 1.
    """
    if formula == "gnmt":
        return ((5.0 + length) / 6.0) ** alpha
    if formula == "power":
        return length**alpha
    return length if formula == "average" else length**0.0


def penalty_of_tokens(num_tokens: int, options: DecodingOptions) -> float:
    """Returns the length penalty of a hypothesis with some number of tokens.

    An impossible hypothesis has no tokens, and counts as one: its log-probability is
    -inf.
    """
    tokens = float(max(num_tokens, 1))
    return length_penalty(tokens, options.alpha, options.length_penalty)


_MAX_DOUBLINGS = 2  # of the beam


def replace_duplicates(
    n_best_lists: list[list[Hypothesis]],
    beam_size: int,
    search: Callable[[list[int], int], list[list[Hypothesis]]],
) -> None:
    """Replaces duplicate outputs with the next-best ones from a wider beam.

    The best output stays the best: outputs of the wider beam that have a higher score
    are left out, and so are duplicates that the widest beam does not replace.

    Args:
        n_best_lists: the outputs for each input, best first; changed in place.
        beam_size: the beam size with which they were found.
        search: maps the indices of inputs, and the factor by which beam size and number
            of outputs grow, to their outputs.
    """
    sizes = [len(outputs) for outputs in n_best_lists]
    n_best_lists[:] = map(_distinct, n_best_lists)
    for doubling in range(1, _MAX_DOUBLINGS + 1):
        beam_multiplier = 2**doubling
        rows = [i for i, size in enumerate(sizes) if len(n_best_lists[i]) < size]
        if not rows or beam_size * beam_multiplier > MAX_BEAM_SIZE:
            return
        for i, outputs in zip(rows, search(rows, beam_multiplier), strict=True):
            best = n_best_lists[i][0]
            worse = [output for output in outputs if output.score <= best.score]
            wider = _distinct([best, *worse])[: sizes[i]]
            n_best_lists[i] = max(n_best_lists[i], wider, key=len)


def _distinct(outputs: Sequence[Hypothesis]) -> list[Hypothesis]:
    """Returns the best output of each text."""
    best_of_text: dict[str, Hypothesis] = {}
    for output in outputs:
        best_of_text.setdefault(output.text, output)
    return list(best_of_text.values())
