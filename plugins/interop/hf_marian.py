"""Marian models in the form of Hugging Face transformers: imported and exported.

`load_hf_marian` reads what `MarianMTModel.save_pretrained` writes, and
`export_hf_marian` writes what `MarianMTModel.from_pretrained` reads.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.data.json_files import write_json
from t2t_keras.decoding.translator import Translator
from t2t_keras.errors import UserError, require_extra
from t2t_keras.export.formats import (
    replaced,
    require_free,
    require_quantization,
    size_of,
)
from t2t_keras.export.verify import Output, Verification
from t2t_keras.model import build_model
from t2t_keras.model.transformer import Transformer
from t2t_keras.pointer_files import require_fetched_file
from t2t_keras.text.sentence_piece import SentencePieceTokenizer
from t2t_keras.text.tokenizer import EOS, PAD, Tokenizer

from .given_json import read_given_json
from .marian import (
    NO_ROW,
    PAD_TOKEN,
    MarianModel,
    MarianTokenizer,
    Tensors,
    embeddings,
    layer_weights,
    marian_hparams,
    read_model,
    read_tokens,
    token_of,
    with_tokens,
)
from .models import ExtendedHParams

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

# Our parts of a layer (`marian.layer_weights`) -> theirs.
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
    for name in (CONFIG, WEIGHTS, "vocab.json", "source.spm", "target.spm"):
        require_fetched_file(source / name)
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


def _hparams(config: dict[str, Any], path: Path) -> ExtendedHParams:
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
    """Returns their name of a part of a layer (`marian.layer_weights`)."""
    if match := _NORM.fullmatch(part):
        stack, number, kind, parameter = match.groups()
        return f"model.{stack}.layers.{number}.{_NORMS[kind]}.{_NORMS[parameter]}"
    match = _PART.fullmatch(part)
    assert match
    stack, number, kind, name, parameter = match.groups()
    scope = f"model.{stack}.layers.{number}.{_PARTS[kind]}"
    return f"{scope}{_PARTS[name]}.{_PARTS[parameter]}"


def export_hf_marian(
    translator: Translator,
    export_dir: str | Path,
    *,
    quantization: str | None = None,
    overwrite: bool = False,
    verify: Verification | None = None,
    max_source_length: int | None = None,
    extra_length: int | None = None,
) -> int:
    """Writes a directory that `MarianMTModel.from_pretrained` loads.

    `MarianTokenizer.from_pretrained` loads the vocabularies. Post-norm models with the
    paper's positions can be expressed. Sines and cosines are in another order there,
    and so are the columns of all vectors of the width D; the layer norm's epsilon is
    1e-5, not 1e-6. If the row of padding in the softmax matrix is not zero, there are
    three matrices in place of one: padding, with which the decoder starts, is embedded
    as zeros.

    `generate` divides scores by length ** length_penalty, which is not the paper's
    length penalty.

    Args:
        translator: the translator to export, with float32 weights.
        export_dir: the directory to write.
        quantization: must be None: the weights are float32.
        overwrite: whether to replace an earlier export.
        verify: the sentences with which the export is verified before it appears, by
            greedy search in transformers and with the run, which gets the same epsilon
            for it; None: it is not verified.
        max_source_length: see `DecodingOptions`; None: the translator's.
        extra_length: likewise.

    Returns:
        The size of the export in bytes.

    Raises:
        UserError: transformers cannot express the model or is not installed;
            `export_dir` is not empty, and it is no export or `overwrite` is false; or
            the verification fails.
    """
    require_extra("marian", "a model of Marian", "safetensors")
    if verify is not None:
        _require_transformers()
    require_quantization(quantization, "hf-marian")
    model = _expressible(translator)
    require_free(Path(export_dir), overwrite)
    lengths = {"max_source_length": max_source_length, "extra_length": extra_length}
    chosen = translator.choose(**{k: v for k, v in lengths.items() if v is not None})
    longest = chosen.max_source_length + chosen.extra_length + 1
    with replaced(Path(export_dir)) as new:
        new.mkdir(parents=True)
        tensors = _exported_tensors(model)
        _write_tensors(tensors, new / WEIGHTS)
        write_json(new / CONFIG, _config(model, tensors, longest))
        search = {
            **_special_ids(),
            "bad_words_ids": [[PAD]],
            "num_beams": chosen.beam_size,
            "length_penalty": chosen.alpha,
            "max_length": longest,
        }
        write_json(new / SEARCH, search)
        _write_tokenizers(translator, new)
        if verify is not None:
            verify.expect_greedy(_as_there(translator, model), chosen)
            verify.check(_greedy(new, chosen.extra_length))
    return size_of(Path(export_dir))


def _require_transformers() -> None:
    """Refuses to go on without transformers.

    Raises:
        UserError: it is not installed.
    """
    try:
        from transformers import MarianMTModel  # noqa: F401
    except ImportError:
        raise UserError(
            "--format hf-marian needs transformers and torch for the verification; "
            "install them, or give --verify 0"
        ) from None


def _expressible(translator: Translator) -> Transformer:
    """Returns the translator's model.

    Raises:
        UserError: it is none that `MarianMTModel` computes.
    """
    instead = "transformers' Marian models cannot express it; export another format"
    model = translator.model
    if not isinstance(model, Transformer):
        raise UserError(f"the translator is an ensemble, and {instead}")
    if model.hparams.model not in ("transformer", "extended_transformer"):
        raise UserError(f"the model is '{model.hparams.model}', and {instead}")
    hparams = ExtendedHParams.of(model.hparams)
    allowed: dict[str, tuple[Any, ...]] = {
        "norm": ("post",),
        "attention": ("scaled",),
        "attention_window": (0,),
        "position": ("sinusoidal", "halves"),
        "target_space": (False,),
        "d_k": (0, hparams.d_model // hparams.num_heads),
        "d_v": (0, hparams.d_model // hparams.num_heads),
    }
    for name, values in allowed.items():
        if (value := getattr(hparams, name)) not in values:
            raise UserError(f"hparams: {name} is '{value}', and {instead}")
    if hparams.norm_epsilon > NORM_EPSILON:
        raise UserError(
            f"hparams: norm_epsilon is {hparams.norm_epsilon}, which is {NORM_EPSILON} "
            f"there: {instead}"
        )
    if translator.options.constraint != "none":
        raise UserError(
            f"problem '{translator.problem.name}' has the constraint "
            f"'{translator.options.constraint}', and {instead}"
        )
    for tokenizer in (translator.source_tokenizer, translator.target_tokenizer):
        if not isinstance(tokenizer, SentencePieceTokenizer | MarianTokenizer):
            raise UserError(f"a vocabulary is not of SentencePiece, and {instead}")
    return model


def _as_there(translator: Translator, model: Transformer) -> Translator:
    """Returns the translator with the arithmetic and the epsilon of transformers.

    With another epsilon the scores of some outputs differ by a few 1e-4.
    """
    changes = {"compute_dtype": "float32", "norm_epsilon": NORM_EPSILON}
    hparams = ExtendedHParams.of(model.hparams, **changes)
    sizes = model.source_vocab_size, model.target_vocab_size
    other = build_model(hparams, *sizes)
    other.set_weights(model.get_weights())
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    return Translator(translator.problem, other, *tokenizers)


def _exported_tensors(model: Transformer) -> dict[str, np.ndarray]:
    """Returns the weights under the names of `MarianMTModel`."""
    hparams = model.hparams
    d_model = hparams.d_model
    order = np.arange(d_model)  # of the columns of a vector [D]
    if hparams.position == "sinusoidal":
        order = np.concatenate([order[0::2], order[1::2]])
    weights = {
        variable.path.partition("/")[2]: np.asarray(variable, np.float32)
        for variable in model.trainable_variables
    }
    tensors = {}
    for name, parts in layer_weights(hparams):
        scope, _, parameter = name.rpartition("/")
        array = weights.get(name)
        if array is None:  # an attention without biases
            array = np.zeros(weights[f"{scope}/kernel"].shape[1], np.float32)
        takes_states = not scope.endswith(("/output", "/outer", "/norm"))
        if parameter == "kernel" and takes_states:
            array = array[order]
        elif not takes_states:
            array = array[..., order]
        for part, block in zip(parts, np.split(array, len(parts), -1), strict=True):
            tensors[hf_name(part)] = block.T
    source, target, softmax = (
        np.asarray(embedding.table, np.float32)[:, order]
        for embedding in (
            model.source_embedding,
            model.target_embedding,
            model.softmax_embedding,
        )
    )
    source[PAD] = target[PAD] = 0
    bias = weights.get("output_bias", np.zeros(len(softmax), np.float32))
    tensors[BIAS] = bias[None]
    if not np.array_equal(target, softmax):
        tensors[SOFTMAX] = softmax
    elif model.target_vocab_size is None and np.array_equal(source, target):
        return tensors | {SHARED: source}
    tensors[OF_SIDE.format("encoder")] = source
    tensors[OF_SIDE.format("decoder")] = target
    return tensors


def _write_tensors(tensors: dict[str, np.ndarray], path: Path) -> None:
    """Writes a safetensors file; it is marked as transformers expects it."""
    from safetensors.numpy import save_file

    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(arrays, path, metadata={"format": "pt"})


def _special_ids() -> dict[str, int | None]:
    return {
        "pad_token_id": PAD,
        "eos_token_id": EOS,
        "decoder_start_token_id": PAD,
        "forced_eos_token_id": None,
        "bos_token_id": None,
    }


def _config(
    model: Transformer, tensors: dict[str, np.ndarray], longest: int
) -> dict[str, Any]:
    """Returns the content of `config.json`."""
    hparams = ExtendedHParams.of(model.hparams)
    sides = {
        "layers": (hparams.num_layers, hparams.decoder_layers),
        "attention_heads": (hparams.num_heads,) * 2,
        "ffn_dim": (hparams.d_ff,) * 2,
    }
    return {
        "model_type": "marian",
        "architectures": ["MarianMTModel"],
        "is_encoder_decoder": True,
        "dtype": "float32",
        "vocab_size": model.source_vocab_size,
        "decoder_vocab_size": model.target_vocab_size or model.source_vocab_size,
        "share_encoder_decoder_embeddings": SHARED in tensors,
        "tie_word_embeddings": SOFTMAX not in tensors,
        "d_model": hparams.d_model,
        **{f"encoder_{name}": encoder for name, (encoder, _) in sides.items()},
        **{f"decoder_{name}": decoder for name, (_, decoder) in sides.items()},
        "activation_function": hparams.activation,
        "dropout": hparams.dropout,
        "attention_dropout": hparams.attention_dropout,
        "activation_dropout": hparams.ffn_dropout,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "max_position_embeddings": longest,
        **_special_ids(),
    }


def _write_tokenizers(translator: Translator, path: Path) -> None:
    """Writes what `MarianTokenizer` reads."""
    source, target = translator.source_tokenizer, translator.target_tokenizer
    is_one = source.pieces == target.pieces
    write_json(path / "vocab.json", _ids(source))
    if not is_one:
        write_json(path / "target_vocab.json", _ids(target))
    source.save(path / "source.spm")
    target.save(path / "target.spm")
    write_json(
        path / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "separate_vocabs": not is_one,
            "pad_token": source.pieces[PAD],
            "eos_token": source.pieces[EOS],
            "unk_token": "<unk>",
        },
    )


def _ids(tokenizer: Tokenizer) -> dict[str, int]:
    """Returns the id of each token."""
    return {token_of(piece): i for i, piece in enumerate(tokenizer.pieces)}


def _greedy(path: Path, extra_length: int) -> Callable[[list[list[int]]], list[Output]]:
    """Returns the greedy search of the exported model in transformers."""
    import torch
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(path).eval()

    def translate(sources: list[list[int]]) -> list[Output]:
        outputs = []
        for source in sources:
            ids = torch.tensor([source])
            with torch.no_grad():
                (found,) = model.generate(
                    ids,
                    num_beams=1,
                    do_sample=False,
                    max_length=None,
                    max_new_tokens=len(source) + extra_length,
                )
                target = found[1:]
                logits = model(ids, labels=target[None]).logits[0]
                scores = torch.log_softmax(logits, -1)
                score = scores[torch.arange(len(target)), target].sum()
            outputs.append(Output(tuple(target.tolist()), float(score)))
        return outputs

    return translate
