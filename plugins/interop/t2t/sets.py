"""tensor2tensor's hparam sets under their names, with the values of version 1.15.7.

The paper's sets are in `paper`. tensor2tensor's `batch_size` counts the tokens on each
GPU; `batch_tokens` here counts those on the 8 GPUs of its README, or on one GPU in
`..._single_gpu`, `transformer_tiny` and `transformer_small`. `docs/paper.md`, "Where
tensor2tensor differs", lists the other differences, such as the learning rate of the
first step.
"""

from collections.abc import Sequence

from t2t_keras.hparam import PAPER_SCHEDULE, HParams
from t2t_keras.ranged_hparams import RangedHParams
from t2t_keras.registry import register_hparams, register_ranged_hparams

from ..extended_transformer import ExtendedHParams

_GPUS = 8


@register_hparams
def transformer_base_v1() -> HParams:
    """tensor2tensor's base of June 2017, nearest to the paper: norm after sub-layers.

    It differs from the paper in the positions (sines, then cosines) and the target
    space embedding.
    """
    return ExtendedHParams(
        position="t2t",
        target_space=True,
        batch_tokens=4096 * _GPUS,
        bucketing="t2t",
        train_steps=250_000,
    )


@register_hparams
def transformer_base_v2() -> HParams:
    """tensor2tensor's base of October 2017: norm before sub-layers, more dropout.

    Unlike the paper and `transformer_base_v1`, it has pre-norm, dropout of attention
    weights and inner activations, and twice the learning rate after 8,000 steps.
    """
    return transformer_base_v1().override(
        norm="pre",
        attention_dropout=0.1,
        ffn_dropout=0.1,
        learning_rate=2.0,
        warmup_steps=8000,
    )


@register_hparams
def transformer_base_v3() -> HParams:
    """tensor2tensor's base since February 2018: `transformer_base_v2`, beta2 0.997."""
    return transformer_base_v2().override(
        adam_beta2=0.997, schedule=f"constant*{PAPER_SCHEDULE}"
    )


@register_hparams
def transformer_base() -> HParams:
    """tensor2tensor's base: `transformer_base_v3`. For the paper's, use `base`."""
    return transformer_base_v3()


@register_hparams
def transformer_base_single_gpu() -> HParams:
    """tensor2tensor's base on one GPU: 1,024 tokens, 16,000 steps of warm-up."""
    return transformer_base().override(
        batch_tokens=1024,
        schedule="constant*linear_warmup*rsqrt_decay",
        learning_rate=0.1,
        warmup_steps=16_000,
    )


@register_hparams
def transformer_big() -> HParams:
    """tensor2tensor's big: half the batch of base. For the paper's, use `big`."""
    return transformer_base().override(
        d_model=1024,
        d_ff=4096,
        num_heads=16,
        dropout=0.3,
        batch_tokens=2048 * _GPUS,
    )


@register_hparams
def transformer_big_single_gpu() -> HParams:
    """tensor2tensor's big on one GPU: dropout 0.1, 16,000 steps of warm-up."""
    return transformer_big().override(
        dropout=0.1, warmup_steps=16_000, batch_tokens=2048
    )


@register_hparams
def transformer_big_enfr() -> HParams:
    """tensor2tensor's big for en-fr: inner width 8,192, three separate matrices.

    The paper has neither; for its en-fr, use `big_enfr`.
    """
    return transformer_big().override(
        dropout=0.1,
        d_ff=8192,
        share_embeddings=False,
        batch_tokens=4096 * _GPUS,
    )


@register_hparams
def transformer_parsing_base() -> HParams:
    """tensor2tensor's parser: 6 layers of width 1,024. For the paper's, use `parsing`.

    Its examples have up to 512 tokens (`t2t datagen --max_length 512`). It also sets
    `learning_rate` to 0.05, which its schedule ignores.
    """
    return transformer_base().override(
        d_model=1024,
        dropout=0.2,
        attention_dropout=0.2,
        warmup_steps=16_000,
        share_embeddings=False,
    )


@register_hparams
def transformer_parsing_big() -> HParams:
    """tensor2tensor's big parser: `transformer_big` with dropout 0.1, warm-up 4,000."""
    return transformer_big().override(dropout=0.1, warmup_steps=4000)


@register_hparams
def transformer_small() -> HParams:
    """tensor2tensor's small model: 2 layers of width 256."""
    return transformer_base().override(
        num_layers=2, d_model=256, d_ff=1024, num_heads=4, batch_tokens=4096
    )


@register_hparams
def transformer_tiny() -> HParams:
    """tensor2tensor's tiny model: 2 layers of width 128. For the demo, use `tiny`."""
    return transformer_small().override(d_model=128, d_ff=512)


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
    definition = globals().get(hparams_set)
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
