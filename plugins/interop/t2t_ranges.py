"""tensor2tensor's ranges of hyper-parameters under their names (1.15.7)."""

from t2t_keras.ranged_hparams import RangedHParams
from t2t_keras.registry import register_ranged_hparams


@register_ranged_hparams
def transformer_base_range(rhp: RangedHParams) -> None:
    """tensor2tensor's ranges around base: learning rate, warm-up, Adam's betas.

    The learning rate is the factor of the schedule, 1 in the paper and 2 in
    `transformer_base`. tensor2tensor's `initializer_gain` and `weight_decay`, a loss
    there, do not exist here.
    """
    rhp.set_float("learning_rate", 0.3, 3.0, scale=rhp.LOG_SCALE)
    rhp.set_discrete("warmup_steps", [1000, 2000, 4000, 8000, 16_000])
    rhp.set_float("adam_beta1", 0.85, 0.95)
    rhp.set_float("adam_beta2", 0.97, 0.99)
