"""Export as a CTranslate2 model, from tokens to tokens.

CTranslate2 (https://github.com/OpenNMT/CTranslate2) is an inference engine in C++, with
8-bit and 16-bit arithmetic.
"""

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import ctranslate2
import keras
import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec
from ctranslate2.specs.transformer_spec import FeedForwardSpec

from t2t_keras.checking import checked
from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.exporting.directory import replaced, require_free, size_of
from t2t_keras.exporting.formats import require_quantization
from t2t_keras.exporting.settings import SETTINGS, make_settings
from t2t_keras.exporting.verify import Verification, search_of
from t2t_keras.files.json_files import write_json
from t2t_keras.hparam import GUIDED_HEAD
from t2t_keras.model.backend import Tensor
from t2t_keras.model.layers import (
    CrossAttention,
    FeedForward,
    LayerNorm,
    Linear,
    SelfAttention,
)
from t2t_keras.model.transformer import Transformer
from t2t_keras.text.vocabulary import UNK

from .ctranslate2_engine import (
    EOS_TOKEN,
    PAD_TOKEN,
    CTranslate2Engine,
    require_supported,
    token_strings,
)

UNK_TOKEN = "<unk>"


@checked
def export_ctranslate2(
    translator: ModelTranslator,
    export_dir: str | Path,
    *,
    quantization: str | None = None,
    overwrite: bool = False,
    verify: Verification | None = None,
    **options: Any,
) -> int:
    """Writes a model for CTranslate2, with the vocabularies of its tokenizers.

    CTranslate2 and the library of the tokenizer suffice to run it
    (`examples/serve_ctranslate2.py`). The directory has

    - `model.bin` and `config.json`: the weights and the settings. CTranslate2 adds EOS
      to every source.
    - `shared_vocabulary.json`, or `source_vocabulary.json` and
      `target_vocabulary.json`: the strings of the tokens, in the order of their ids.
    - `source.spm` and `target.spm` (or `.subwords`): the tokenizers' own files.
    - `t2t_export.json`: the settings. Its decoding options are the defaults of
      `CTranslate2Engine`; other programs pass them to `translate_batch`, whose
      length penalty is length ** alpha. Its default `max_decoding_length` is 256, and
      `min_decoding_length=0` allows empty outputs.

    The positional encodings become a table with `max_source_length + extra_length + 1`
    rows, for the longest output and EOS. CTranslate2 raises an exception for longer
    outputs.

    Greedy outputs of `CTranslate2Engine` are compared with the run's in float32. A
    quantized model is verified twice: exactly before its weights are quantized, and
    then, with the type of computation that this machine supports, by the share of
    identical outputs (`Verification.check`).

    Args:
        translator: the translator to export. Its weights are float32 variables, even
            if it computes in 16 bits.
        export_dir: the directory to write.
        quantization: the weights' dtype; None: float32.
        overwrite: whether to replace an earlier export.
        verify: the sentences with which the export is verified before it appears;
            None: it is not verified.
        **options: changes to the translator's `DecodingOptions`, which become the
            defaults of the export.

    Returns:
        The size of the export in bytes.

    Raises:
        UserError: CTranslate2 cannot express the model; `export_dir` is not empty, and
            is not an export or `overwrite` is false; or the verification fails.
    """
    require_quantization(quantization, "ctranslate2")
    _require_expressible(translator)
    require_free(Path(export_dir), overwrite)
    resolved = translator.choose(**options)
    require_supported(resolved)
    max_positions = resolved.max_source_length + resolved.extra_length

    with replaced(Path(export_dir)) as new:
        if verify is None:
            _write(translator, new, max_positions, quantization)
        else:
            exact = translator
            if translator.model.hparams.compute_dtype != "float32":
                exact = translator.with_compute_dtype("float32")
            verify.expect_greedy(exact, resolved)
            for dtype in dict.fromkeys((None, quantization)):
                shutil.rmtree(new, ignore_errors=True)
                _write(translator, new, max_positions, dtype)
                _write_settings(translator, new, resolved, quantization, None)
                _verify(verify, new, exact=dtype is None)
        _write_settings(translator, new, resolved, quantization, verify)
    return size_of(Path(export_dir))


def _verify(verification: Verification, export_dir: Path, exact: bool) -> None:
    """Verifies an export with an engine that is freed before the next one is loaded."""
    engine = CTranslate2Engine(export_dir)
    search = search_of(engine, _greedy_options(engine.options))
    verification.check(search, exact=exact)


def _require_expressible(translator: ModelTranslator) -> None:
    """Refuses what CTranslate2 cannot compute.

    Raises:
        UserError: the model or the problem has such a setting.
    """
    if isinstance(translator.model, Ensemble):
        raise UserError("CTranslate2 has no ensembles; export a SavedModel")
    hparams = translator.model.hparams
    instead = "CTranslate2 cannot compute it; export a SavedModel"
    if hparams.model not in ("transformer", "extended_transformer"):
        raise UserError(f"hparams: model is '{hparams.model}', and {instead}")
    if hparams.attention == "additive":
        raise UserError(f"hparams: attention is 'additive', and {instead}")
    if hparams.attention_window:
        raise UserError(
            f"hparams: attention_window is {hparams.attention_window}, and {instead}"
        )
    if translator.options.constraint != "none":
        raise UserError(
            f"problem '{translator.problem.name}' has the constraint "
            f"'{translator.options.constraint}', and {instead}"
        )


def _write(
    translator: ModelTranslator,
    path: Path,
    max_positions: int,
    quantization: str | None,
) -> None:
    """Writes the directory of the export, which does not exist yet."""
    spec = _spec(translator, max_positions)
    spec.validate()
    spec.optimize(quantization)
    path.mkdir(parents=True)
    spec.save(str(path))
    translator.save_tokenizers(path)


def _write_settings(
    translator: ModelTranslator,
    path: Path,
    options: DecodingOptions,
    quantization: str | None,
    verify: Verification | None,
) -> None:
    """Writes the `CTranslate2Settings` of an export."""
    settings = make_settings(translator, options, quantization, verify)
    if settings.pop("text_processor") != "plain":
        settings["tags"] = None  # those of the registered problem
    settings["positions"] = options.max_source_length + options.extra_length
    settings["compute_type"] = ctranslate2.Translator(str(path)).compute_type
    write_json(path / SETTINGS, settings)


def _spec(translator: ModelTranslator, max_positions: int) -> TransformerSpec:
    """Returns the model as CTranslate2 describes it.

    Args:
        translator: the translator to export.
        max_positions: the number of tokens in the longest output.
    """
    model = translator.model
    assert isinstance(model, Transformer)  # see `_require_expressible`
    hparams = model.hparams
    layer = model.encoder.layers[0]
    spec = TransformerSpec.from_config(
        (hparams.num_layers, hparams.decoder_layers),
        hparams.num_heads,
        pre_norm=hparams.norm == "pre",
        activation=Activation[layer.feed_forward.activation.upper()],
        # The attention that `AlignmentHead` reads.
        alignment_layer=hparams.alignment_layer - 1,
        alignment_heads=GUIDED_HEAD if hparams.guided_alignment else hparams.num_heads,
    )
    spec.config.layer_norm_epsilon = layer.feed_forward_residual.norm.epsilon
    _set_vocabularies(spec, translator)
    _set_embeddings(spec, model)
    # CTranslate2's own sinusoids begin at position 1. To score the longest output,
    # which does not end in EOS, CTranslate2 adds EOS to it.
    encodings = _array(model.positions(np.arange(max_positions + 1)))
    for stack_spec, stack in (
        (spec.encoder, model.encoder),
        (spec.decoder, model.decoder),
    ):
        stack_spec.position_encodings.encodings = encodings
        if stack.norm:
            _set_norm(stack_spec.layer_norm, stack.norm)
        for layer_spec, layer in zip(stack_spec.layer, stack.layers, strict=True):
            _set_self_attention(layer_spec.self_attention, layer.self_attention)
            _set_norm(
                layer_spec.self_attention.layer_norm, layer.self_attention_residual.norm
            )
            _set_feed_forward(layer_spec.ffn, layer.feed_forward)
            _set_norm(layer_spec.ffn.layer_norm, layer.feed_forward_residual.norm)
            if stack is model.decoder:
                _set_cross_attention(layer_spec.attention, layer.cross_attention)
                _set_norm(
                    layer_spec.attention.layer_norm, layer.cross_attention_residual.norm
                )
    return spec


def _set_vocabularies(spec: TransformerSpec, translator: ModelTranslator) -> None:
    """Sets the strings of the tokens, and which tokens are special."""
    source = token_strings(translator.source_tokenizer)
    target = token_strings(translator.target_tokenizer)
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.add_source_eos = True
    spec.config.eos_token = EOS_TOKEN
    spec.config.bos_token = PAD_TOKEN
    spec.config.decoder_start_token = PAD_TOKEN
    # CTranslate2 adds the unknown token to a vocabulary without it, and the embedding
    # would have no row for it. tensor2tensor's tokenizer has no unknown tokens.
    has_unknown = source[UNK] == target[UNK] == UNK_TOKEN
    spec.config.unk_token = UNK_TOKEN if has_unknown else PAD_TOKEN


def _set_embeddings(spec: TransformerSpec, model: Transformer) -> None:
    """Sets the embeddings of both sides, and the softmax."""
    table = _array(model.source_embedding.table)
    target_space = getattr(model, "target_space", None)
    if target_space:
        # CTranslate2 multiplies embeddings by sqrt(D).
        table = table + _array(target_space.vector) / model.hparams.d_model**0.5
    spec.encoder.embeddings[0].weight = table
    spec.decoder.embeddings.weight = _array(model.target_embedding.table)
    spec.decoder.projection.weight = _array(model.softmax_embedding.table)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    spec.decoder.start_from_zero_embedding = True


def _set_self_attention(spec: MultiHeadAttentionSpec, attention: SelfAttention) -> None:
    """Sets the projection to queries, keys and values, and the output projection."""
    sizes = (attention.key_size, attention.key_size, attention.value_size)
    _set_heads(spec.linear[0], attention, attention.projection, *sizes)
    _set_score_and_output(spec, attention)


def _set_cross_attention(
    spec: MultiHeadAttentionSpec, attention: CrossAttention
) -> None:
    """Sets the projections to queries, to keys and values, and of the output."""
    query = attention.query_projection
    _set_heads(spec.linear[0], attention, query, attention.key_size)
    sizes = (attention.key_size, attention.value_size)
    _set_heads(spec.linear[1], attention, attention.key_value_projection, *sizes)
    _set_score_and_output(spec, attention)


def _set_score_and_output(
    spec: MultiHeadAttentionSpec, attention: SelfAttention | CrossAttention
) -> None:
    """Sets the factor of the scores, and the output projection."""
    is_scaled = attention.score_function == "scaled"
    spec.queries_scale = np.float32(attention.key_size**-0.5 if is_scaled else 1.0)
    kernel = _array(attention.output_projection.kernel)
    spec.linear[-1].weight = _fill_heads(attention, kernel).T
    if attention.use_bias:
        spec.linear[-1].bias = _array(attention.output_projection.bias)


def _set_heads(
    spec: LinearSpec,
    attention: SelfAttention | CrossAttention,
    projection: Linear,
    *sizes: int,
) -> None:
    """Sets a projection, whose outputs `attention` splits into heads.

    Args:
        spec: gets a weight [H * w + H * w ..., D], one block for each size, where w is
            the largest of d_k and d_v.
        attention: the layer.
        projection: its kernel is [D, H * (a + b ...)].
        *sizes: a, b ...
    """
    boundaries = np.cumsum(sizes)[:-1] * attention.num_heads

    def filled(rows: np.ndarray) -> np.ndarray:
        blocks = np.split(rows, boundaries)
        return np.concatenate([_fill_heads(attention, block) for block in blocks])

    spec.weight = filled(_array(projection.kernel).T)
    if projection.use_bias:
        spec.bias = filled(_array(projection.bias)[:, None])[:, 0]


def _fill_heads(
    attention: SelfAttention | CrossAttention, rows: np.ndarray
) -> np.ndarray:
    """Fills up the rows of every head with zeros to the larger of d_k and d_v.

    In CTranslate2 queries, keys and values have one size. Zeros change neither the
    products of queries and keys nor the output.

    Args:
        attention: the layer.
        rows: [H * size, D]
    """
    heads = rows.reshape(attention.num_heads, -1, rows.shape[1])
    missing = max(attention.key_size, attention.value_size) - heads.shape[1]
    heads = np.pad(heads, ((0, 0), (0, missing), (0, 0)))
    return heads.reshape(-1, rows.shape[1])


def _set_feed_forward(spec: FeedForwardSpec, layer: FeedForward) -> None:
    """Sets W1, b1, W2 and b2."""
    for linear_spec, linear in (
        (spec.linear_0, layer.inner),
        (spec.linear_1, layer.outer),
    ):
        linear_spec.weight = _array(linear.kernel).T
        linear_spec.bias = _array(linear.bias)


def _set_norm(spec: LayerNormSpec, norm: LayerNorm) -> None:
    """Sets gamma and beta."""
    spec.gamma = _array(norm.gamma)
    spec.beta = _array(norm.beta)


def _array(tensor: Tensor) -> np.ndarray:
    """Returns a variable or a tensor as a float32 array."""
    return np.asarray(keras.ops.convert_to_numpy(tensor), np.float32)


def _greedy_options(options: DecodingOptions) -> DecodingOptions:
    """Returns options of greedy search, whose score is the log-probability."""
    return dataclasses.replace(
        options,
        beam_size=1,
        n_best=1,
        length_penalty="none",
        min_length=0,
        no_repeat_ngram=0,
    )
