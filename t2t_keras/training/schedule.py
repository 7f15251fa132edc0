"""The learning rate (5.3)."""

import math
from collections.abc import Callable

from t2t_keras.hparam import HParams

_FACTORS: dict[str, Callable[[HParams, int], float]] = {
    "constant": lambda hparams, step: 1.0,
    "linear_warmup": lambda hparams, step: min(1.0, step / hparams.warmup_steps),
    "rsqrt_decay": lambda hparams, step: max(step, hparams.warmup_steps) ** -0.5,
    # As rsqrt_decay, but one at the end of the warm-up: learning_rate is the peak.
    "rsqrt_normalized_decay": lambda hparams, step: (
        max(1.0, step / hparams.warmup_steps) ** -0.5
    ),
    "rsqrt_hidden_size": lambda hparams, step: hparams.d_model**-0.5,
}


def learning_rate(hparams: HParams, step: int) -> float:
    """Returns `hparams.learning_rate` times the factors that `schedule` names.

    The paper's linear_warmup * rsqrt_decay * rsqrt_hidden_size is its
    d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5). tensor2tensor writes it
    with the factor "constant", its name for what is `learning_rate` here; with
    "constant*linear_warmup" the rate stays after the warm-up.

    Args:
        hparams: `learning_rate`, `schedule`, `warmup_steps`, `d_model`.
        step: of the update, counted from 1, as in the paper. (tensor2tensor counts the
            steps of a product from 0: its first update has rate 0.)
    """
    factors = (_FACTORS[name] for name in hparams.schedule.split("*"))
    return hparams.learning_rate * math.prod(f(hparams, step) for f in factors)
