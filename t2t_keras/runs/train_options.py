"""Options of a training that do not change its steps."""

import dataclasses
import math
from typing import Literal

from t2t_keras.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """When to log, save, evaluate and stop; each field is a flag of `t2t train`.

    Raises:
        UserError: a value is impossible, or `best_by` needs sentences that are not
            decoded.
    """

    log_every: int = 100  # steps between reports
    save_every: int | None = None  # steps between checkpoints; None: `save_interval`
    save_minutes: float = 0.0  # minutes between checkpoints, instead; the paper: 10
    keep: int = 20  # number of checkpoints to keep
    eval_every: int = 1000  # steps between evaluations
    eval_sentences: int = 500  # dev sentences to decode for BLEU or F1; 0: none
    best_by: Literal["loss", "metric"] = "loss"  # on dev; metric: BLEU or F1
    patience: int = 0  # stop after so many evaluations without a new best; 0: never
    average_last: int = 10  # number of checkpoints to average at the end; 0: none
    max_minutes: float = 0.0  # stop after so many minutes; 0: never

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

        The default is a 40th of all steps, so that the last ten checkpoints, which are
        averaged, cover the last quarter of the training; but at least 25 steps, because
        saving takes time, and at most 1000, because a failure loses the steps since the
        last checkpoint.
        """
        return self.save_every or min(max(train_steps // 40, 25), 1000)


_LEAST = {
    **dict.fromkeys(("log_every", "save_every", "keep", "eval_every"), 1),
    **dict.fromkeys(("eval_sentences", "patience", "average_last"), 0),
    **dict.fromkeys(("save_minutes", "max_minutes"), 0),
}
