"""How a training is watched, saved and ended.

No option changes the updates, except that `steps_per_call` changes their rounding.
"""

import dataclasses
from typing import Literal

from t2t_keras.errors import UserError
from t2t_keras.evaluation.tokenization import BleuTokens
from t2t_keras.options import check_options, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """When to log, save, evaluate and stop; `t2t train` takes each field.

    Raises:
        UserError: a value is impossible, or `best_by` needs sentences that are not
            decoded.
    """

    steps_per_call: int = option(
        1,
        "steps to run in one call of TensorFlow, without waiting for Python; signals "
        "and time limits are noticed between calls (default: 1)",
        ge=1,
    )
    log_every: int = option(100, "steps between log lines", ge=1)
    save_every: int | None = option(
        None,  # see `save_interval`
        "steps between checkpoints (default: a 40th of all, from 25 to 1000)",
        ge=1,
    )
    save_minutes: float = option(
        0.0, "minutes between checkpoints, instead of steps (the paper: 10)", ge=0
    )
    keep: int = option(20, "how many checkpoints to keep, besides the best one", ge=1)
    eval_every: int = option(1000, "steps between evaluations", ge=1)
    eval_sentences: int = option(
        500,
        "dev sentences to decode at each evaluation, for the metrics; 0: only the loss",
        ge=0,
    )
    best_by: Literal["loss", "metric"] = option(
        "loss",
        "how to choose the best checkpoint on dev: by loss (default), or by the "
        "problem's metric",
    )
    bleu_tokenize: Literal[BleuTokens, "auto"] = option(
        "auto",
        "sacreBLEU tokenization of BLEU on dev, and in later evaluations of the run; "
        "auto: that of the target language, or what the run has had (default)",
    )
    patience: int = option(
        0, "end after N evaluations without a new best (default: never)", ge=0
    )
    average_last: int = option(
        10,
        "number of checkpoints to average at the end; the average is evaluated and "
        "kept, and `t2t translate` and other commands use it (default: 10); 0: none",
        ge=0,
    )
    max_minutes: float = option(
        0.0, "end training after M minutes; run the command again to resume", ge=0
    )

    def __post_init__(self) -> None:
        check_options(TrainOptions, vars(self))
        if self.best_by == "metric" and not self.eval_sentences:
            raise UserError("best_by=metric needs --eval_sentences above 0")

    def changes(self) -> dict[str, int | float | str]:
        """Returns the options that differ from the defaults."""
        defaults = vars(TrainOptions())
        return {
            name: value for name, value in vars(self).items() if value != defaults[name]
        }

    def save_interval(self, train_steps: int) -> int:
        """Returns the number of steps between checkpoints.

        The default is a 40th of all steps, so that the last ten checkpoints, which are
        averaged, cover the last quarter of the training; but at least 25 steps, because
        saving takes time, and at most 1000, because a failure loses the steps since the
        last checkpoint.
        """
        return self.save_every or min(max(train_steps // 40, 25), 1000)
