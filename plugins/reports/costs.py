"""What a model costs: parameters, FLOPs and memory, computed from its hparams.

Only matrix products count as FLOPs, one for each multiplication and each addition.
Softmax, layer normalization and the like add a few percent (6.1, Table 2).
"""

import math
from typing import NamedTuple

from t2t_keras.hparam import HParams

# The backward pass has two products for each one of the forward pass, one for the
# gradient of each factor.
_TRAINING_FACTOR = 3

# The registered models that the formulas describe.
KNOWN_MODELS = ("transformer", "extended_transformer")

_FLOAT32 = 4

# The float32 vectors [D] that a layer normalization stores for the backward pass: the
# centered sum, and its product with gamma.
_VECTORS_PER_NORM = 2

# In float32, the loss stores the softmax and its gradient. In 16 bits, it stores the
# logits, their softmax, and the softmax in float32.
_BYTES_PER_LOGIT = 8


def count_parameters(
    hparams: HParams, source_vocab_size: int, target_vocab_size: int | None = None
) -> dict[str, int]:
    """Returns the number of parameters in each part of `Transformer`.

    Args:
        hparams: the model's hyper-parameters.
        source_vocab_size: size of the source vocabulary, or of the shared one.
        target_vocab_size: size of the target vocabulary; None: it is shared.

    Returns:
        "total", then the size of each part by name. Parts that the model lacks are 0.
    """
    d = hparams.d_model
    encoder_layers = hparams.num_layers
    decoder_layers = hparams.decoder_layers
    keys = hparams.num_heads * hparams.key_size
    values = hparams.num_heads * hparams.value_size
    # The kernels are W^Q, W^K, W^V and W^O.
    attention = d * (2 * keys + 2 * values)
    # Only `extended_transformer` has the fields that are read from here.
    extended = vars(hparams)
    if extended.get("attention_bias"):
        attention += 2 * keys + values + d
    if hparams.attention == "additive":
        attention += keys
    feed_forward = (d * hparams.d_ff + hparams.d_ff) + (hparams.d_ff * d + d)
    # A layer normalization has a scale and a shift.
    norm = 2 * d
    final_norm = norm if hparams.norm == "pre" else 0
    positions = hparams.max_positions * d if hparams.position == "learned" else 0
    # Two vocabularies have a matrix each, a shared one has a single matrix. Without
    # `share_embeddings`, inputs, outputs and logits have a matrix each (3.4).
    rows = source_vocab_size + (target_vocab_size or 0)
    if not hparams.share_embeddings:
        rows = source_vocab_size + 2 * (target_vocab_size or source_vocab_size)
    output_bias = target_vocab_size or source_vocab_size
    parts = {
        "embeddings": rows * d,
        "positions": positions,
        "target_space": d * extended.get("target_space", False),
        "output_bias": output_bias * extended.get("output_bias", False),
        "encoder_self_attention": encoder_layers * attention,
        "encoder_feed_forward": encoder_layers * feed_forward,
        "encoder_layer_norm": encoder_layers * 2 * norm + final_norm,
        "decoder_self_attention": decoder_layers * attention,
        "decoder_cross_attention": decoder_layers * attention,
        "decoder_feed_forward": decoder_layers * feed_forward,
        "decoder_layer_norm": decoder_layers * 3 * norm + final_norm,
    }
    return {"total": sum(parts.values()), **parts}


def flops_per_token(
    hparams: HParams, target_vocab_size: int, length: int
) -> dict[str, int]:
    """Returns the FLOPs for one source token and one target token.

    Masked products count, because they are computed: a decoder query is compared with
    all `length` keys, or with the keys of its blocks if there is a window.

    Args:
        hparams: the model's hyper-parameters.
        target_vocab_size: vocabulary size V of the target.
        length: length of the source and of the target.

    Returns:
        "forward", and "training", which includes the backward pass.
    """
    d = hparams.d_model
    keys = hparams.num_heads * hparams.key_size
    values = hparams.num_heads * hparams.value_size
    # Self-attention and cross-attention have the same projections.
    projections = d * (2 * keys + 2 * values)
    feed_forward = 2 * d * hparams.d_ff
    per_key = keys + values
    encoder_keys = keys_per_query(hparams, length, bidirectional=True)
    decoder_keys = keys_per_query(hparams, length, bidirectional=False)
    encoder = projections + encoder_keys * per_key
    decoder = projections + decoder_keys * per_key
    cross = projections + length * per_key
    layers = hparams.num_layers * (encoder + feed_forward)
    layers += hparams.decoder_layers * (decoder + cross + feed_forward)
    forward = 2 * (layers + d * target_vocab_size)
    return {"forward": forward, "training": _TRAINING_FACTOR * forward}


def keys_per_query(hparams: HParams, length: int, *, bidirectional: bool) -> int:
    """Returns the number of keys that each query of self-attention is compared with.

    With a window, these are the keys of up to three blocks.

    Args:
        hparams: the model's hyper-parameters.
        length: length of the sequence.
        bidirectional: whether positions attend to later positions, as in the encoder.
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
            paper uses 2.8 for K80, 3.7 for K40, 6.0 for M40 and 9.5 for P100.
    """
    return hours * 3600 * gpus * tflops * 1e12


def shown_flops(count: float) -> str:
    """Formats a number of FLOPs as the paper does, such as 2.3 · 10^19 FLOPs."""
    digits, _, exponent = f"{count:.1e}".partition("e")
    return f"{digits} · 10^{int(exponent)} FLOPs"


def memory_per_batch(
    hparams: HParams,
    parameters: int,
    target_vocab_size: int,
    length: int,
    replicas: int,
) -> dict[str, int]:
    """Returns the bytes on each replica for a full batch of sentences of one length.

    Activations are the values of this model's forward pass that its backward pass
    needs. Not counted are the libraries' working memory, the savings of their
    compilers, and the host's copy of weights and optimizer while a checkpoint is
    written.

    Args:
        hparams: the model's hyper-parameters.
        parameters: total number of parameters.
        target_vocab_size: vocabulary size V of the target.
        length: length of every source and every target.
        replicas: number of replicas that share the batch.

    Returns:
        "total", then the bytes of each part by name.
    """
    # The budget `batch_tokens` holds for the sources and for the targets separately.
    positions = -(-hparams.batch_tokens // replicas)
    itemsize = _FLOAT32 if hparams.compute_dtype == "float32" else 2
    parts = {"weights": _FLOAT32 * parameters}
    if itemsize != _FLOAT32:
        parts["weights"] += itemsize * parameters
    parts[hparams.optimizer] = _FLOAT32 * _optimizer_state(hparams, parameters)
    if hparams.ema_decay:
        parts["moving average"] = _FLOAT32 * parameters
    parts["gradients"] = _FLOAT32 * parameters
    parts["activations"] = positions * _activations(hparams, length, itemsize)
    parts["logits"] = _BYTES_PER_LOGIT * positions * target_vocab_size
    return {"total": sum(parts.values()), **parts}


def _optimizer_state(hparams: HParams, parameters: int) -> int:
    """Returns how many values the optimizer stores between updates."""
    if hparams.optimizer != "adafactor":
        # Adam and AdamW store two moments.
        return 2 * parameters
    # Adafactor stores the means of rows and columns, n + D values for a matrix [D, n].
    # An encoder layer has 10 weights and a decoder layer 15, most of them matrices.
    weights = 10 * hparams.num_layers + 15 * hparams.decoder_layers
    return parameters // hparams.d_model + weights * hparams.d_model


def _activations(hparams: HParams, length: int, itemsize: int) -> int:
    """Returns the bytes for one source and one target position, in all layers."""
    d = hparams.d_model
    copy = _copy_bytes(itemsize)
    # A float32 output is stored once for all that read it; else each stores its copy.
    output = 0 if copy else _FLOAT32
    mask = _FLOAT32 if hparams.dropout else 0
    residual = d * (_VECTORS_PER_NORM * _FLOAT32 + output + mask)
    embeddings = 2 * d * (output + mask)
    # Dropout stores its mask in float32, and its output.
    inner = itemsize + (_FLOAT32 + itemsize if hparams.ffn_dropout else 0)
    feed_forward = hparams.d_ff * inner + d * copy
    encoder_keys = keys_per_query(hparams, length, bidirectional=True)
    decoder_keys = keys_per_query(hparams, length, bidirectional=False)
    encoder = _attention_activations(hparams, encoder_keys, itemsize)
    encoder += feed_forward + 2 * residual
    decoder = _attention_activations(hparams, decoder_keys, itemsize)
    # Cross-attention also reads the encoder's output.
    decoder += _attention_activations(hparams, length, itemsize) + d * copy
    decoder += feed_forward + 3 * residual
    layers = hparams.num_layers * encoder + hparams.decoder_layers * decoder
    return embeddings + layers + d * copy  # the last one is for the logits


def _copy_bytes(itemsize: int) -> int:
    """Returns the bytes of a value's copy in the compute dtype; 0: in float32."""
    return 0 if itemsize == _FLOAT32 else itemsize


def _attention_activations(hparams: HParams, num_keys: int, itemsize: int) -> int:
    """Returns the bytes of queries, keys, values, heads and attention weights."""
    keys = hparams.num_heads * hparams.key_size
    values = hparams.num_heads * hparams.value_size
    copy = _copy_bytes(itemsize)
    weight = _FLOAT32 + copy
    if hparams.attention_dropout:
        # The mask, and the output, which in 16 bits is the copy.
        weight += _FLOAT32 + (0 if copy else _FLOAT32)
    if hparams.attention == "additive":
        weight += itemsize * hparams.key_size
    vectors = itemsize * (2 * keys + 2 * values) + copy * hparams.d_model
    return vectors + weight * hparams.num_heads * num_keys


class Complexity(NamedTuple):
    """One row of Table 1: the terms inside O(...), as numbers.

    Attributes:
        operations: operations of one layer for a whole sentence.
        sequential: operations that cannot run in parallel.
        path: maximum path length between two positions, in layers or steps.
    """

    operations: int
    sequential: int
    path: int


def layer_complexities(
    length: int, d_model: int, kernel: int, window: int
) -> dict[str, Complexity]:
    """Returns the rows of Table 1, by layer type.

    Args:
        length: sequence length n.
        d_model: model width d.
        kernel: kernel width k of convolutions; at least 2.
        window: neighborhood r of restricted self-attention.
    """
    n = length
    d = d_model
    k = kernel
    r = min(window, length)
    dilated = _layers_to_span(n, k)
    return {
        "self_attention": Complexity(n * n * d, 1, 1),
        "recurrent": Complexity(n * d * d, n, n),
        "convolutional": Complexity(k * n * d * d, 1, dilated),
        "separable_convolutional": Complexity(k * n * d + n * d * d, 1, dilated),
        "restricted_self_attention": Complexity(r * n * d, 1, math.ceil(n / r)),
    }


def _layers_to_span(length: int, kernel: int) -> int:
    """Returns log_k(n), rounded up: dilated convolutions that connect all positions."""
    layers = 1
    span = kernel
    while span < length:
        layers += 1
        span *= kernel
    return layers
