"""A lower bound for the time of a training step on a GPU, from published rates.

A step multiplies matrices, moves arrays through memory, and exchanges gradients with
other GPUs; the bound is the sum of the three at the GPU's peak rates. Kernels do not
reach these rates, so it is no prediction.
"""

from typing import NamedTuple

from t2t_keras.hparam import HParams

from .model_cost import flops_per_token, memory_per_batch

_FLOAT32 = 4

# Bytes that the loss moves for each logit; see `model.loss.output_losses`.
_BYTES_PER_LOGIT = {"float32": 20, "bfloat16": 24, "float16": 24}

# The forward pass writes an activation and the backward pass reads it. The gradients of
# activations are as large, and are also written and read once.
_MOVES_PER_ACTIVATION = 4

# Adam reads the weight, its gradient and both moments, and writes all but the gradient.
# The backward pass writes the gradient; clipping and averaging read it.
_MOVES_PER_WEIGHT = 7 + 3


class Card(NamedTuple):
    """Published peak rates of a GPU.

    Attributes:
        float32: dense float32 matrix products, in 10^12 FLOPs a second; with TF32 if
            the GPU has it, as TensorFlow uses it by default.
        half: the same for bfloat16, or for float16 if the GPU lacks bfloat16.
        memory: memory bandwidth, in 10^12 bytes a second.
        link: bandwidth to other GPUs in each direction, in 10^9 bytes a second.
    """

    float32: float
    half: float
    memory: float
    link: float


# The data sheets' rates of the SXM2, SXM4 and SXM5 modules, without sparsity.
CARDS = {
    "V100": Card(15.7, 125, 0.9, 150),
    "A100": Card(156, 312, 1.555, 300),
    "H100": Card(495, 989, 3.35, 450),
    "H200": Card(495, 989, 4.8, 450),
}


def step_time(
    hparams: HParams,
    parameters: int,
    target_vocab_size: int,
    length: int,
    card: Card,
    gpus: int,
) -> dict[str, float]:
    """Returns a lower bound for the time of a step with a full batch.

    Args:
        hparams: the model's hyper-parameters.
        parameters: total number of parameters.
        target_vocab_size: vocabulary size V of the target.
        length: length of the source and of the target.
        card: one of `CARDS`.
        gpus: number of GPUs that share the batch.

    Returns:
        The seconds "products", "memory", "all_reduce" and their sum "total", and the
        "target_tokens_per_s" of all GPUs together.
    """
    dtype = hparams.compute_dtype
    tokens = hparams.batch_tokens / gpus
    rate = card.float32 if dtype == "float32" else card.half
    flops = flops_per_token(hparams, target_vocab_size, length)["training"] * tokens
    memory = memory_per_batch(hparams, parameters, target_vocab_size, length, gpus)
    moved_bytes = (
        _BYTES_PER_LOGIT[dtype] * tokens * target_vocab_size
        + _MOVES_PER_ACTIVATION * memory["activations"]
        + _MOVES_PER_WEIGHT * _FLOAT32 * parameters
    )
    # A ring all-reduce sends each gradient twice, less the GPU's own share.
    exchanged_bytes = 2 * (gpus - 1) / gpus * _FLOAT32 * parameters
    parts = {
        "products": flops / (rate * 1e12),
        "memory": moved_bytes / (card.memory * 1e12),
        "all_reduce": exchanged_bytes / (card.link * 1e9),
    }
    total = sum(parts.values())
    speed = {"target_tokens_per_s": hparams.batch_tokens / total}
    return {**parts, "total": total, **speed}
