"""Reads Marian models in the form of Hugging Face transformers (`MarianMTModel`)."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.data.files import read_given_json
from t2t_keras.hparam import HParams
from t2t_keras.option import UserError, require_extra
from t2t_keras.text.tokenizer import EOS, PAD

from .marian_vocabulary import (
    NO_ROW,
    PAD_TOKEN,
    read_model,
    read_tokens,
    with_tokens,
)
from .marian_weights import (
    MarianModel,
    Tensors,
    embeddings,
    marian_hparams,
)

WEIGHTS, CONFIG = "model.safetensors", "config.json"
SEARCH = "generation_config.json"
NORM_EPSILON = 1e-5  # of torch's LayerNorm
SHARED = "model.shared.weight"
OF_SIDE = "model.{}.embed_tokens.weight"
SOFTMAX = "lm_head.weight"
BIAS = "final_logits_bias"
_POSITIONS = "model.{}.embed_positions.weight"  # a table of sinusoids, if it is there

# With other values than these, the model differs from `Transformer`.
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "model_type": ("marian",),
    "scale_embedding": (True,),
    "normalize_embedding": (False,),
    "normalize_before": (False,),
    "add_final_layer_norm": (False,),
    "static_position_embeddings": (True,),
}
_ACTIVATIONS = {"relu": "relu", "swish": "swish", "silu": "swish"}

# Our parts of a layer (`marian_weights`) -> theirs.
_PARTS = {
    "self_attention": "self_attn.",
    "cross_attention": "encoder_attn.",
    "feed_forward": "",
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "output": "out_proj",
    "inner": "fc1",
    "outer": "fc2",
    "kernel": "weight",
    "bias": "bias",
}
_NORMS = {
    "self_attention": "self_attn_layer_norm",
    "cross_attention": "encoder_attn_layer_norm",
    "feed_forward": "final_layer_norm",
    "gamma": "weight",
    "beta": "bias",
}


def load_hf_marian(source: str | Path) -> MarianModel:
    """Reads a Marian model that `save_pretrained` has written.

    Its position encodings are the paper's in another order (`position="halves"`), and
    its epsilon is 1e-5.

    Args:
        source: the directory with `config.json`, `model.safetensors`, `vocab.json`,
            `source.spm` and `target.spm`, and with `target_vocab.json` if the
            vocabularies of source and target are separate.

    Raises:
        UserError: a file is missing or not as expected, or describes a model that
            `Transformer` cannot represent; the message names the setting.
    """
    require_extra("marian", "a model of Marian", "safetensors")
    source = Path(source)
    config = read_given_json(source / CONFIG)
    if not isinstance(config, dict):
        raise UserError(f"{source / CONFIG} is not a JSON object")
    hparams = _hparams(config, source / CONFIG)
    lists, contents = [], []
    own = source / "target_vocab.json"  # absent if one list serves both languages
    files = {"source": source / "vocab.json"}
    files["target"] = own if own.exists() else files["source"]
    for side, file in files.items():
        lists.append(read_tokens(file))
        splits = source / f"{side}.spm"
        contents.append(with_tokens(read_model(splits), lists[-1].tokens, splits))
    for name, row in (("pad_token_id", PAD), ("eos_token_id", EOS)):
        id_there = lists[1].rows[row]
        if id_there == NO_ROW:
            raise UserError(f"{files['target']} has no {PAD_TOKEN}")
        if config.get(name) != id_there:
            raise UserError(
                f"{source / CONFIG} has {name} {config.get(name)}, and in "
                f"{files['target']} it is {id_there}"
            )
    tensors = _tensors(source)

    def first(*names: str) -> np.ndarray:
        """Reads one of several tensors that are the same where they are present."""
        matrix = tensors.read(next(filter(tensors.has, names), names[0]))
        tensors.skip(*names)
        return matrix

    of_source, of_target = (OF_SIDE.format(side) for side in ("encoder", "decoder"))
    softmax = None
    if not config.get("tie_word_embeddings", True):
        softmax = tensors.read(SOFTMAX)
        target_matrix, source_matrix = tensors.read(of_target), tensors.read(of_source)
    elif config.get("share_encoder_decoder_embeddings", True):
        source_matrix = first(SHARED, of_source, of_target, SOFTMAX)
        target_matrix = source_matrix
    else:
        source_matrix = tensors.read(of_source)
        target_matrix = first(of_target, SOFTMAX)
    tensors.skip(SHARED)  # if it is there, it is used by neither side
    tables = embeddings(
        tensors.path,
        (lists[0], lists[1]),
        source_matrix,
        target_matrix,
        softmax,
        tensors.read(BIAS).reshape(-1),
    )
    tensors.skip(*(_POSITIONS.format(stack) for stack in ("encoder", "decoder")))
    hparams, weights = tensors.read_all(hparams, tables, hf_name, transposed=True)
    check, options = [], _search_options(source / SEARCH)
    if options:
        given = ",".join(f"{name}={value}" for name, value in options.items())
        flag = f"--decode_hparams {given}"
        check.append(f"{SEARCH}: it translates with what is here {flag}")
    return MarianModel(
        hparams=hparams,
        weights=weights,
        vocabularies=(contents[0], contents[1]),
        took={
            "model": str(tensors.path),
            "settings": str(source / CONFIG),
            "vocabularies": [str(file) for file in dict.fromkeys(files.values())],
        },
        left_out=[],
        check=check,
        options=options,
    )


def _search_options(path: Path) -> dict[str, Any]:
    """Returns the options of decoding for the search that a file configures.

    Args:
        path: `generation_config.json`, which may be missing.
    """
    config = read_given_json(path) if path.exists() else {}
    if not isinstance(config, dict):
        raise UserError(f"{path} is not a JSON object")
    options: dict[str, Any] = {}
    if beam := config.get("num_beams"):
        power = float(config.get("length_penalty", 1.0))
        options = {"beam_size": beam, "length_penalty": "power", "alpha": power}
    return options


def _hparams(config: dict[str, Any], path: Path) -> HParams:
    """Converts the configuration.

    Raises:
        UserError: it describes another model than `Transformer`.
    """
    for name, allowed in _MUST_BE.items():
        if config.get(name, allowed[0]) not in allowed:
            raise UserError(
                f"{path}: cannot read a model with {name} {config[name]!r}, only with "
                f"{allowed[0]!r}"
            )
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
    activation = str(config.get("activation_function", "gelu"))
    if activation not in _ACTIVATIONS:
        raise UserError(
            f"{path}: cannot read a model with activation_function '{activation}', "
            f"only with {', '.join(_ACTIVATIONS)}"
        )
    try:
        return marian_hparams(
            path,
            config["encoder_layers"],
            config["decoder_layers"],
            d_model=config["d_model"],
            d_ff=config["encoder_ffn_dim"],
            num_heads=config["encoder_attention_heads"],
            norm_epsilon=NORM_EPSILON,
            activation=_ACTIVATIONS[activation],
            position="halves",
            dropout=config.get("dropout", 0.1),
            attention_dropout=config.get("attention_dropout", 0.0),
            ffn_dropout=config.get("activation_dropout", 0.0),
        )
    except KeyError as error:
        raise UserError(f"{path} has no {error}") from None


def _tensors(directory: Path) -> Tensors:
    """Reads all tensors.

    Raises:
        UserError: the file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = directory / WEIGHTS
    if not path.exists():
        raise UserError(
            f"there is no {path}; `MarianMTModel.from_pretrained(...)."
            "save_pretrained(...)` of transformers writes it"
        )
    try:
        return Tensors(path, load_file(path), "tensor", CONFIG)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or incomplete ({error})") from None


_PART = re.compile(r"(\w+)/layer_(\d+)/(\w+)/(\w+)/(\w+)")
_NORM = re.compile(r"(\w+)/layer_(\d+)/(\w+)_residual/norm/(\w+)")


def hf_name(part: str) -> str:
    """Returns their name of a part of a layer (`marian_weights`)."""
    if match := _NORM.fullmatch(part):
        stack, number, kind, parameter = match.groups()
        return f"model.{stack}.layers.{number}.{_NORMS[kind]}.{_NORMS[parameter]}"
    match = _PART.fullmatch(part)
    assert match
    stack, number, kind, name, parameter = match.groups()
    scope = f"model.{stack}.layers.{number}.{_PARTS[kind]}"
    return f"{scope}{_PARTS[name]}.{_PARTS[parameter]}"
