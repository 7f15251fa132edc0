"""What a model costs: parameters, FLOPs and memory, computed from its hparams.

FLOPs count only matrix products, each multiplication and addition as one; softmax,
layer normalization and the like add a few percent (6.1, Table 2).
"""

from t2t_keras.hparam import HParams

# For each product of the forward pass, the backward pass has two: one for the gradient
# of each factor.
_TRAINING = 3

_FLOAT32 = 4

# Number of float32 vectors [D] that one residual connection keeps for the backward
# pass: the normalized sum, the same times gamma, and the output.
_KEPT_BY_RESIDUAL = 3

# The softmax, and the same without the labels' probabilities; in 16 bits the logits,
# their softmax, and the same in float32.
_BYTES_OF_A_LOGIT = 8


def count_parameters(
    hparams: HParams, source_vocab_size: int, target_vocab_size: int | None = None
) -> dict[str, int]:
    """Returns the number of parameters in each part of `Transformer`.

    Args:
        hparams: the model's hyper-parameters.
        source_vocab_size: tokens in the source's vocabulary, or in the shared one.
        target_vocab_size: tokens in the target's vocabulary; None: it is shared.

    Returns:
        "total", then the size of each part by name. Parts that the model lacks are 0.
    """
    d, n, m = hparams.d_model, hparams.num_layers, hparams.decoder_layers
    keys = hparams.num_heads * hparams.key_size
    values = hparams.num_heads * hparams.value_size
    attention = d * (2 * keys + 2 * values)  # W^Q, W^K, W^V, W^O
    more = vars(hparams)  # of `extended_transformer`
    if more.get("attention_bias"):
        attention += 2 * keys + values + d
    if hparams.attention == "additive":
        attention += keys
    feed_forward = (d * hparams.d_ff + hparams.d_ff) + (hparams.d_ff * d + d)
    norm = 2 * d  # scale and shift
    last_norm = norm if hparams.norm == "pre" else 0
    positions = hparams.max_positions * d if hparams.position == "learned" else 0
    # One matrix for a shared vocabulary, two for two vocabularies; without
    # `share_embeddings` one for each role (3.4).
    rows = source_vocab_size + (target_vocab_size or 0)
    if not hparams.share_embeddings:
        rows = source_vocab_size + 2 * (target_vocab_size or source_vocab_size)
    output_bias = target_vocab_size or source_vocab_size
    parts = {
        "embeddings": rows * d,
        "positions": positions,
        "target_space": d * more.get("target_space", False),
        "output_bias": output_bias * more.get("output_bias", False),
        "encoder_self_attention": n * attention,
        "encoder_feed_forward": n * feed_forward,
        "encoder_layer_norm": n * 2 * norm + last_norm,
        "decoder_self_attention": m * attention,
        "decoder_cross_attention": m * attention,
        "decoder_feed_forward": m * feed_forward,
        "decoder_layer_norm": m * 3 * norm + last_norm,
    }
    return {"total": sum(parts.values()), **parts}


def flops_per_token(
    hparams: HParams, target_vocab_size: int, length: int
) -> dict[str, int]:
    """Returns the FLOPs for one source token and one target token.

    Masked products are counted, because they are computed: a decoder position is
    compared with all `length` positions, or with a window with those in its blocks.

    Args:
        hparams: the model's hyper-parameters.
        target_vocab_size: vocabulary size V of the target.
        length: length of the source and of the target.

    Returns:
        "forward", and "training" with the backward pass.
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


def memory_per_batch(
    hparams: HParams,
    parameters: int,
    target_vocab_size: int,
    length: int,
    replicas: int,
) -> dict[str, int]:
    """Returns the bytes on each replica for a full batch of sentences of one length.

    Activations are the values that the backward pass needs from the forward pass, as
    this model computes them. Not counted: working memory of the libraries, savings of
    their compilers, and the copy of weights and optimizer in the host's memory while a
    checkpoint is written.

    Args:
        hparams: the model's hyper-parameters.
        parameters: total number of parameters.
        target_vocab_size: vocabulary size V of the target.
        length: length of every source and every target.
        replicas: number of replicas that share the batch.

    Returns:
        "total", then the bytes of each part by name.
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
