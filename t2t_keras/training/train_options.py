"""Options of a training that leave its updates as they are.

Only `steps_per_call` changes their rounding.
"""

import dataclasses
from typing import Literal

from t2t_keras.option import UserError, check, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """When to log, save, evaluate and stop; each field is a flag of `t2t train`.

    Raises:
        UserError: a value is impossible, or `best_by` needs sentences that are not
            decoded.
    """

    steps_per_call: int = option(
        1,
        "steps to run in one call of TensorFlow, without waiting for Python; signals "
        "and time limits are noticed between calls (default: 1)",
        least=1,
    )
    log_every: int = option(100, "steps between log lines", least=1)
    save_every: int | None = option(  # None: see `save_interval`
        None,
        "steps between checkpoints (default: a 40th of all, from 25 to 1000)",
        least=1,
    )
    save_minutes: float = option(
        0.0, "minutes between checkpoints, instead of steps (the paper: 10)", least=0
    )
    keep: int = option(
        20, "how many checkpoints to keep, besides the best one", least=1
    )
    eval_every: int = option(1000, "steps between evaluations", least=1)
    eval_sentences: int = option(
        500,
        "dev sentences to decode at each evaluation, for BLEU or F1; 0: only the loss",
        least=0,
    )
    best_by: Literal["loss", "metric"] = option(
        "loss",
        "how to choose the best checkpoint on dev: by loss (default), or by BLEU or F1",
    )
    patience: int = option(
        0,
        "end training after N evaluations without a new best (default: never)",
        least=0,
    )
    average_last: int = option(
        10,
        "number of checkpoints to average at the end; the average is evaluated and "
        "kept, and `t2t translate` and other commands use it (default: 10); 0: none",
        least=0,
    )
    max_minutes: float = option(
        0.0, "end training after M minutes; run the command again to go on", least=0
    )

    def __post_init__(self) -> None:
        check(TrainOptions, vars(self))
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
