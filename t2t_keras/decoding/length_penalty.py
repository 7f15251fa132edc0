"""Length penalties, by which log-probabilities are divided.

Log-probabilities of long outputs are lower than those of short ones. Dividing them by
a penalty makes outputs of different lengths comparable.
"""

from typing import TYPE_CHECKING, TypeVar

import numpy as np

from t2t_keras.decoding.options import DecodingOptions, LengthPenalty

if TYPE_CHECKING:
    import tensorflow as tf

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


def log_probs_of_scores(
    scores: np.ndarray, lengths: np.ndarray, options: DecodingOptions
) -> np.ndarray:
    """Returns the log-probabilities [n], given scores [n] without coverage penalty.

    Args:
        scores: the scores.
        lengths: [n], numbers of tokens.
        options: the options of the search.
    """
    penalties = [penalty_of_tokens(length, options) for length in lengths.tolist()]
    return scores.astype(np.float64) * penalties
