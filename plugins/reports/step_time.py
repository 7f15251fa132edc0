"""The least time of a training step on a named card, from published rates.

A step multiplies matrices, moves arrays through memory, and exchanges gradients with
other cards; the estimate is the sum of the three at the card's full rates. Kernels
reach a part of these, so it is a bound for measurements, not a prediction.
"""

from typing import NamedTuple

from t2t_keras.hparam import HParams

from .model_cost import flops_per_token, memory_per_batch

_FLOAT32 = 4

# Bytes that the loss moves for each logit, see `model.loss.output_losses`.
_BYTES_PER_LOGIT = {"float32": 20, "bfloat16": 24, "float16": 24}

# What the backward pass reads was written before it; its own arrays are as large.
_MOVES_OF_AN_ACTIVATION = 4

# Adam reads weight, gradient and both moments, and writes all but the gradient; the
# gradient is written, and read for its norm and for its mean.
_MOVES_OF_A_WEIGHT = 7 + 3


class Card(NamedTuple):
    """Published peak rates of an accelerator.

    Attributes:
        float32: 10^12 FLOPs a second of dense float32 products; with TF32 where the
            card has it, which is TensorFlow's default.
        half: the same of bfloat16, or of float16 on cards without bfloat16.
        memory: 10^12 bytes a second.
        link: 10^9 bytes a second to other cards, in each direction.
    """

    float32: float
    half: float
    memory: float
    link: float


# Data sheets of the SXM2, SXM4 and SXM5 modules, without sparsity.
CARDS = {
    "V100": Card(15.7, 125, 0.9, 150),
    "A100": Card(156, 312, 1.555, 300),
    "H100": Card(495, 989, 3.35, 450),
}


def step_time(
    hparams: HParams,
    parameters: int,
    target_vocab_size: int,
    length: int,
    card: Card,
    gpus: int,
) -> dict[str, float]:
    """Returns the least seconds of a full batch's step, in parts.

    Args:
        hparams: the model's hyper-parameters.
        parameters: total number of parameters.
        target_vocab_size: vocabulary size V of the target.
        length: length of the source and of the target.
        card: one of `CARDS`.
        gpus: number of cards that share the batch.

    Returns:
        "products", "memory" and "all_reduce" in seconds, their sum "total", and
        "target_tokens_per_s" of all cards.
    """
    dtype = hparams.compute_dtype
    tokens = hparams.batch_tokens / gpus
    rate = card.float32 if dtype == "float32" else card.half
    flops = flops_per_token(hparams, target_vocab_size, length)["training"] * tokens
    kept = memory_per_batch(hparams, parameters, target_vocab_size, length, gpus)
    moved = (
        _BYTES_PER_LOGIT[dtype] * tokens * target_vocab_size
        + _MOVES_OF_AN_ACTIVATION * kept["activations"]
        + _MOVES_OF_A_WEIGHT * _FLOAT32 * parameters
    )
    exchanged = 2 * (gpus - 1) / gpus * _FLOAT32 * parameters  # by a ring
    parts = {
        "products": flops / (rate * 1e12),
        "memory": moved / (card.memory * 1e12),
        "all_reduce": exchanged / (card.link * 1e9),
    }
    total = sum(parts.values())
    speed = {"target_tokens_per_s": hparams.batch_tokens / total}
    return {**parts, "total": total, **speed}
