"""The learning rate (5.3)."""

from t2t_keras.hparam import HParams


def learning_rate(hparams: HParams, step: int) -> float:
    """Returns lrate = d_model^-0.5 * min(step^-0.5, step * warmup^-1.5), scaled.

    Args:
        hparams: `d_model`, `warmup_steps`, and the factor `learning_rate`.
        step: of the update, counted from 1.
    """
    scale = min(step**-0.5, step * hparams.warmup_steps**-1.5)
    return hparams.learning_rate * hparams.d_model**-0.5 * scale
