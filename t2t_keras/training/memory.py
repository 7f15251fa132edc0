"""An estimate of the peak memory of a training step, in bytes."""

from t2t_keras.hparam import HParams
from t2t_keras.training.flops import keys_met

_FLOAT32 = 4

# Number of float32 vectors [D] that one residual connection keeps for the backward
# pass: the normalized sum, the same times gamma, and the output.
_KEPT_BY_RESIDUAL = 3


# The softmax, and the same without the labels' probabilities; in 16 bits the logits,
# their softmax, and the same in float32.
_BYTES_OF_A_LOGIT = 8


def memory_per_batch(
    hparams: HParams,
    parameters: int,
    target_vocab_size: int,
    length: int,
    replicas: int,
) -> dict[str, int]:
    """Returns the bytes on each replica for a full batch of sentences of one length.

    Activations are the values that the backward pass needs from the forward pass, as
    this model computes them. Working memory of the libraries is not counted, nor what
    their compilers save, nor the copy of weights and optimizer in the host's memory
    while a checkpoint is written.

    Args:
        hparams: the model's hyper-parameters.
        parameters: total number of parameters.
        target_vocab_size: vocabulary size V of the target.
        length: length of every source and every target.
        replicas: number of replicas that share the batch.

    Returns:
        The bytes of each part by name, and first "total".
    """
    positions = -(-hparams.batch_tokens // replicas)  # on each side
    number = _FLOAT32 if hparams.compute_dtype == "float32" else 2
    copies = 0 if number == _FLOAT32 else number * parameters
    parts = {
        "weights": _FLOAT32 * parameters + copies,
        hparams.optimizer: _FLOAT32 * _optimizer_state(hparams, parameters),
        **({"moving average": _FLOAT32 * parameters} if hparams.ema_decay else {}),
        "gradients": _FLOAT32 * parameters,
        "activations": positions * _activations(hparams, length, number),
        "logits": _BYTES_OF_A_LOGIT * positions * target_vocab_size,
    }
    return {"total": sum(parts.values()), **parts}


def _optimizer_state(hparams: HParams, parameters: int) -> int:
    """Returns how many numbers the optimizer keeps between updates."""
    if hparams.optimizer != "adafactor":
        return 2 * parameters  # Adam's and AdamW's moments
    # The means of a [D, n] matrix's rows and columns are n + D numbers. An encoder
    # layer has 10 weights and a decoder layer 15, most of them such matrices.
    weights = 10 * hparams.num_layers + 15 * hparams.decoder_layers
    return parameters // hparams.d_model + weights * hparams.d_model


def _activations(hparams: HParams, length: int, number: int) -> int:
    """Returns the bytes for one source and one target position, in all layers."""
    d, heads = hparams.d_model, hparams.num_heads
    keys, values = heads * hparams.key_size, heads * hparams.value_size
    copy = 0 if number == _FLOAT32 else number  # in the compute dtype
    # Dropout keeps its mask and its input.
    dropped = {
        field: 2 if getattr(hparams, field) else 0
        for field in ("dropout", "attention_dropout", "ffn_dropout")
    }
    residual = d * (_KEPT_BY_RESIDUAL + dropped["dropout"]) * _FLOAT32
    embeddings = 2 * d * (1 + dropped["dropout"]) * _FLOAT32
    feed_forward = number * hparams.d_ff * (1 + dropped["ffn_dropout"]) + copy * d

    def attention(keys_of_query: int) -> int:
        """Returns the bytes of queries, keys, values, heads and attention weights."""
        weight = _FLOAT32 + copy + number * dropped["attention_dropout"]
        if hparams.attention == "additive":
            weight += number * hparams.key_size
        vectors = number * (2 * keys + 2 * values) + copy * d
        return vectors + weight * heads * keys_of_query

    encoder = attention(keys_met(hparams, length, bidirectional=True))
    encoder += feed_forward + 2 * residual
    decoder = attention(keys_met(hparams, length, bidirectional=False))
    decoder += attention(length) + feed_forward + 3 * residual
    layers = hparams.num_layers * encoder + hparams.decoder_layers * decoder
    return embeddings + layers
