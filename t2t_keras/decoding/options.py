"""How to decode: one record of options, the same for every way in."""

import dataclasses
import math
from typing import TYPE_CHECKING, Self, get_args

from t2t_keras.errors import UserError
from t2t_keras.problem import Constraint as ConstraintName
from t2t_keras.problem import Problem

if TYPE_CHECKING:
    from t2t_keras.decoding.constraint import Constraint


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How to decode. Impossible values raise `UserError` at construction.

    Attributes:
        beam_size: K; 1 is greedy search.
        alpha: exponent of the length penalty ((5 + length) / 6) ** alpha.
        extra_length: an output is at most so many pieces longer than its input.
        n_best: how many outputs for each input.
        min_length: pieces that an output has at least, EOS not counted.
        sampling: draw outputs at random instead of searching for the best.
        temperature: of sampling; divides the logits.
        top_k: of sampling: among the k likeliest pieces only; 0: all.
        top_p: of sampling: among the likeliest pieces of this probability; 1: all.
        seed: of sampling. An input at the same place in the list has the same samples.
        constraint: what may be generated: one of the names that `Problem.constraint`
            has, or an object of your own.
        raw: of a problem of trees: inputs are raw sentences, to be split into words as
            the Penn Treebank does (`text.treebank_words`); otherwise they are words
            with spaces between them, as the training data.
        max_source_length: inputs of more pieces are cut there, with a warning, since
            time and memory grow with the square of the length.
        batch_tokens: source pieces in a batch, padding included; memory is in
            proportion to it times the beam size.
    """

    beam_size: int = 4
    alpha: float = 0.6
    extra_length: int = 50
    n_best: int = 1
    min_length: int = 0
    sampling: bool = False
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    constraint: "ConstraintName | Constraint" = "none"
    raw: bool = False
    max_source_length: int = 1024
    batch_tokens: int = 2048

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}")
        for name in ("alpha", "temperature", "top_p"):
            if not math.isfinite(getattr(self, name)):
                raise UserError(f"{name} must be a finite number")
        if not self.sampling and self.n_best > self.beam_size:
            raise UserError(
                f"n_best {self.n_best} is more than beam_size {self.beam_size}; "
                "raise beam_size"
            )
        names = get_args(ConstraintName)
        if isinstance(self.constraint, str) and self.constraint not in names:
            raise UserError(
                f"constraint must be one of {', '.join(names)}, not '{self.constraint}'"
            )
        if not self.temperature > 0:
            raise UserError("temperature must be above 0; beam_size 1 is greedy search")
        if not 0 < self.top_p <= 1:
            raise UserError("top_p must be above 0 and at most 1")

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Returns the options with which a problem is decoded by default."""
        return cls(
            beam_size=problem.beam_size,
            alpha=problem.alpha,
            extra_length=problem.extra_length,
            constraint=problem.constraint,
        )


_LEAST = {
    "beam_size": 1,
    "n_best": 1,
    "min_length": 0,
    "top_k": 0,
    "max_source_length": 1,
    "batch_tokens": 1,
}
