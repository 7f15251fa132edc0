"""Outputs of a translator: hypotheses for texts, and scores of pairs."""

import math
from typing import NamedTuple

from t2t_keras.problem import Alignment


class Hypothesis(NamedTuple):
    """One output.

    Attributes:
        text: the output as the problem's text processor writes it, in one line.
        score: the log-probability over the length penalty, plus the coverage penalty
            if there is one.
        log_prob: the log-probability; NaN if the engine does not return it.
        ids: the token ids; the last is EOS unless the output reached its limit. The
            ids of an input that was split are those of its parts, joined.
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
