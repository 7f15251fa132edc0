"""Ranges of hyper-parameters for your own data."""

from t2t_keras.ranged_hparams import RangedHParams
from t2t_keras.registry import register_ranged_hparams


@register_ranged_hparams
def small_data_range(rhp: RangedHParams) -> None:
    """Up to 150,000 pairs: regularization, learning rate and batch, around small_data.

    Sennrich and Zhang (ACL 2019) and Araabi and Monz (COLING 2020) found these to
    matter with few pairs.
    """
    rhp.set_float("dropout", 0.1, 0.4)
    rhp.set_float("label_smoothing", 0.0, 0.3)
    rhp.set_discrete("bpe_dropout", [0.0, 0.05, 0.1])
    rhp.set_float("learning_rate", 0.5, 2.5, scale=rhp.LOG_SCALE)
    rhp.set_discrete("batch_tokens", [2048, 4096, 8192])
