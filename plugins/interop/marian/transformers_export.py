"""`t2t export --format hf-marian`: a Marian model of Hugging Face transformers."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError, require_extra
from t2t_keras.exporting.directory import replaced, require_free, size_of
from t2t_keras.exporting.formats import require_quantization
from t2t_keras.exporting.verify import Output, Verification
from t2t_keras.files.atomic import write_lines
from t2t_keras.files.json_files import write_json
from t2t_keras.model import build_model
from t2t_keras.model.transformer import Transformer
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.tokenizer import Tokenizer
from t2t_keras.text.vocabulary import EOS, PAD

from ..extended_transformer import ExtendedHParams
from .model import layer_weights
from .transformers import (
    CONFIG_FILE,
    GENERATION_FILE,
    NORM_EPSILON,
    OUTPUT_BIAS,
    SHARED_EMBEDDING,
    SOFTMAX,
    SOURCE_EMBEDDING,
    TARGET_EMBEDDING,
    WEIGHTS_FILE,
    hf_name,
)
from .vocabulary import MarianTokenizer, token_from_piece

_SPECIAL_IDS = {
    "pad_token_id": PAD,
    "eos_token_id": EOS,
    "decoder_start_token_id": PAD,
    "forced_eos_token_id": None,
    "bos_token_id": None,
}


def export_hf_marian(
    translator: ModelTranslator,
    export_dir: str | Path,
    *,
    quantization: str | None = None,
    overwrite: bool = False,
    verify: Verification | None = None,
    max_source_length: int | None = None,
    extra_length: int | None = None,
) -> int:
    """Writes a directory for `MarianMTModel.from_pretrained` and `MarianTokenizer`.

    Only post-norm models with the paper's positions can be exported. transformers has
    all sines before all cosines, so the columns of all vectors of width D are
    reordered. Its epsilon is 1e-5 instead of 1e-6. Its decoder starts with padding,
    whose embedding must be zero: if the softmax matrix has another row for padding, the
    export has three matrices instead of one.

    `generate` divides scores by length ** length_penalty, which is not the paper's
    length penalty.

    Args:
        translator: the translator to export, with float32 weights.
        export_dir: the directory to write.
        quantization: must be None, since the weights are float32.
        overwrite: whether to replace an earlier export.
        verify: the sentences that verify the export before it appears: greedy search
            must give the same outputs in transformers and with the run, which gets the
            same epsilon for the comparison. None: the export is not verified.
        max_source_length: see `DecodingOptions`; None: the translator's.
        extra_length: see `DecodingOptions`; None: the translator's.

    Returns:
        The size of the export in bytes.

    Raises:
        UserError: transformers cannot represent the model or is not installed;
            `export_dir` is not empty and must not be replaced; or the verification
            fails.
    """
    require_extra("marian", "a model of Marian", "safetensors")
    if verify is not None:
        _require_transformers()
    require_quantization(quantization, "hf-marian")
    model = _exportable_model(translator)
    require_free(Path(export_dir), overwrite)
    changes = {}
    if max_source_length is not None:
        changes["max_source_length"] = max_source_length
    if extra_length is not None:
        changes["extra_length"] = extra_length
    options = translator.choose(**changes)
    max_length = options.max_source_length + options.extra_length + 1
    with replaced(Path(export_dir)) as directory:
        directory.mkdir(parents=True)
        tensors = _hf_tensors(model)
        _write_tensors(tensors, directory / WEIGHTS_FILE)
        write_json(directory / CONFIG_FILE, _hf_config(model, tensors, max_length))
        generation = _generation_config(options, max_length)
        write_json(directory / GENERATION_FILE, generation)
        _write_tokenizers(translator, directory)
        if translator.origin:
            _write_card(translator.origin, directory)
        if verify is not None:
            verify.expect_greedy(_with_hf_arithmetic(translator, model), options)
            verify.check(_hf_greedy_search(directory, options.extra_length))
    return size_of(Path(export_dir))


def _write_card(origin: Mapping[str, str], directory: Path) -> None:
    """Writes a model card that names the model from which this one was made."""
    header = {"library_name": "transformers", "pipeline_tag": "translation"}
    if "license" in origin:
        header["license"] = origin["license"]
    if "repository" in origin:
        header["base_model"] = origin["repository"]
    facts = ", ".join(f"{name} {value}" for name, value in origin.items())
    lines = ["---", json.dumps(header), "---", "", f"Made with t2t_keras from: {facts}"]
    write_lines(directory / "README.md", lines)


def _require_transformers() -> None:
    """Raises UserError if transformers is not installed."""
    try:
        from transformers import MarianMTModel  # noqa: F401
    except ImportError:
        raise UserError(
            "--format=hf-marian needs transformers and torch for the verification; "
            "install them, or give --verify 0"
        ) from None


def _exportable_model(translator: ModelTranslator) -> Transformer:
    """Returns the translator's model.

    Raises:
        UserError: `MarianMTModel` cannot represent the model or its vocabularies.
    """
    reason = "transformers' Marian models cannot express it; export another format"
    model = translator.model
    if not isinstance(model, Transformer):
        raise UserError(f"the translator is an ensemble, and {reason}")
    if model.hparams.model not in ("transformer", "extended_transformer"):
        raise UserError(f"the model is '{model.hparams.model}', and {reason}")
    hparams = ExtendedHParams.from_hparams(model.hparams)
    head_size = hparams.d_model // hparams.num_heads
    supported: dict[str, tuple[object, ...]] = {
        "norm": ("post",),
        "attention": ("scaled",),
        "attention_window": (0,),
        "position": ("sinusoidal", "halves"),
        "target_space": (False,),
        "d_k": (0, head_size),
        "d_v": (0, head_size),
    }
    for name, values in supported.items():
        value = getattr(hparams, name)
        if value not in values:
            raise UserError(f"hparams: {name} is '{value}', and {reason}")
    if hparams.norm_epsilon > NORM_EPSILON:
        raise UserError(
            f"hparams: norm_epsilon is {hparams.norm_epsilon}, which is {NORM_EPSILON} "
            f"there: {reason}"
        )
    if translator.options.constraint != "none":
        raise UserError(
            f"problem '{translator.problem.name}' has the constraint "
            f"'{translator.options.constraint}', and {reason}"
        )
    for tokenizer in (translator.source_tokenizer, translator.target_tokenizer):
        if not isinstance(tokenizer, SentencePieceTokenizer | MarianTokenizer):
            raise UserError(f"a vocabulary is not of SentencePiece, and {reason}")
    return model


def _with_hf_arithmetic(
    translator: ModelTranslator, model: Transformer
) -> ModelTranslator:
    """Returns the translator with transformers' dtype and epsilon.

    The epsilon changes the scores of some outputs by a few 1e-4.
    """
    hparams = ExtendedHParams.from_hparams(
        model.hparams, compute_dtype="float32", norm_epsilon=NORM_EPSILON
    )
    copy = build_model(hparams, model.source_vocab_size, model.target_vocab_size)
    copy.set_weights(model.get_weights())
    return ModelTranslator(
        translator.problem,
        copy,
        translator.source_tokenizer,
        translator.target_tokenizer,
    )


def _hf_tensors(model: Transformer) -> dict[str, np.ndarray]:
    """Returns the weights under the names of `MarianMTModel`."""
    # The columns of a vector [D] get an order with all sines before all cosines.
    order = np.arange(model.hparams.d_model)
    if model.hparams.position == "sinusoidal":
        order = np.concatenate([order[0::2], order[1::2]])
    weights = {}
    for variable in model.trainable_variables:
        name = variable.path.partition("/")[2]
        weights[name] = np.asarray(variable, np.float32)
    tensors = {}
    for name, parts in layer_weights(model.hparams):
        weight = _reorder_weight(name, weights, order)
        blocks = np.split(weight, len(parts), -1)
        for part, block in zip(parts, blocks, strict=True):
            tensors[hf_name(part)] = block.T
    return tensors | _hf_embeddings(model, weights, order)


def _reorder_weight(
    name: str, weights: dict[str, np.ndarray], order: np.ndarray
) -> np.ndarray:
    """Returns a weight of a layer with its axis of width D in the given order."""
    scope, _, parameter = name.rpartition("/")
    weight = weights.get(name)
    if weight is None:
        # transformers has biases even where our attention has none.
        weight = np.zeros(weights[f"{scope}/kernel"].shape[1], np.float32)
    if scope.endswith(("/output", "/outer", "/norm")):
        return weight[..., order]
    return weight[order] if parameter == "kernel" else weight


def _hf_embeddings(
    model: Transformer, weights: dict[str, np.ndarray], order: np.ndarray
) -> dict[str, np.ndarray]:
    """Returns the embedding matrices and the output bias."""
    source = np.asarray(model.source_embedding.table, np.float32)[:, order]
    target = np.asarray(model.target_embedding.table, np.float32)[:, order]
    softmax = np.asarray(model.softmax_embedding.table, np.float32)[:, order]
    source[PAD] = 0
    target[PAD] = 0
    bias = weights.get("output_bias", np.zeros(len(softmax), np.float32))
    tensors = {OUTPUT_BIAS: bias[None]}
    is_tied = np.array_equal(target, softmax)
    if is_tied and model.target_vocab_size is None and np.array_equal(source, target):
        tensors[SHARED_EMBEDDING] = source
        return tensors
    if not is_tied:
        tensors[SOFTMAX] = softmax
    tensors[SOURCE_EMBEDDING] = source
    tensors[TARGET_EMBEDDING] = target
    return tensors


def _write_tensors(tensors: dict[str, np.ndarray], path: Path) -> None:
    """Writes a safetensors file with the metadata that transformers expects."""
    from safetensors.numpy import save_file

    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(arrays, path, metadata={"format": "pt"})


def _hf_config(
    model: Transformer, tensors: dict[str, np.ndarray], max_length: int
) -> dict[str, Any]:
    """Returns the content of `config.json`."""
    hparams = ExtendedHParams.from_hparams(model.hparams)
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "dtype": "float32",
        "vocab_size": model.source_vocab_size,
        "decoder_vocab_size": model.target_vocab_size or model.source_vocab_size,
        "share_encoder_decoder_embeddings": SHARED_EMBEDDING in tensors,
        "tie_word_embeddings": SOFTMAX not in tensors,
        "d_model": hparams.d_model,
        "encoder_layers": hparams.num_layers,
        "encoder_attention_heads": hparams.num_heads,
        "encoder_ffn_dim": hparams.d_ff,
        "decoder_layers": hparams.decoder_layers,
        "decoder_attention_heads": hparams.num_heads,
        "decoder_ffn_dim": hparams.d_ff,
        "activation_function": hparams.activation,
        "dropout": hparams.dropout,
        "attention_dropout": hparams.attention_dropout,
        "activation_dropout": hparams.ffn_dropout,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "max_position_embeddings": max_length,
        **_SPECIAL_IDS,
    }


def _generation_config(options: DecodingOptions, max_length: int) -> dict[str, Any]:
    """Returns the content of `generation_config.json`."""
    return {
        **_SPECIAL_IDS,
        "bad_words_ids": [[PAD]],
        "num_beams": options.beam_size,
        "length_penalty": options.alpha,
        "max_length": max_length,
    }


def _write_tokenizers(translator: ModelTranslator, directory: Path) -> None:
    """Writes the files that transformers' `MarianTokenizer` reads."""
    source = translator.source_tokenizer
    target = translator.target_tokenizer
    is_shared = source.pieces == target.pieces
    write_json(directory / "vocab.json", _token_ids(source))
    if not is_shared:
        write_json(directory / "target_vocab.json", _token_ids(target))
    source.save(directory / "source.spm")
    target.save(directory / "target.spm")
    write_json(
        directory / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "separate_vocabs": not is_shared,
            "pad_token": source.pieces[PAD],
            "eos_token": source.pieces[EOS],
            "unk_token": "<unk>",
        },
    )


def _token_ids(tokenizer: Tokenizer) -> dict[str, int]:
    ids = {}
    for token_id, piece in enumerate(tokenizer.pieces):
        ids[token_from_piece(piece)] = token_id
    return ids


def _hf_greedy_search(
    path: Path, extra_length: int
) -> Callable[[list[list[int]]], list[Output]]:
    """Returns the greedy search of the exported model in transformers."""
    import torch
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(path).eval()

    def search(source: list[int]) -> Output:
        ids = torch.tensor([source])
        [hypothesis] = model.generate(
            ids,
            num_beams=1,
            do_sample=False,
            max_length=None,
            max_new_tokens=len(source) + extra_length,
        )
        # The first token is the padding with which the decoder starts.
        target = hypothesis[1:]
        logits = model(ids, labels=target[None]).logits[0]
        log_probs = torch.log_softmax(logits, -1)
        score = log_probs[torch.arange(len(target)), target].sum()
        return Output(tuple(target.tolist()), float(score))

    def search_all(sources: list[list[int]]) -> list[Output]:
        with torch.no_grad():
            return [search(source) for source in sources]

    return search_all
