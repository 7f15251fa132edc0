"""FLOPs of a model, and training cost (6.1, Table 2).

Only matrix products are counted, each multiplication and addition as one FLOP; softmax,
layer normalization and the like add a few percent.
"""

from t2t_keras.hparam import HParams

# For each product of the forward pass, the backward pass has two: one for the gradient
# of each factor.
_TRAINING = 3


def flops_per_token(
    hparams: HParams, target_vocab_size: int, length: int
) -> dict[str, int]:
    """Returns the FLOPs for one source token and one target token.

    Masked products are counted, because they are computed: a decoder position is
    compared with all `length` positions, and with a window with those of its blocks.

    Args:
        hparams: the model's hyper-parameters.
        target_vocab_size: vocabulary size V of the target.
        length: length of the source and of the target.

    Returns:
        "forward" and "training", the latter with the backward pass.
    """
    d, heads = hparams.d_model, hparams.num_heads
    keys, values = heads * hparams.key_size, heads * hparams.value_size
    projections = d * (2 * keys + 2 * values)  # as many for each kind of attention
    feed_forward = 2 * d * hparams.d_ff

    def products(positions: int) -> int:
        """Returns the multiplications of one query with so many keys and values."""
        return positions * (keys + values)

    encoder = projections + products(keys_met(hparams, length, bidirectional=True))
    decoder = projections + products(keys_met(hparams, length, bidirectional=False))
    cross = projections + products(length)
    layers = hparams.num_layers * (encoder + feed_forward)
    layers += hparams.decoder_layers * (decoder + cross + feed_forward)
    forward = 2 * (layers + d * target_vocab_size)
    return {"forward": forward, "training": _TRAINING * forward}


def keys_met(hparams: HParams, length: int, *, bidirectional: bool) -> int:
    """Returns the number of keys that each query of self-attention is compared with.

    With a window, these are the keys of up to three blocks.

    Args:
        hparams: the model's hyper-parameters.
        length: length of the sequence.
        bidirectional: whether positions attend to later ones, as in the encoder.
    """
    window = hparams.attention_window
    if not window:
        return length
    reach = window // 2 if bidirectional else window - 1
    blocks = 1 if reach == 0 else 3 if bidirectional else 2
    return blocks * min(max(reach, 1), length)


def training_cost(hours: float, gpus: int, tflops: float) -> float:
    """Returns the paper's estimate of a training's FLOPs: time x GPUs x rate.

    Args:
        hours: hours of training.
        gpus: number of GPUs.
        tflops: sustained single-precision rate of a GPU, in 10^12 FLOPs a second; the
            paper has 2.8 for K80, 3.7 for K40, 6.0 for M40 and 9.5 for P100.
    """
    return hours * 3600 * gpus * tflops * 1e12
