"""Reads tensor2tensor's checkpoints of a Transformer (version 1.4, of 2017, or later).

These are its variables under `transformer/`, and the weights that they become:

    symbol_modality_V_D/shared/weights_0 ... 15           rows of all three embeddings
        or input_emb, target_emb, softmax                 of one each
    body/target_space_embedding/kernel                    one row: target_space/vector
    body/encoder/layer_0/...
        self_attention/multihead_attention/{q,k,v}/kernel side by side in one kernel
        .../output_transform/kernel                       output/kernel
        ffn/{conv1,conv2}/{kernel,bias}                   feed_forward/{inner,outer}
        .../layer_prepostprocess/layer_norm/...           residual/norm, pre-norm
        .../layer_postprocess/layer_norm/...              residual/norm, post-norm
    body/encoder/layer_prepostprocess/layer_norm/...      norm, of pre-norm only
    body/decoder/...                                      likewise, and encdec_attention
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.data.plain_path import PlainPath
from t2t_keras.errors import UserError, first_line
from t2t_keras.model import build_model
from t2t_keras.model.transformer import Transformer
from t2t_keras.run.checkpoint import (
    UNREADABLE,
    model_variables,
    require_fetched_checkpoint,
)

from .extended_hparams import ExtendedHParams
from .extended_model import TARGET_SPACES
from .t2t_hparams import load_t2t_hparams

_SCOPE = "transformer/"
_SHARD = re.compile(_SCOPE + r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)")
_NO_MEAN = 1e-9  # the largest mean of a row without gradients, beside another row's
_SPACE_KERNEL = "body/target_space_embedding/kernel"
_STEP = re.compile(r"-(\d+)\.index$")


class T2TModel(NamedTuple):
    """A Transformer of tensor2tensor in our terms.

    Attributes:
        hparams: the hyper-parameters.
        weights: the weights by their names in our checkpoints (`runs.checkpoint`).
        step: the number of updates; 0 for tensor2tensor's averages.
        target_space_id: tensor2tensor's id of the kind of target; None: the model has
            no target space embedding.
        left_out: a sentence about each setting of training that was not taken.
    """

    hparams: ExtendedHParams
    weights: dict[str, np.ndarray]
    step: int
    target_space_id: int | None
    left_out: list[str]


def checkpoints(path: Path) -> list[Path]:
    """Returns the checkpoints of a training directory, the newest last.

    tensor2tensor's averages, whose names have other beginnings, are not among them
    unless there is nothing else.

    Args:
        path: the directory; or a checkpoint without suffix, which alone is returned.

    Raises:
        UserError: the directory has no checkpoint.
    """
    if not path.is_dir():
        return [path]
    steps: dict[Path, int] = {}
    for index in path.glob("*.index"):
        if match := _STEP.search(index.name):
            steps[index.with_suffix("")] = int(match[1])
    if not steps:
        raise UserError(
            f"{path} has no checkpoint; give the path of one, without suffix"
        )
    own = {path: n for path, n in steps.items() if path.name.startswith("model.ckpt-")}
    return sorted(own or steps, key=steps.__getitem__)


class T2TCheckpoint:
    """The model's variables in a checkpoint.

    Args:
        path: a checkpoint without suffix, `.../model.ckpt-350855`, or a directory,
            whose newest checkpoint is read.

    Attributes:
        unread: the names of the variables that have not been read.

    Raises:
        UserError: there is no checkpoint, or not one of a Transformer.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = checkpoints(Path(path))[-1]
        if not self.path.with_name(self.path.name + ".index").exists():
            raise UserError(f"{self.path} is not a checkpoint: it has no .index file")
        require_fetched_checkpoint(self.path)
        try:
            self._plain = PlainPath(self.path)  # files are opened when they are read
            self._reader = tf.train.load_checkpoint(str(self._plain.path))
        except UNREADABLE as error:
            raise self._damaged(error) from None
        names = self._reader.get_variable_to_shape_map()
        self.unread = {name for name in names if name.startswith(_SCOPE)}
        if not self.unread:
            raise UserError(
                f"checkpoint {self.path} is not of tensor2tensor's transformer: no "
                f"name of a variable begins with {_SCOPE}"
            )
        if any(re.search("/(qkv|q|kv)_transform", name) for name in self.unread):
            raise UserError(
                f"checkpoint {self.path} was written by a tensor2tensor older than "
                "1.4, whose attention variables were others (qkv_transform); it cannot "
                "be read"
            )

    @property
    def step(self) -> int:
        """The number of updates; 0 for tensor2tensor's averages."""
        if not self._reader.has_tensor("global_step"):
            return 0
        return int(self._tensor("global_step"))

    def has(self, name: str) -> bool:
        """Returns whether `transformer/NAME` exists."""
        return self._reader.has_tensor(_SCOPE + name)

    def read(self, name: str) -> np.ndarray:
        """Returns `transformer/NAME` as float32.

        Raises:
            UserError: there is no such variable.
        """
        if not self.has(name):
            raise UserError(
                f"checkpoint {self.path} has no variable {_SCOPE}{name}, which a model "
                "of its hparams.json has; is it the right hparams.json?"
            )
        self.unread.discard(_SCOPE + name)
        return self._tensor(_SCOPE + name).astype(np.float32)

    def read_joined(self, names: Sequence[str], axis: int) -> np.ndarray:
        """Returns several variables, as `read` does, joined along an axis.

        Raises:
            UserError: one is missing, or their shapes do not go together.
        """
        parts = [self.read(name) for name in names]
        try:
            return np.concatenate(parts, axis)
        except ValueError:
            shapes = ", ".join(str(list(part.shape)) for part in parts)
            raise UserError(
                f"checkpoint {self.path}: {_SCOPE}{names[0]} and the variables that "
                f"belong to it have the shapes {shapes}, which do not go together"
            ) from None

    def _tensor(self, name: str) -> np.ndarray:
        """Returns a variable.

        Raises:
            UserError: the file is damaged.
        """
        try:
            return self._reader.get_tensor(name)
        except UNREADABLE as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> UserError:
        """Returns the error for a checkpoint that TensorFlow cannot read."""
        return UserError(
            f"checkpoint {self.path} is damaged or incomplete ({first_line(error)}); "
            "copy it again"
        )

    def target_space_id(self) -> int:
        """Returns the row of the target space embedding that training has used.

        Of the optimizer's means, only that row's are not zero.

        Raises:
            UserError: the checkpoint does not tell.
        """
        rows = set[int]()
        for name, shape in self._reader.get_variable_to_shape_map().items():
            # "training/.../kernel/Adam", and row means of ".../kernel/Adafactor".
            if f"{_SCOPE}{_SPACE_KERNEL}/Ada" in name and shape[0] == TARGET_SPACES:
                means = np.abs(self._tensor(name).astype(np.float32))
                means = means.reshape(TARGET_SPACES, -1).max(axis=1)
                rows.update(np.flatnonzero(means > _NO_MEAN * means.max()).tolist())
        if len(rows) != 1:
            raise UserError(
                f"checkpoint {self.path} does not tell with which target space it was "
                "trained; give --target_space_id: the target_space_id of its Problem, "
                "which is 0 in translation since tensor2tensor 1.5.2 (before, 8 for "
                "German subwords)"
            )
        return rows.pop()

    def read_matrices(self) -> dict[str, np.ndarray]:
        """Returns the embedding matrices [V, D] by role, with their shards joined.

        Raises:
            UserError: there are matrices of several vocabularies for one role.
        """
        shards: dict[str, dict[int, str]] = {}
        for name in sorted(self.unread):
            if match := _SHARD.fullmatch(name):
                role, number = shards.setdefault(match[1], {}), int(match[2])
                if number in role:
                    raise UserError(
                        f"checkpoint {self.path} has two matrices '{match[1]}', "
                        f"{role[number]} and {name}; only one can be read"
                    )
                role[number] = name
        return {
            role: self.read_joined(
                [names[i].removeprefix(_SCOPE) for i in sorted(names)], axis=0
            )
            for role, names in shards.items()
        }


def load_t2t(
    checkpoint_path: str | Path,
    hparams_json: str | Path,
    target_space_id: int | None = None,
) -> T2TModel:
    """Reads a tensor2tensor Transformer.

    Args:
        checkpoint_path: see `T2TCheckpoint`.
        hparams_json: the `hparams.json` of the same training directory.
        target_space_id: tensor2tensor's id for the target of the problem; None: that
            with which the checkpoint was trained, see `T2TCheckpoint.target_space_id`.

    Raises:
        UserError: these files cannot be read or do not belong together.
    """
    checkpoint = T2TCheckpoint(checkpoint_path)
    hparams, left_out = load_t2t_hparams(hparams_json)
    weights = _embeddings(checkpoint)
    hparams = ExtendedHParams.from_hparams(
        hparams,
        share_embeddings="embedding/table" in weights,
        target_space=checkpoint.has(_SPACE_KERNEL),
    )
    if not hparams.target_space:
        target_space_id = None
    elif target_space_id is None:
        target_space_id = checkpoint.target_space_id()
    if target_space_id is not None:
        weights["target_space/vector"] = _target_space(checkpoint, target_space_id)
    depths = {"encoder": hparams.num_layers, "decoder": hparams.decoder_layers}
    for stack, depth in depths.items():
        for i in range(depth):
            layer = f"{stack}/layer_{i}"
            weights |= _layer(checkpoint, f"body/{layer}", layer, hparams.norm)
        if hparams.norm == "pre":
            weights |= _norm(checkpoint, f"body/{stack}/layer_prepostprocess", stack)
    if checkpoint.unread:
        others = len(checkpoint.unread) - 1
        raise UserError(
            f"checkpoint {checkpoint.path} has the variable {min(checkpoint.unread)} "
            f"(and {others} more) that a model of {hparams_json} does not have; is it "
            "the right hparams.json?"
        )
    named = {f"model/{name}": value for name, value in weights.items()}
    return T2TModel(hparams, named, checkpoint.step, target_space_id, left_out)


def build(hparams: ExtendedHParams, weights: dict[str, np.ndarray]) -> Transformer:
    """Builds a model with these weights.

    Raises:
        UserError: a weight does not have the shape that the hparams imply.
    """
    model = build_model(hparams, *vocab_sizes(weights))
    for name, variable in model_variables(model).items():
        if weights[name].shape != tuple(variable.shape):
            raise UserError(
                f"the checkpoint does not fit its hparams.json: {name} would have the "
                f"shape {list(weights[name].shape)} instead of {list(variable.shape)}"
            )
        variable.assign(weights[name])
    return model


def vocab_sizes(weights: dict[str, np.ndarray]) -> tuple[int, int | None]:
    """Returns the vocabulary sizes of source and target, the latter None if equal."""
    if "model/embedding/table" in weights:
        return len(weights["model/embedding/table"]), None
    source, target = (
        len(weights[f"model/{side}_embedding/table"]) for side in ("source", "target")
    )
    return source, None if source == target else target


def _embeddings(checkpoint: T2TCheckpoint) -> dict[str, np.ndarray]:
    """Returns one shared table, or one for each of the three roles."""
    matrices = checkpoint.read_matrices()
    if set(matrices) == {"shared"}:
        return {"embedding/table": matrices["shared"]}
    shared = matrices.get("shared")
    names = {
        "source_embedding": "input_emb",
        "target_embedding": "target_emb",
        "softmax": "softmax",
    }
    tables = {}
    for name, theirs in names.items():
        table = matrices.get(theirs, shared)
        if table is None:
            raise UserError(f"checkpoint {checkpoint.path} has no matrix for {name}")
        tables[name] = table
    return {f"{name}/table": table for name, table in tables.items()}


def _target_space(checkpoint: T2TCheckpoint, target_space_id: int) -> np.ndarray:
    """Returns the vector that is added to every position of the embedded source."""
    spaces = checkpoint.read(_SPACE_KERNEL)
    if not 0 <= target_space_id < len(spaces):
        raise UserError(
            f"target_space_id must be from 0 to {len(spaces) - 1}, not "
            f"{target_space_id}"
        )
    return spaces[target_space_id]


def _layer(
    checkpoint: T2TCheckpoint, theirs: str, ours: str, norm: str
) -> dict[str, np.ndarray]:
    """Returns the weights of one layer."""
    attentions = {"self_attention": "self_attention"}
    if "decoder" in ours:
        attentions["cross_attention"] = "encdec_attention"
    weights = {}
    for our_name, their_name in attentions.items():
        scope = f"{theirs}/{their_name}/multihead_attention"
        kernels = {"query": "q", "key_value": "kv"}
        if our_name == "self_attention":
            kernels = {"query_key_value": "qkv"}
        for name, letters in kernels.items():
            weights[f"{ours}/{our_name}/{name}/kernel"] = checkpoint.read_joined(
                [f"{scope}/{letter}/kernel" for letter in letters], axis=1
            )
        weights[f"{ours}/{our_name}/output/kernel"] = checkpoint.read(
            f"{scope}/output_transform/kernel"
        )
    for our_name, their_name in (("inner", "conv1"), ("outer", "conv2")):
        for parameter in ("kernel", "bias"):
            weights[f"{ours}/feed_forward/{our_name}/{parameter}"] = checkpoint.read(
                f"{theirs}/ffn/{their_name}/{parameter}"
            )
    scope = {"pre": "layer_prepostprocess", "post": "layer_postprocess"}[norm]
    for our_name, their_name in {**attentions, "feed_forward": "ffn"}.items():
        theirs_of_norm = f"{theirs}/{their_name}/{scope}"
        weights |= _norm(checkpoint, theirs_of_norm, f"{ours}/{our_name}_residual")
    return weights


def _norm(checkpoint: T2TCheckpoint, theirs: str, ours: str) -> dict[str, np.ndarray]:
    """Returns the scale and the bias of one layer normalisation."""
    return {
        f"{ours}/norm/{our_name}": checkpoint.read(
            f"{theirs}/layer_norm/layer_norm_{their_name}"
        )
        for our_name, their_name in (("gamma", "scale"), ("beta", "bias"))
    }
