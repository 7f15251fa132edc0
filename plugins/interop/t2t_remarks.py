"""Remarks on changes to tensor2tensor's hparam sets that mean something else there.

A change has our meaning; the remark tells users who expect tensor2tensor's.
"""

from collections.abc import Sequence

from . import t2t_sets

# In these sets learning_rate_schedule is "legacy", which uses learning_rate.
_LEGACY = ("transformer_base_v1", "transformer_base_v2")

_DROPOUT = (
    "tensor2tensor's Transformer ignores dropout; here, dropout is its "
    "layer_prepostprocess_dropout"
)
_LEGACY_RATE = (
    "tensor2tensor's {name} multiplies learning_rate by 10; here, learning_rate is the "
    "product, {rate:g} in this set"
)
_RATE = (
    "tensor2tensor's {name} ignores learning_rate, since its schedule takes "
    "learning_rate_constant; here, both names are the factor of the schedule, {rate:g} "
    "in this set"
)
_LEGACY_CONSTANT = (
    "tensor2tensor's {name} ignores learning_rate_constant, since its schedule is "
    "'legacy'; here, it is another name of learning_rate, {rate:g} in this set"
)
_WEIGHT_DECAY = (
    "tensor2tensor's weight_decay adds squared weights to the loss; here, it is AdamW's"
)


def remarks(hparams_set: str, changes: Sequence[str]) -> list[str]:
    """Returns a sentence for each change that means something else in tensor2tensor.

    Args:
        hparams_set: the name of the set; other sets than tensor2tensor's have no
            remarks.
        changes: the names of the hyper-parameters that the user changes.
    """
    definition = vars(t2t_sets).get(hparams_set)
    if definition is None or not hparams_set.startswith("transformer_"):
        return []
    is_legacy = hparams_set in _LEGACY
    texts = {
        "dropout": _DROPOUT,
        "learning_rate": _LEGACY_RATE if is_legacy else _RATE,
        "weight_decay": _WEIGHT_DECAY,
    }
    if is_legacy:
        texts["learning_rate_constant"] = _LEGACY_CONSTANT
    rate = definition().learning_rate
    return [
        texts[name].format(name=hparams_set, rate=rate)
        for name in dict.fromkeys(changes)
        if name in texts
    ]
