"""Floating-point operations of a model, and what a training costs (6.1, Table 2).

Counted are the matrix products alone, a multiplication and an addition as two; softmax,
normalisation and the like are some percent more.
"""

from t2t_keras.hparam import HParams

# Each product of the forward pass has two in the backward pass: one for the gradient
# of each of its factors.
_TRAINING = 3


def flops_per_token(
    hparams: HParams, target_vocab_size: int, length: int
) -> dict[str, int]:
    """Returns the FLOPs for one position of the source and one of the target.

    Masked products are counted, since they are computed: a decoder's position meets all
    `length` positions. With a window it meets those of its blocks.

    Args:
        hparams: the model's.
        target_vocab_size: V.
        length: positions of the source and of the target.

    Returns:
        "forward" and "training", the latter with the backward pass.
    """
    d, heads = hparams.d_model, hparams.num_heads
    keys, values = heads * hparams.key_size, heads * hparams.value_size
    projections = d * (2 * keys + 2 * values)  # as many for each kind of attention
    feed_forward = 2 * d * hparams.d_ff

    def products(positions: int) -> int:
        """One query with so many keys and values."""
        return positions * (keys + values)

    encoder = projections + products(keys_met(hparams, length, looks_ahead=True))
    decoder = projections + products(keys_met(hparams, length, looks_ahead=False))
    cross = projections + products(length)
    layer = encoder + feed_forward + decoder + cross + feed_forward
    forward = 2 * (hparams.num_layers * layer + d * target_vocab_size)
    return {"forward": forward, "training": _TRAINING * forward}


def keys_met(hparams: HParams, length: int, *, looks_ahead: bool) -> int:
    """Returns how many keys each query of a self-attention is multiplied with.

    A window's blocks hold up to three times its reach to one side.

    Args:
        hparams: the model's.
        length: positions of the sequence.
        looks_ahead: as in the encoder.
    """
    window = hparams.attention_window
    if not window:
        return length
    reach = window // 2 if looks_ahead else window - 1
    blocks = 1 if reach == 0 else 3 if looks_ahead else 2
    return blocks * min(max(reach, 1), length)


def training_cost(hours: float, gpus: int, tflops: float) -> float:
    """Returns the paper's estimate of a training's FLOPs: time x GPUs x rate.

    Args:
        hours: of training.
        gpus: used all the time.
        tflops: 10^12 FLOPs a second that a GPU sustains in single precision; the paper
            has 2.8 for K80, 3.7 for K40, 6.0 for M40 and 9.5 for P100.
    """
    return hours * 3600 * gpus * tflops * 1e12
