"""How a run is watched, kept and ended."""

import dataclasses
import math
from typing import Literal

from t2t_keras.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Nothing here changes the weights of a step; each is a flag of `t2t train`.

    Raises:
        UserError: a value is impossible, or `best_by` needs sentences that are not
            decoded.
    """

    log_every: int = 100  # steps
    save_every: int = 1000
    save_minutes: float = 0.0  # instead of every so many steps; the paper: 10
    keep: int = 20  # checkpoints
    eval_every: int = 1000
    eval_sentences: int = 500  # decoded on dev for BLEU or F1; 0: only the loss
    best_by: Literal["loss", "metric"] = "loss"  # on dev; metric: BLEU or F1
    patience: int = 0  # evaluations without a new best that end training; 0: none do
    average_last: int = 5  # checkpoints averaged for the last evaluation; 0: none
    max_minutes: float = 0.0  # after which training ends; 0: never

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            if not least <= getattr(self, name) < math.inf:
                raise UserError(f"{name} must be at least {least}")
        if self.best_by not in ("loss", "metric"):
            raise UserError(f"best_by must be loss or metric, not '{self.best_by}'")
        if self.best_by == "metric" and not self.eval_sentences:
            raise UserError("--best_by metric needs --eval_sentences above 0")


_LEAST = {
    **dict.fromkeys(("log_every", "save_every", "keep", "eval_every"), 1),
    **dict.fromkeys(("eval_sentences", "patience", "average_last"), 0),
    **dict.fromkeys(("save_minutes", "max_minutes"), 0),
}
