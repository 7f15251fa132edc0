"""The number of parameters in each part of a model (3.1 to 3.5)."""

from t2t_keras.hparam import HParams


def count_parameters(
    hparams: HParams, source_vocab_size: int, target_vocab_size: int | None = None
) -> dict[str, int]:
    """Returns the number of parameters in each part of `Transformer`.

    Args:
        hparams: the model's hyper-parameters.
        source_vocab_size: tokens in the source's vocabulary, or in the shared one.
        target_vocab_size: tokens in the target's vocabulary; None: it is shared.

    Returns:
        The sizes of the parts by name, and first "total". Parts that the model does not
        have are 0.
    """
    d, n, m = hparams.d_model, hparams.num_layers, hparams.decoder_layers
    keys = hparams.num_heads * hparams.key_size
    values = hparams.num_heads * hparams.value_size
    attention = d * (2 * keys + 2 * values)  # W^Q, W^K, W^V, W^O
    if hparams.attention_bias:
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
    output_bias = target_vocab_size or source_vocab_size if hparams.output_bias else 0
    parts = {
        "embeddings": rows * d,
        "positions": positions,
        "target_space": d if hparams.target_space else 0,
        "output_bias": output_bias,
        "encoder_self_attention": n * attention,
        "encoder_feed_forward": n * feed_forward,
        "encoder_layer_norm": n * 2 * norm + last_norm,
        "decoder_self_attention": m * attention,
        "decoder_cross_attention": m * attention,
        "decoder_feed_forward": m * feed_forward,
        "decoder_layer_norm": m * 3 * norm + last_norm,
    }
    return {"total": sum(parts.values()), **parts}
