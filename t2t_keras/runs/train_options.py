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
    save_every: int | None = None  # None: see `save_interval`
    save_minutes: float = 0.0  # instead of every so many steps; the paper: 10
    keep: int = 20  # checkpoints
    eval_every: int = 1000
    eval_sentences: int = 500  # decoded on dev for BLEU or F1; 0: only the loss
    best_by: Literal["loss", "metric"] = "loss"  # on dev; metric: BLEU or F1
    patience: int = 0  # evaluations without a new best that end training; 0: none do
    average_last: int = 10  # checkpoints averaged at the end; 0: none
    max_minutes: float = 0.0  # after which training ends; 0: never

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise UserError(f"{name} must be at least {least}")
        if self.best_by not in ("loss", "metric"):
            raise UserError(f"best_by must be loss or metric, not '{self.best_by}'")
        if self.best_by == "metric" and not self.eval_sentences:
            raise UserError("--best_by metric needs --eval_sentences above 0")

    def save_interval(self, train_steps: int) -> int:
        """Returns the number of steps between checkpoints.

        By default a 40th of all steps, so that the last ten checkpoints, which are
        averaged, are of the last quarter of the training; at least 25 steps, for the
        time that saving takes, and at most 1000, for the work that a failure costs.
        """
        return self.save_every or min(max(train_steps // 40, 25), 1000)


_LEAST = {
    **dict.fromkeys(("log_every", "save_every", "keep", "eval_every"), 1),
    **dict.fromkeys(("eval_sentences", "patience", "average_last"), 0),
    **dict.fromkeys(("save_minutes", "max_minutes"), 0),
}
