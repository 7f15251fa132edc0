"""How to decode: one record of options, the same for every way in.

An option is one field here, and what uses it. The flags of the command line, the inputs
of the compiled decoding function and of a SavedModel, and what the curve of a run
depends on follow from the field.
"""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, Literal, Self

from t2t_keras.errors import UserError
from t2t_keras.problem import Problem

if TYPE_CHECKING:
    from t2t_keras.decoding.constraint import Constraint


def _option(
    default: Any,
    meaning: str,
    *,
    least: int | None = None,
    from_problem: bool = False,
    is_tensor: bool = False,
    is_served: bool = False,
    changes_metrics: bool = False,
    of_sampling: bool = False,
) -> Any:
    """Returns the dataclass field of an option.

    Args:
        default: its value unless it is given.
        meaning: what it is, for `--help`.
        least: the smallest value that is possible.
        from_problem: whether the default is a field of the problem.
        is_tensor: whether it is an input of the compiled decoding function, so that
            another value needs no new trace.
        is_served: whether it is an input of a SavedModel's signature `translate`, too.
        changes_metrics: whether the metrics of a checkpoint depend on it.
        of_sampling: whether it has an effect only with `sampling`.
    """
    about = {**locals()}
    del about["default"]
    return dataclasses.field(default=default, metadata=about)


Use = Literal["is_tensor", "is_served", "changes_metrics", "of_sampling"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecodingOptions:
    """How to decode. Impossible values raise `UserError` at construction."""

    beam_size: int = _option(
        4,
        "hypotheses that the search keeps for each input (K); 1 is greedy search",
        least=1,
        from_problem=True,
        is_tensor=True,
        is_served=True,
        changes_metrics=True,
    )
    alpha: float = _option(
        0.6,
        "exponent of the length penalty ((5 + length) / 6) ** alpha",
        from_problem=True,
        is_tensor=True,
        is_served=True,
        changes_metrics=True,
    )
    extra_length: int = _option(
        50,
        "how many tokens an output may have more than its input",
        from_problem=True,
        least=0,
        changes_metrics=True,
    )
    n_best: int = _option(
        1,
        "how many outputs to return for each input",
        least=1,
        is_tensor=True,
        is_served=True,
    )
    min_length: int = _option(
        0,
        "how many tokens an output has at least, EOS not counted",
        least=0,
        is_tensor=True,
        changes_metrics=True,
    )
    max_source_length: int = _option(
        1024,
        "inputs of more tokens are cut there, with a warning, since time and memory "
        "grow with the square of the length",
        least=1,
        changes_metrics=True,
    )
    batch_tokens: int = _option(
        2048,
        "source tokens in a batch, padding included; memory is in proportion to it "
        "times the beam size",
        least=1,
    )
    constraint: "str | Constraint" = _option(  # noqa: RUF009  it makes a field
        "none",
        "what the search may find: the name of the problem's constraint, or none",
        from_problem=True,
        changes_metrics=True,
    )
    raw: bool = _option(
        False,
        "inputs are raw text, which the problem splits into words; without it they are "
        "prepared as the training data are",
    )
    sampling: bool = _option(
        False, "draw outputs at random instead of searching for the best"
    )
    temperature: float = _option(
        1.0, "divides the logits", is_tensor=True, of_sampling=True
    )
    top_k: int = _option(
        0,
        "draw among the k likeliest tokens only; 0: among all",
        least=0,
        is_tensor=True,
        of_sampling=True,
    )
    top_p: float = _option(
        1.0,
        "draw among the likeliest tokens of this total probability only",
        is_tensor=True,
        of_sampling=True,
    )
    seed: int = _option(
        0,
        "an input at the same place in the list has the same samples",
        least=0,
        of_sampling=True,
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            least, value = field.metadata["least"], getattr(self, field.name)
            if least is not None and value < least:
                raise UserError(f"{field.name} must be at least {least}")
            if field.type is float and not math.isfinite(value):
                raise UserError(f"{field.name} must be a finite number")
        if not self.sampling and self.n_best > self.beam_size:
            raise UserError(
                f"n_best {self.n_best} is more than beam_size {self.beam_size}; "
                "raise beam_size"
            )
        if not self.temperature > 0:
            raise UserError("temperature must be above 0; beam_size 1 is greedy search")
        if not 0 < self.top_p <= 1:
            raise UserError("top_p must be above 0 and at most 1")

    @classmethod
    def of(cls, problem: Problem) -> Self:
        """Returns the options with which a problem is decoded by default."""
        names = [f.name for f in dataclasses.fields(cls) if f.metadata["from_problem"]]
        values = {name: getattr(problem, name) for name in names}
        return cls(**values | {"constraint": constraint_name(problem)})

    @classmethod
    def names(cls, use: Use) -> list[str]:
        """Returns the names of the options that are used in this way."""
        return [f.name for f in dataclasses.fields(cls) if f.metadata[use]]

    @classmethod
    def dtypes(cls, use: Use) -> dict[str, str]:
        """Returns names and dtypes of the options that are used as such tensors."""
        kinds = {f.name: f.type for f in dataclasses.fields(cls)}
        return {
            name: "int32" if kinds[name] is int else "float32"
            for name in cls.names(use)
        }


def constraint_name(problem: Problem) -> str:
    """Returns what `--constraint` calls the constraint of a problem."""
    return problem.constraint.__name__ if problem.constraint else "none"
