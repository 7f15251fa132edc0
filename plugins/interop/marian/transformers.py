"""The files and tensor names of Marian models in Hugging Face transformers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.errors import UserError, require_extra
from t2t_keras.files.text_files import require_fetched_file
from t2t_keras.text.vocabulary import EOS, PAD

from ..extended_transformer import ExtendedHParams
from ..given_settings import read_json_object, require_setting
from .model import (
    MarianModel,
    ModelTensors,
    convert_embeddings,
    decoding_options,
    ignored_settings,
    marian_hparams,
)
from .torch_files import read_torch_file
from .vocabulary import (
    NO_ID,
    PAD_TOKEN,
    TokenList,
    marian_file,
    read_sentence_piece,
    read_tokens,
)

WEIGHTS_FILE = "model.safetensors"
TORCH_FILE = "pytorch_model.bin"
CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"
VOCABULARY_FILES = ("vocab.json", "source.spm", "target.spm")
TARGET_VOCABULARY_FILE = "target_vocab.json"

SHARED_EMBEDDING = "model.shared.weight"
SOURCE_EMBEDDING = "model.encoder.embed_tokens.weight"
TARGET_EMBEDDING = "model.decoder.embed_tokens.weight"
SOFTMAX = "lm_head.weight"
OUTPUT_BIAS = "final_logits_bias"

# The epsilon of torch's LayerNorm.
NORM_EPSILON = 1e-5

# transformers' names of the parts of a layer (`layer_weights`).
_SUBLAYER_NAMES = {
    "self_attention": "self_attn.",
    "self_attention_residual": "self_attn_layer_",
    "cross_attention": "encoder_attn.",
    "cross_attention_residual": "encoder_attn_layer_",
    "feed_forward": "",
    "feed_forward_residual": "final_layer_",
}
_MODULE_NAMES = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
    "norm": "norm",
}
_PARAMETER_NAMES = {
    "kernel": "weight",
    "bias": "bias",
    "gamma": "weight",
    "beta": "bias",
}


def hf_name(part: str) -> str:
    """Returns transformers' name of a part of a layer (see `model`)."""
    stack, layer, sublayer, module, parameter = part.split("/")
    scope = f"model.{stack}.layers.{layer.removeprefix('layer_')}"
    name = _SUBLAYER_NAMES[sublayer] + _MODULE_NAMES[module]
    return f"{scope}.{name}.{_PARAMETER_NAMES[parameter]}"


# `Transformer` can represent a model only with these values.
_SUPPORTED: dict[str, object] = {
    "model_type": "marian",
    "normalize_embedding": False,
    "normalize_before": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
    "scale_embedding": True,
}
# If a file lacks these settings, they have values that `Transformer` does not have.
_OTHER_DEFAULTS = {"scale_embedding": False, "activation_function": "gelu"}
# Settings of `generate` that change outputs and have no counterpart, with their
# defaults, which change nothing.
_IGNORED: dict[str, object] = {
    "begin_suppress_tokens": None,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "early_stopping": False,
    "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "forced_bos_token_id": None,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beam_groups": 1,
    "repetition_penalty": 1.0,
    "suppress_tokens": None,
}
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish"}

# Some files hold the sinusoids, which are computed here.
_POSITIONS = (
    "model.encoder.embed_positions.weight",
    "model.decoder.embed_positions.weight",
)


def load_hf_marian(source: str | Path) -> MarianModel:
    """Reads a Marian model in the files of transformers.

    Its position encodings are the paper's in another order (`position="halves"`), and
    its epsilon is 1e-5.

    Args:
        source: the directory with `config.json`, `vocab.json`, `source.spm` and
            `target.spm`, with `target_vocab.json` if source and target have separate
            vocabularies, and with `model.safetensors` or else `pytorch_model.bin`.

    Raises:
        UserError: a file is missing or damaged, or `Transformer` cannot represent the
            model; the message names the setting.
    """
    source = Path(source)
    for name in (CONFIG_FILE, WEIGHTS_FILE, *VOCABULARY_FILES):
        require_fetched_file(source / name)
    config_path = source / CONFIG_FILE
    config = read_json_object(config_path)
    hparams = _convert_config(config, config_path)
    source_vocab = source / "vocab.json"
    target_vocab = source / TARGET_VOCABULARY_FILE
    if not target_vocab.exists():
        target_vocab = source_vocab
    source_list, source_file = _read_vocabulary(source_vocab, source / "source.spm")
    target_list, target_file = _read_vocabulary(target_vocab, source / "target.spm")
    _check_special_ids(config, config_path, target_list, target_vocab)
    tensors = _read_tensors(source)
    check: list[str] = []
    embeddings = _read_embeddings(config, tensors, (source_list, target_list), check)
    hparams, weights = tensors.read_layers(
        hparams, embeddings, hf_name, transposed=True
    )
    # Without this file, transformers takes the settings from the other.
    generation_path = source / GENERATION_FILE
    if not generation_path.exists():
        generation_path = config_path
    generation = {
        name: value
        for name, value in read_json_object(generation_path).items()
        if value is not None
    }
    vocab_paths = dict.fromkeys([str(source_vocab), str(target_vocab)])
    return MarianModel(
        hparams=hparams,
        weights=weights,
        vocabularies=(source_file, target_file),
        took={
            "model": str(tensors.path),
            "settings": str(config_path),
            "vocabularies": list(vocab_paths),
        },
        left_out=[],
        check=[*check, *_check_sentences(generation, generation_path.name)],
        # These are the defaults of `generate`.
        decoding=decoding_options(
            generation_path,
            generation.get("num_beams", 1),
            generation.get("length_penalty", 1.0),
            "num_beams and length_penalty",
        ),
    )


def _convert_config(config: Mapping[str, Any], path: Path) -> ExtendedHParams:
    """Converts the configuration.

    Raises:
        UserError: `Transformer` cannot represent the model.
    """
    config = {**_OTHER_DEFAULTS, **config}
    for name, value in _SUPPORTED.items():
        require_setting(config, path, name, value)
    if config.get("decoder_start_token_id") != config.get("pad_token_id"):
        raise UserError(
            f"{path}: cannot read a model with decoder_start_token_id "
            f"{config.get('decoder_start_token_id')}, which is not pad_token_id"
        )
    for name in ("ffn_dim", "attention_heads"):
        if config.get(f"encoder_{name}") != config.get(f"decoder_{name}"):
            raise UserError(
                f"{path}: cannot read a model whose encoder_{name} and decoder_{name} "
                "differ"
            )
    require_setting(config, path, "activation_function", *_ACTIVATIONS)
    try:
        return marian_hparams(
            path,
            config["encoder_layers"],
            config["decoder_layers"],
            d_model=config["d_model"],
            d_ff=config["encoder_ffn_dim"],
            num_heads=config["encoder_attention_heads"],
            norm_epsilon=NORM_EPSILON,
            activation=_ACTIVATIONS[config["activation_function"]],
            position="halves",
            dropout=config.get("dropout", 0.1),
            attention_dropout=config.get("attention_dropout", 0.0),
            ffn_dropout=config.get("activation_dropout", 0.0),
        )
    except KeyError as error:
        raise UserError(f"{path} has no {error}") from None


def _read_vocabulary(path: Path, model_path: Path) -> tuple[TokenList, bytes]:
    """Returns the tokens of a side, and the content of its `.marian` file."""
    tokens = read_tokens(path)
    model = read_sentence_piece(model_path)
    return tokens, marian_file(model, tokens.tokens, model_path)


def _check_special_ids(
    config: Mapping[str, object],
    config_path: Path,
    target_tokens: TokenList,
    target_vocab: Path,
) -> None:
    """Raises UserError if padding or EOS have other ids than in the configuration."""
    for name, row in (("pad_token_id", PAD), ("eos_token_id", EOS)):
        token_id = target_tokens.original_ids[row]
        if token_id == NO_ID:
            raise UserError(f"{target_vocab} has no {PAD_TOKEN}")
        if config.get(name) != token_id:
            raise UserError(
                f"{config_path} has {name} {config.get(name)}, and in {target_vocab} "
                f"it is {token_id}"
            )


def _read_tensors(source: Path) -> ModelTensors:
    """Reads all tensors of the model in a directory.

    Raises:
        UserError: their file is missing or damaged.
    """
    path = source / WEIGHTS_FILE
    if path.exists():
        return ModelTensors(path, _read_safetensors(path), "tensor", CONFIG_FILE)
    torch_path = source / TORCH_FILE
    if not torch_path.exists():
        raise UserError(f"{source} has neither {WEIGHTS_FILE} nor {TORCH_FILE}")
    return ModelTensors(torch_path, read_torch_file(torch_path), "tensor", CONFIG_FILE)


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    require_extra("marian", WEIGHTS_FILE, "safetensors")
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or incomplete ({error})") from None


def _read_embeddings(
    config: Mapping[str, object],
    tensors: ModelTensors,
    token_lists: tuple[TokenList, TokenList],
    check: list[str],
) -> dict[str, np.ndarray]:
    """Returns our embedding matrices and the output bias.

    Args:
        config: the configuration.
        tensors: the model's tensors.
        token_lists: the tokens of source and target.
        check: gets a sentence about copies of a matrix that differ.

    Raises:
        UserError: see `convert_embeddings`.
    """
    is_tied = config.get("tie_word_embeddings", True)
    target_names = [TARGET_EMBEDDING, *([SOFTMAX] if is_tied else [])]
    if config.get("share_encoder_decoder_embeddings", True):
        shared_names = [SHARED_EMBEDDING, SOURCE_EMBEDDING, *target_names]
        source = target = _read_tied(tensors, shared_names, check)
    else:
        source = tensors.read(SOURCE_EMBEDDING)
        target = _read_tied(tensors, target_names, check)
    softmax = None if is_tied else tensors.read(SOFTMAX)
    # Old files may hold a shared matrix that neither side uses.
    tensors.skip(SHARED_EMBEDDING, *_POSITIONS)
    bias = tensors.read(OUTPUT_BIAS).reshape(-1)
    return convert_embeddings(tensors.path, token_lists, source, target, softmax, bias)


def _read_tied(
    tensors: ModelTensors, names: Sequence[str], check: list[str]
) -> np.ndarray:
    """Reads a matrix that a file may hold under several names.

    If copies differ, the first is taken, as by transformers 4.

    Args:
        tensors: the model's tensors.
        names: the names, first the original's.
        check: gets a sentence about copies that differ.
    """
    original, *copies = [name for name in names if tensors.has(name)] or names[:1]
    matrix = tensors.read(original)
    differing = [
        name for name in copies if not np.array_equal(tensors.read(name), matrix)
    ]
    if differing:
        check.append(
            f"{tensors.path.name}: {original} was taken for {' and '.join(differing)}, "
            f"which differs, because {CONFIG_FILE} says that they are one matrix"
        )
    return matrix


def _check_sentences(generation: Mapping[str, Any], name: str) -> list[str]:
    """Returns sentences about the settings of `generate` in a file of this name."""
    neutral = {**_IGNORED, "bad_words_ids": [[generation.get("pad_token_id")]]}
    ignored = {
        key: generation[key]
        for key, value in neutral.items()
        if generation.get(key, value) != value
    }
    return ignored_settings(name, ignored)
