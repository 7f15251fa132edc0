"""Reads models in the files of Marian (https://marian-nmt.github.io).

A model is an `.npz` file, which also holds its settings, and a `decoder.yml`. OPUS-MT
publishes such models with `source.spm` and `target.spm`.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.errors import UserError, quantity
from t2t_keras.files.config_files import parse_yaml
from t2t_keras.files.text_files import ZIP_DAMAGE, read_text, require_fetched_file

from ..extended_transformer import ExtendedHParams
from ..given_settings import require_setting
from .model import (
    MarianModel,
    ModelTensors,
    convert_embeddings,
    decoding_options,
    ignored_settings,
    marian_hparams,
)
from .vocabulary import (
    TokenList,
    marian_file,
    read_sentence_piece,
    read_tokens,
)

# Weights hardly compress. A file whose content is larger than this many times its size
# is damaged, or made to fill the memory.
_MAX_COMPRESSION = 100
_SETTINGS = "special:model.yml"

# `Transformer` can represent a model only with these values. If a file of an older
# version lacks a setting, the first value is meant.
_SUPPORTED: dict[str, tuple[object, ...]] = {
    "type": ("transformer",),
    "lemma-dim-emb": (0,),
    "right-left": (False,),
    "transformer-attention-mask": ("default",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (2, 0),
    "transformer-disable-position-embeddings": (False,),
    "transformer-no-affine": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-projection": (False,),
    "transformer-pool": (False,),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-tied-layers": ([],),
    "transformer-train-position-embeddings": (False,),
}

# Types of input that only training reads.
_TRAINING_TYPES = ("alignment", "weight")

# The values of these settings decide where the norm is: n is the layer norm, d is
# dropout, a adds the residual.
_NORM_SETTINGS = (
    "transformer-preprocess",
    "transformer-postprocess",
    "transformer-postprocess-top",
)
_NORMS = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}

# The default of Marian's decoder.
_DEFAULT_BEAM_SIZE = 12
# Settings of the decoder that change outputs and have no counterpart.
_IGNORED = (
    *("word-penalty", "shortlist", "output-sampling", "output-approx-knn"),
    *("skip-cost", "allow-special", "force-decode"),
)

# Marian's names of the parts of a layer (`layer_weights`), after "encoder_l1_".
_PART_NAMES = {
    "self_attention": "self",
    "cross_attention": "context",
    "feed_forward": "ffn",
    "query": "q",
    "key": "k",
    "value": "v",
    "output": "o",
    "inner": "1",
    "outer": "2",
}


def load_marian(source: str | Path) -> MarianModel:
    """Reads a Marian model.

    Marian's position encodings are tensor2tensor's, and its epsilon is 1e-6.

    Args:
        source: the directory, with one `*decoder.yml` that names the model and the
            vocabularies; or the path of such a file.

    Raises:
        UserError: a file is missing or not Marian's, or `Transformer` cannot represent
            the model; the message names the setting.
    """
    config_path = _find_decoder_config(Path(source))
    config = _parse_yaml(read_text(config_path), config_path)
    model_paths = _listed_paths(config, "models", config_path)
    vocab_paths = _listed_paths(config, "vocabs", config_path)
    if len(model_paths) != 1 or len(vocab_paths) != 2:
        raise UserError(
            f"{config_path} names {quantity(len(model_paths), 'models')} and "
            f"{quantity(len(vocab_paths), 'vocabularies', 'vocabulary')}; a run has "
            "one model, and a vocabulary for source and target"
        )
    for path in (*model_paths, *vocab_paths):
        require_fetched_file(path)
    variables, settings = _read_npz(model_paths[0])
    hparams = _convert_settings(settings, model_paths[0])
    source_list, source_file = _read_vocabulary(vocab_paths[0], "source")
    target_list, target_file = _read_vocabulary(vocab_paths[1], "target")
    hparams, weights = variables.read_layers(
        hparams,
        _read_embeddings(variables, settings, (source_list, target_list)),
        lambda part: _marian_name(part, hparams.norm),
    )
    return MarianModel(
        hparams=hparams,
        weights=weights,
        vocabularies=(source_file, target_file),
        took={
            "model": str(model_paths[0]),
            "settings": f"{_SETTINGS} in it",
            "vocabularies": [str(path) for path in dict.fromkeys(vocab_paths)],
        },
        left_out=["dropout and the settings of training, which the model lacks"],
        check=_check_sentences(config, config_path),
        decoding=decoding_options(
            config_path,
            config.get("beam-size", _DEFAULT_BEAM_SIZE),
            config.get("normalize", 0),
            "beam-size and normalize",
        ),
    )


def _find_decoder_config(source: Path) -> Path:
    """Returns the path of the configuration of Marian's decoder.

    Raises:
        UserError: no file or several files may be it.
    """
    if source.suffix == ".npz":
        source = source.parent
    if source.is_file():
        return source
    paths = sorted(source.glob("*decoder.yml"))
    if len(paths) != 1:
        names = ", ".join(path.name for path in paths) or "none"
        raise UserError(
            f"{source} must have one decoder.yml, and has {names}; give the path of "
            "one as SOURCE"
        )
    return paths[0]


def _listed_paths(config: Mapping[str, object], key: str, path: Path) -> list[Path]:
    """Returns the files that the configuration in `path` lists under a key.

    Raises:
        UserError: one of them is missing.
    """
    names = config.get(key)
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, list):
        return []
    is_relative = bool(config.get("relative-paths"))
    return [_listed_path(str(name), path.parent, is_relative) for name in names]


def _listed_path(name: str, folder: Path, is_relative: bool) -> Path:
    """Returns the file that the configuration in a folder names.

    Args:
        name: the path in the configuration.
        folder: the folder.
        is_relative: whether the path is relative to the folder. Otherwise it is that of
            the machine of the training, and the files of a copied model are in the
            folder.

    Raises:
        UserError: there is no such file.
    """
    beside = folder / name
    paths = [beside] if is_relative else [Path(name), beside, folder / Path(name).name]
    for path in paths:
        if path.is_file():  # a device would be read for ever
            return path
    raise UserError(f"there is no file {beside}, which decoder.yml names")


def _check_sentences(config: Mapping[str, Any], config_path: Path) -> list[str]:
    """Returns sentences about what the user should check."""
    ignored = {name: config[name] for name in _IGNORED if config.get(name)}
    sentences = ignored_settings(config_path.name, ignored)
    for script in ("preprocess.sh", "postprocess.sh"):
        if (config_path.parent / script).exists():
            sentences.append(f"{script}: only its SentencePiece step is done here")
    return sentences


def _parse_yaml(text: str, path: Path) -> dict[str, Any]:
    """Returns the mapping in a YAML text.

    Raises:
        UserError: it is not YAML, or not a mapping.
    """
    values = parse_yaml(text, str(path))
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a mapping in YAML")
    return values


def _read_npz(path: Path) -> tuple[ModelTensors, dict[str, Any]]:
    """Reads a model's variables and settings.

    Raises:
        UserError: the file is not a Marian model that can be read.
    """
    try:
        with zipfile.ZipFile(path) as archive, np.load(path) as file:
            size = sum(member.file_size for member in archive.infolist())
            if size > _MAX_COMPRESSION * path.stat().st_size:
                raise ValueError(f"its arrays would have {size:,} bytes")
            arrays = dict(file)
    except ZIP_DAMAGE as error:
        raise UserError(
            f"{path} is not a Marian model in NumPy's format, .npz ({error}); fetch it "
            "again, or convert a .bin file with marian-conv"
        ) from None
    if _SETTINGS not in arrays:
        raise UserError(f"{path} has no {_SETTINGS}, which every Marian model has")
    text = arrays.pop(_SETTINGS).tobytes().rstrip(b"\0")
    settings = _parse_yaml(text.decode("utf-8", "replace"), path)
    for name, array in arrays.items():
        # Marian stores vectors as matrices of one row.
        if array.shape[:1] == (1,) and not name.endswith("Wemb"):
            arrays[name] = array[0]
    return ModelTensors(path, arrays, "variable", "settings"), settings


def _convert_settings(settings: Mapping[str, Any], path: Path) -> ExtendedHParams:
    """Converts the settings of a model.

    Raises:
        UserError: `Transformer` cannot represent the model.
    """
    settings = {name: x for name, x in settings.items() if x is not None}
    for name, values in _SUPPORTED.items():
        require_setting(settings, path, name, *values)
    _require_two_texts(settings, path)
    norm_values = tuple(settings.get(name, "") for name in _NORM_SETTINGS)
    if norm_values not in _NORMS:
        pairs = zip(_NORM_SETTINGS, norm_values, strict=True)
        listed = ", ".join(f"{name} '{value}'" for name, value in pairs)
        raise UserError(
            f"{path}: cannot read a model with {listed}; only with '', 'dan', '' or "
            "with 'n', 'da', 'n'"
        )
    activation = "transformer-ffn-activation"
    require_setting(settings, path, activation, "swish", "relu")
    d_ff = settings.get("transformer-dim-ffn")
    require_setting(settings, path, "transformer-decoder-dim-ffn", 0, d_ff)
    try:
        return marian_hparams(
            path,
            settings["enc-depth"],
            settings["dec-depth"],
            d_model=settings["dim-emb"],
            d_ff=settings["transformer-dim-ffn"],
            num_heads=settings["transformer-heads"],
            norm=_NORMS[norm_values],
            activation=settings.get(activation, "swish"),
            position="t2t",
        )
    except KeyError as error:
        raise UserError(f"{path}: its settings have no {error}") from None


def _require_two_texts(settings: Mapping[str, Any], path: Path) -> None:
    """Raises UserError if the model reads other input than source and target."""
    types = settings.get("input-types") or ["sequence", "sequence"]
    if [x for x in types if x not in _TRAINING_TYPES] != ["sequence", "sequence"]:
        raise UserError(
            f"{path}: cannot read a model with input-types {types!r:.80}, only with "
            "those of a source and a target, 'sequence' and 'sequence'"
        )


def _read_vocabulary(path: Path, side: str) -> tuple[TokenList, bytes]:
    """Reads the vocabulary of a side.

    Returns:
        The tokens, and the content of the `.marian` file.

    Raises:
        UserError: a file is missing, or not Marian's.
    """
    is_model = path.suffix == ".spm"
    model_path = path if is_model else path.with_name(f"{side}.spm")
    pairs_path = path.with_name(f"{side}.bpe")
    if not model_path.exists() and pairs_path.exists():
        raise UserError(
            f"{pairs_path} splits the texts of the {side} into byte pairs, which is "
            "not done here; take a release whose README says SentencePiece"
        )
    if not model_path.exists():
        raise UserError(
            f"there is no {model_path}, the SentencePiece model that splits the texts "
            f"of the {side}; put it there"
        )
    model = read_sentence_piece(model_path)
    if is_model:
        # Marian reads it without a list of tokens.
        pieces = [piece.piece for piece in model.pieces]
        tokens = TokenList.from_tokens(pieces, path)
    else:
        tokens = read_tokens(path)
    return tokens, marian_file(model, tokens.tokens, model_path)


def _read_embeddings(
    variables: ModelTensors,
    settings: Mapping[str, Any],
    token_lists: tuple[TokenList, TokenList],
) -> dict[str, np.ndarray]:
    """Returns our embedding matrices and the output bias.

    If the settings tie the softmax matrix, Marian reads no other one.

    Raises:
        UserError: see `convert_embeddings`.
    """
    if variables.has("Wemb"):
        source = variables.read("Wemb")
        target = source
    else:
        source = variables.read("encoder_Wemb")
        target = variables.read("decoder_Wemb")
    softmax = None
    is_tied = settings.get("tied-embeddings-all") or settings.get("tied-embeddings")
    if not is_tied and variables.has("decoder_ff_logit_out_W"):
        softmax = variables.read("decoder_ff_logit_out_W").T
    elif not is_tied and variables.has("decoder_ff_logit_out_Wt"):
        softmax = variables.read("decoder_ff_logit_out_Wt")
    bias = np.zeros(len(target), np.float32)
    if variables.has("decoder_ff_logit_out_b"):
        bias = variables.read("decoder_ff_logit_out_b")
    return convert_embeddings(
        variables.path, token_lists, source, target, softmax, bias
    )


def _marian_name(part: str, norm: str) -> str:
    """Returns Marian's name of a part of a layer (`layer_weights`)."""
    stack, *layer_and_sublayer, name, parameter = part.split("/")
    suffix = "ln_scale" if parameter == "gamma" else "ln_bias"
    if not layer_and_sublayer:
        return f"{stack}_top_{suffix}"
    layer, sublayer = layer_and_sublayer
    sublayer = sublayer.removesuffix("_residual")
    layer_number = int(layer.removeprefix("layer_")) + 1
    scope = f"{stack}_l{layer_number}_{_PART_NAMES[sublayer]}"
    if name != "norm":
        letter = "W" if parameter == "kernel" else "b"
        return f"{scope}_{letter}{_PART_NAMES[name]}"
    operation = "ffn" if sublayer == "feed_forward" else "Wo"
    return f"{scope}_{operation}_{suffix}" + ("_pre" if norm == "pre" else "")
