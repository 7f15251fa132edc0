"""Reads models of Marian (https://marian-nmt.github.io), and makes runs of them.

A model is an `.npz` file, which has its settings too, and a `decoder.yml`. OPUS-MT
publishes such models with `source.spm` and `target.spm`.
"""

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras import registry
from t2t_keras.data.text_files import read_text
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.pointer_files import require_fetched_file

from .hf_marian import load_hf_marian
from .imported_run import (
    DEFAULT_PROBLEM,
    ImportedRun,
    VocabularyFile,
    require_empty,
    write_run,
)
from .marian import (
    MarianModel,
    Tensors,
    TokenList,
    embeddings,
    marian_hparams,
    read_model,
    read_tokens,
    tokens_of,
    with_tokens,
)

# Weights can hardly be compressed: what is larger than this many times its file is
# damaged, or made to fill the memory.
_LARGEST_RATIO = 100
_SETTINGS = "special:model.yml"

# With other values than these, Marian's model differs from `Transformer`. Files of
# older versions lack some settings, whose values were the first ones.
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "input-types": ([],),
    "lemma-dim-emb": (0,),
    "right-left": (False,),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (2, 0),
    "transformer-no-affine": (False,),
    "transformer-no-bias": (False,),
    "transformer-no-projection": (False,),
    "transformer-pool": (False,),
    "transformer-postprocess-emb": ("d", ""),
    "transformer-tied-layers": ([],),
    "transformer-train-position-embeddings": (False,),
}

# (transformer-preprocess, -postprocess, -postprocess-top): n is the layer norm, d is
# dropout, a adds the residual.
_NORMS = {("", "dan", ""): "post", ("n", "da", "n"): "pre"}

# Our parts of a layer (`marian.layer_weights`) -> Marian's names after "encoder_l1_".
_PARTS = {
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
_PART = re.compile(r"(\w+)/layer_(\d+)/(\w+)/(\w+)/(kernel|bias)")
_NORM = re.compile(r"(\w+)(?:/layer_(\d+)/(\w+)_residual)?/norm/(gamma|beta)")


def import_marian_run(
    source: str | Path,
    output_dir: str | Path,
    *,
    program: str,
    problem: str | None = None,
    data_dir: str | Path | None = None,
    usr_dir: str | Path | None = None,
) -> ImportedRun:
    """Writes a run directory with a Marian model.

    It can be used, evaluated and exported like any other, and be the start of another
    training, but its own cannot be resumed.

    Args:
        source: see `load_marian` and `load_hf_marian`.
        output_dir: the new run directory.
        program: "marian" or "hf-marian".
        problem: the problem to use the model for; None: `translate_text`.
        data_dir: our data directory of the problem, with the same vocabularies, for
            evaluations; None: there is none.
        usr_dir: the folder that registers the problem, which the run remembers.

    Raises:
        UserError: the model cannot be read, there is no such problem, the data have
            other vocabularies, or the directory is not empty.
    """
    output_dir = Path(output_dir)
    require_empty(output_dir)
    if usr_dir is not None:
        registry.load_usr_dir(usr_dir)
    task = registry.problem(problem or DEFAULT_PROBLEM)
    load = {"marian": load_marian, "hf-marian": load_hf_marian}[program]
    model = load(source)
    names = ("vocab.source.marian", "vocab.target.marian")
    if model.vocabularies[0] == model.vocabularies[1]:
        names = ("vocab.marian", "vocab.marian")
    source_vocabulary, target_vocabulary = map(
        VocabularyFile, names, model.vocabularies
    )
    run = write_run(
        output_dir,
        task,
        program,
        model.hparams,
        (source_vocabulary, target_vocabulary),
        [(0, model.weights)],
        data_dir,
        usr_dir,
    )
    check = list(model.check)
    if problem is None:
        check.insert(0, f"the problem {task.name}; another one: --problem")
    left_out = [*model.left_out, "the optimizer's state: training cannot be resumed"]
    took = model.took | {"problem": task.name}
    imported = ImportedRun(run, took, left_out, check, model.options)
    return imported.recorded("Marian")


def load_marian(source: str | Path) -> MarianModel:
    """Reads a Marian model.

    Its position encodings are tensor2tensor's, and its epsilon is 1e-6.

    Args:
        source: the directory, with one `*decoder.yml` that names the model and the
            vocabularies; or such a file.

    Raises:
        UserError: a file is missing or not Marian's, or describes a model that
            `Transformer` cannot represent; the message names the setting.
    """
    config_path = _decoder_config(Path(source))
    config = _yaml(read_text(config_path), config_path)
    models, vocabs = (_paths(config, key, config_path) for key in ("models", "vocabs"))
    if len(models) != 1 or len(vocabs) != 2:
        raise UserError(
            f"{config_path} names {len(models)} models and {len(vocabs)} vocabularies; "
            "a run has one model, and a vocabulary for source and target"
        )
    for path in (*models, *vocabs):
        require_fetched_file(path)
    variables, settings = _read_npz(models[0])
    hparams = _hparams(settings, models[0])
    lists, contents = _vocabularies(vocabs)
    hparams, weights = variables.read_all(
        hparams,
        _embeddings(variables, lists),
        lambda part: _marian_name(part, hparams.norm),
    )
    check, options = [], _search_options(config)
    if options:
        given = ",".join(f"{name}={value}" for name, value in options.items())
        flag = f"--decode_hparams {given}"
        check.append(f"{config_path.name}: it translates with what is here {flag}")
    for script in ("preprocess.sh", "postprocess.sh"):
        if (config_path.parent / script).exists():
            check.append(
                f"{script}: what it does beside SentencePiece is not done here"
            )
    return MarianModel(
        hparams=hparams,
        weights=weights,
        vocabularies=contents,
        took={
            "model": str(models[0]),
            "settings": f"{_SETTINGS} in it",
            "vocabularies": [str(path) for path in dict.fromkeys(vocabs)],
        },
        left_out=["dropout and the settings of training, which the model lacks"],
        check=check,
        options=options,
    )


def _decoder_config(source: Path) -> Path:
    """Returns the path of the configuration of Marian's decoder.

    Raises:
        UserError: there is none, or several.
    """
    if source.suffix == ".npz":
        source = source.parent
    if source.is_file():
        return source
    found = sorted(source.glob("*decoder.yml"))
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise UserError(
            f"{source} must have one decoder.yml, and has {names}; give the path of "
            "one as SOURCE"
        )
    return found[0]


def _paths(config: Mapping[str, Any], key: str, path: Path) -> list[Path]:
    """Returns the files that the configuration in `path` names under a key."""
    names = config.get(key)
    if isinstance(names, str):
        names = [names]
    return [path.parent / str(n) for n in names] if isinstance(names, list) else []


def _search_options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options of decoding for the search of Marian's decoder."""
    options: dict[str, Any] = {}
    if beam := config.get("beam-size"):
        options["beam_size"] = beam
    if power := config.get("normalize"):
        options |= {"length_penalty": "power", "alpha": float(power)}
    return options


def _yaml(text: str, path: Path) -> dict[str, Any]:
    """Returns the mapping that a text in YAML describes.

    Raises:
        UserError: it describes none.
    """
    import yaml

    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        reason = str(error).replace("\n", " ")
        raise UserError(f"{path} is not valid YAML: {reason}") from None
    except RecursionError:
        raise UserError(f"{path} is nested too deeply") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a mapping in YAML")
    return values


def _read_npz(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Reads a model's variables and settings.

    What Marian stores as [1, n] becomes a vector [n].

    Raises:
        UserError: the file is not a model that can be read.
    """
    try:
        with zipfile.ZipFile(path) as archive, np.load(path) as file:
            size = sum(member.file_size for member in archive.infolist())
            if size > _LARGEST_RATIO * path.stat().st_size:
                raise ValueError(f"its arrays would have {size:,} bytes")
            arrays = dict(file)
    except FileNotFoundError:
        raise UserError(f"there is no {path}, which decoder.yml names") from None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"{path} is not a Marian model in NumPy's format, .npz ({error}); a "
            ".bin is converted by marian-conv"
        ) from None
    if _SETTINGS not in arrays:
        raise UserError(f"{path} has no {_SETTINGS}, which every Marian model has")
    text = arrays.pop(_SETTINGS).tobytes().rstrip(b"\0")
    settings = _yaml(text.decode("utf-8", "replace"), path)
    vectors = {
        name: array[0]
        for name, array in arrays.items()
        if array.shape[:1] == (1,) and not name.endswith("Wemb")
    }
    return Tensors(path, arrays | vectors, "variable", "settings"), settings


def _hparams(settings: Mapping[str, Any], path: Path) -> HParams:
    """Converts the settings.

    Raises:
        UserError: they describe another model than `Transformer`.
    """

    def refusal(name: str, *allowed: Any) -> UserError:
        return UserError(
            f"{path}: cannot read a model with {name} {settings.get(name)!r}, only "
            f"with {' or '.join(map(repr, allowed))}"
        )

    for name, allowed in _MUST_BE.items():
        if settings.get(name, allowed[0]) not in allowed:
            raise refusal(name, *allowed)
    places = ("preprocess", "postprocess", "postprocess-top")
    norm = _NORMS.get(
        tuple(settings.get(f"transformer-{place}", "") for place in places)
    )
    if norm is None:
        values = ", ".join(
            f"transformer-{place} '{settings.get(f'transformer-{place}', '')}'"
            for place in places
        )
        raise UserError(
            f"{path}: cannot read a model with {values}; only with '', 'dan', '' or "
            "with 'n', 'da', 'n'"
        )
    if settings.get("transformer-ffn-activation", "swish") not in ("relu", "swish"):
        raise refusal("transformer-ffn-activation", "relu", "swish")
    inner = settings.get("transformer-dim-ffn")
    if settings.get("transformer-decoder-dim-ffn", 0) not in (0, inner):
        raise refusal("transformer-decoder-dim-ffn", 0, inner)
    try:
        return marian_hparams(
            path,
            settings["enc-depth"],
            settings["dec-depth"],
            d_model=settings["dim-emb"],
            d_ff=settings["transformer-dim-ffn"],
            num_heads=settings["transformer-heads"],
            norm=norm,
            activation=settings.get("transformer-ffn-activation", "swish"),
            position="t2t",
        )
    except KeyError as error:
        raise UserError(f"{path}: its settings have no {error}") from None


def _vocabularies(
    paths: list[Path],
) -> tuple[tuple[TokenList, TokenList], tuple[bytes, bytes]]:
    """Reads the vocabularies of source and target.

    Returns:
        The tokens of both, and the contents of their `.marian` files.

    Raises:
        UserError: a file is missing, or not Marian's.
    """
    lists, contents = [], []
    for path, side in zip(paths, ("source", "target"), strict=True):
        splits = path if path.suffix == ".spm" else path.with_name(f"{side}.spm")
        if not splits.exists():
            raise UserError(
                f"there is no {splits}: the SentencePiece model that splits the texts "
                f"of the {side}; put it there"
            )
        model = read_model(splits)
        tokens = tokens_of(model, path) if path.suffix == ".spm" else read_tokens(path)
        lists.append(tokens)
        contents.append(with_tokens(model, tokens.tokens, splits))
    return (lists[0], lists[1]), (contents[0], contents[1])


def _embeddings(
    variables: Tensors, lists: tuple[TokenList, TokenList]
) -> dict[str, np.ndarray]:
    """Returns our embedding matrices and the bias of the logits.

    Raises:
        UserError: as `embeddings`.
    """
    if variables.has("Wemb"):
        source = target = variables.read("Wemb")
    else:
        source, target = variables.read("encoder_Wemb"), variables.read("decoder_Wemb")
    softmax, bias = None, np.zeros(len(target), np.float32)
    if variables.has("decoder_ff_logit_out_W"):
        softmax = variables.read("decoder_ff_logit_out_W").T
    elif variables.has("decoder_ff_logit_out_Wt"):
        softmax = variables.read("decoder_ff_logit_out_Wt")
    if variables.has("decoder_ff_logit_out_b"):
        bias = variables.read("decoder_ff_logit_out_b")
    return embeddings(variables.path, lists, source, target, softmax, bias)


def _marian_name(part: str, norm: str) -> str:
    """Returns Marian's name of a part of a layer (`marian.layer_weights`)."""
    if match := _PART.fullmatch(part):
        stack, number, kind, name, parameter = match.groups()
        letter = "W" if parameter == "kernel" else "b"
        layer = f"{stack}_l{int(number) + 1}_{_PARTS[kind]}"
        return f"{layer}_{letter}{_PARTS[name]}"
    match = _NORM.fullmatch(part)
    assert match
    stack, number, kind, parameter = match.groups()
    ending = "ln_scale" if parameter == "gamma" else "ln_bias"
    if number is None:
        return f"{stack}_top_{ending}"
    layer = f"{stack}_l{int(number) + 1}_{_PARTS[kind]}"
    last = "ffn" if kind == "feed_forward" else "Wo"
    return f"{layer}_{last}_{ending}" + ("_pre" if norm == "pre" else "")
