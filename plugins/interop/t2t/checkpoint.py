"""Reads the weights of a tensor2tensor Transformer (since version 1.4).

The variables under `transformer/` become these weights:

    symbol_modality_V_D/shared/weights_0 ... 15           rows of all three embeddings
        or input_emb, target_emb, softmax                 rows of one embedding each
    body/target_space_embedding/kernel                    one row: target_space/vector
    body/encoder/layer_0/...
        self_attention/multihead_attention/{q,k,v}/kernel side by side in one kernel
        .../output_transform/kernel                       output/kernel
        ffn/{conv1,conv2}/{kernel,bias}                   feed_forward/{inner,outer}
        .../layer_prepostprocess/layer_norm/...           residual/norm, pre-norm
        .../layer_postprocess/layer_norm/...              residual/norm, post-norm
    body/encoder/layer_prepostprocess/layer_norm/...      norm, of pre-norm only
    body/decoder/...                                      the same, and encdec_attention
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.errors import UserError, first_line
from t2t_keras.model import build_model
from t2t_keras.model.transformer import Transformer
from t2t_keras.run.checkpoint import UNREADABLE, model_variables
from t2t_keras.run.config import checkpoint_of, has_checkpoint

from ..extended_model import TARGET_SPACES
from ..extended_transformer import ExtendedHParams
from .hparams import load_t2t_hparams

TARGET_SPACE_KERNEL = "body/target_space_embedding/kernel"

_SCOPE = "transformer/"
_EMBEDDING_SHARD = re.compile(_SCOPE + r"symbol_modality_\d+_\d+/(\w+)/weights_(\d+)")
_STEP = re.compile(r"-(\d+)\.index$")

# The optimizer's mean of a row without gradients is at most this share of the largest.
_ZERO_MEAN = 1e-9


def list_checkpoints(path: Path) -> list[Path]:
    """Returns the checkpoints of a training directory, the newest last.

    tensor2tensor's averages, which have other names, are only returned if there are no
    other checkpoints.

    Args:
        path: the directory; or a checkpoint, which alone is returned.

    Raises:
        UserError: the directory has no checkpoint.
    """
    if not path.is_dir():
        return [checkpoint_of(path)]
    steps: dict[Path, int] = {}
    averages: dict[Path, int] = {}
    for index in path.glob("*.index"):
        match = _STEP.search(index.name)
        if match:
            is_regular = index.name.startswith("model.ckpt-")
            checkpoints = steps if is_regular else averages
            checkpoints[index.with_suffix("")] = int(match[1])
    steps = steps or averages
    if not steps:
        raise UserError(
            f"{path} has no checkpoint; give the path of one, without suffix"
        )
    return sorted(steps, key=steps.__getitem__)


class T2TCheckpoint:
    """The model's variables in a checkpoint.

    Args:
        path: a checkpoint without suffix, `.../model.ckpt-350855`, or a directory,
            whose newest checkpoint is read.

    Attributes:
        path: the checkpoint.
        unread: the names of the variables that have not been read.

    Raises:
        UserError: there is no checkpoint, or it is not of a Transformer.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = list_checkpoints(Path(path))[-1]
        if not has_checkpoint(self.path):
            raise UserError(f"{self.path} is not a checkpoint: it has no .index file")
        try:
            self._reader = tf.train.load_checkpoint(str(self.path))
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
        """Returns whether the variable `transformer/NAME` exists."""
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
        """Returns several variables joined along an axis; see `read`.

        Raises:
            UserError: a variable is missing, or the shapes do not go together.
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

    def read_embeddings(self) -> dict[str, np.ndarray]:
        """Returns the embedding matrices [V, D] by role, with their shards joined.

        Raises:
            UserError: a role has matrices of several vocabularies.
        """
        shards_of_roles: dict[str, dict[int, str]] = {}
        for name in sorted(self.unread):
            match = _EMBEDDING_SHARD.fullmatch(name)
            if not match:
                continue
            role = match[1]
            index = int(match[2])
            shards = shards_of_roles.setdefault(role, {})
            if index in shards:
                raise UserError(
                    f"checkpoint {self.path} has two matrices '{role}', "
                    f"{shards[index]} and {name}; only one can be read"
                )
            shards[index] = name
        matrices = {}
        for role, shards in shards_of_roles.items():
            names = [shards[index].removeprefix(_SCOPE) for index in sorted(shards)]
            matrices[role] = self.read_joined(names, axis=0)
        return matrices

    def target_space_id(self) -> int:
        """Returns the row of the target space embedding that training has used.

        The optimizer's means of all other rows are zero.

        Raises:
            UserError: the checkpoint does not tell.
        """
        rows = set[int]()
        for name, shape in self._reader.get_variable_to_shape_map().items():
            # Adam's means are in ".../kernel/Adam", Adafactor's means of rows in
            # ".../kernel/Adafactor".
            prefix = f"{_SCOPE}{TARGET_SPACE_KERNEL}/Ada"
            if prefix in name and shape[0] == TARGET_SPACES:
                means = np.abs(self._tensor(name).astype(np.float32))
                means = means.reshape(TARGET_SPACES, -1).max(axis=1)
                rows.update(np.flatnonzero(means > _ZERO_MEAN * means.max()).tolist())
        if len(rows) != 1:
            raise UserError(
                f"checkpoint {self.path} does not tell with which target space it was "
                "trained; give --target_space_id: the target_space_id of its Problem, "
                "which is 0 in translation since tensor2tensor 1.5.2 (before, 8 for "
                "German subwords)"
            )
        return rows.pop()

    def _tensor(self, name: str) -> np.ndarray:
        """Returns a variable; raises UserError if the file is damaged."""
        try:
            return self._reader.get_tensor(name)
        except UNREADABLE as error:
            raise self._damaged(error) from None

    def _damaged(self, error: Exception) -> UserError:
        return UserError(
            f"checkpoint {self.path} is damaged or incomplete ({first_line(error)}); "
            "copy it again"
        )


class T2TModel(NamedTuple):
    """A tensor2tensor Transformer, converted to our hyper-parameters and names.

    Attributes:
        hparams: the hyper-parameters.
        weights: the weights by their names in our checkpoints (`run.checkpoint`).
        step: the number of updates; 0 for tensor2tensor's averages.
        target_space_id: tensor2tensor's id of the target, such as German subwords;
            None: the model has no target space embedding.
        left_out: a sentence about each setting of training that is not converted.
    """

    hparams: ExtendedHParams
    weights: dict[str, np.ndarray]
    step: int
    target_space_id: int | None
    left_out: list[str]


def load_t2t(
    checkpoint_path: str | Path,
    hparams_json: str | Path,
    target_space_id: int | None = None,
) -> T2TModel:
    """Reads a tensor2tensor Transformer.

    Args:
        checkpoint_path: see `T2TCheckpoint`.
        hparams_json: the `hparams.json` of the same training directory.
        target_space_id: the problem's target_space_id in tensor2tensor; None: the id
            that the checkpoint was trained with, see `T2TCheckpoint.target_space_id`.

    Raises:
        UserError: the files cannot be read or do not belong together.
    """
    checkpoint = T2TCheckpoint(checkpoint_path)
    hparams, left_out = load_t2t_hparams(hparams_json)
    weights = _convert_embeddings(checkpoint)
    hparams = ExtendedHParams.from_hparams(
        hparams,
        share_embeddings="embedding/table" in weights,
        target_space=checkpoint.has(TARGET_SPACE_KERNEL),
    )
    if not hparams.target_space:
        target_space_id = None
    elif target_space_id is None:
        target_space_id = checkpoint.target_space_id()
    if target_space_id is not None:
        weights["target_space/vector"] = _target_space(checkpoint, target_space_id)
    depths = {"encoder": hparams.num_layers, "decoder": hparams.decoder_layers}
    for stack, depth in depths.items():
        for index in range(depth):
            weights |= _convert_layer(checkpoint, f"{stack}/layer_{index}", hparams)
        if hparams.norm == "pre":
            scope = f"body/{stack}/layer_prepostprocess"
            weights |= _convert_norm(checkpoint, scope, stack)
    if checkpoint.unread:
        raise UserError(
            f"checkpoint {checkpoint.path} has the variable {min(checkpoint.unread)} "
            f"(and {len(checkpoint.unread) - 1} more) that a model of {hparams_json} "
            "does not have; is it the right hparams.json?"
        )
    weights = {f"model/{name}": value for name, value in weights.items()}
    return T2TModel(hparams, weights, checkpoint.step, target_space_id, left_out)


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
    """Returns the vocabulary sizes of source and target; None: both are equal."""
    if "model/embedding/table" in weights:
        return len(weights["model/embedding/table"]), None
    source_size = len(weights["model/source_embedding/table"])
    target_size = len(weights["model/target_embedding/table"])
    return source_size, None if source_size == target_size else target_size


def _convert_embeddings(checkpoint: T2TCheckpoint) -> dict[str, np.ndarray]:
    """Returns one shared table, or one for each of the three roles."""
    matrices = checkpoint.read_embeddings()
    shared = matrices.get("shared")
    if shared is not None and len(matrices) == 1:
        return {"embedding/table": shared}
    t2t_roles = {
        "source_embedding": "input_emb",
        "target_embedding": "target_emb",
        "softmax": "softmax",
    }
    tables = {}
    for name, t2t_role in t2t_roles.items():
        table = matrices.get(t2t_role, shared)
        if table is None:
            raise UserError(f"checkpoint {checkpoint.path} has no matrix for {name}")
        tables[f"{name}/table"] = table
    return tables


def _target_space(checkpoint: T2TCheckpoint, target_space_id: int) -> np.ndarray:
    """Returns the vector that is added to each embedded source position."""
    rows = checkpoint.read(TARGET_SPACE_KERNEL)
    if not 0 <= target_space_id < len(rows):
        raise UserError(
            f"target_space_id must be from 0 to {len(rows) - 1}, not {target_space_id}"
        )
    return rows[target_space_id]


def _convert_layer(
    checkpoint: T2TCheckpoint, layer: str, hparams: ExtendedHParams
) -> dict[str, np.ndarray]:
    """Returns the weights of one layer, such as "encoder/layer_0"."""
    attentions = {"self_attention": "self_attention"}
    if layer.startswith("decoder"):
        attentions["cross_attention"] = "encdec_attention"
    t2t_layer = f"body/{layer}"
    weights: dict[str, np.ndarray] = {}
    for name, t2t_name in attentions.items():
        t2t_scope = f"{t2t_layer}/{t2t_name}/multihead_attention"
        weights |= _convert_attention(checkpoint, t2t_scope, f"{layer}/{name}")
    for name, t2t_name in (("inner", "conv1"), ("outer", "conv2")):
        for parameter in ("kernel", "bias"):
            weights[f"{layer}/feed_forward/{name}/{parameter}"] = checkpoint.read(
                f"{t2t_layer}/ffn/{t2t_name}/{parameter}"
            )
    norms = {"pre": "layer_prepostprocess", "post": "layer_postprocess"}
    for name, t2t_name in {**attentions, "feed_forward": "ffn"}.items():
        t2t_scope = f"{t2t_layer}/{t2t_name}/{norms[hparams.norm]}"
        weights |= _convert_norm(checkpoint, t2t_scope, f"{layer}/{name}_residual")
    return weights


def _convert_attention(
    checkpoint: T2TCheckpoint, t2t_scope: str, scope: str
) -> dict[str, np.ndarray]:
    """Returns the weights of an attention layer, with joined projections."""
    projections = {"query": "q", "key_value": "kv"}
    if scope.endswith("/self_attention"):
        projections = {"query_key_value": "qkv"}
    weights = {}
    for name, letters in projections.items():
        t2t_names = [f"{t2t_scope}/{letter}/kernel" for letter in letters]
        weights[f"{scope}/{name}/kernel"] = checkpoint.read_joined(t2t_names, axis=1)
    output = checkpoint.read(f"{t2t_scope}/output_transform/kernel")
    weights[f"{scope}/output/kernel"] = output
    return weights


def _convert_norm(
    checkpoint: T2TCheckpoint, t2t_scope: str, scope: str
) -> dict[str, np.ndarray]:
    """Returns the scale and the bias of one layer normalization."""
    t2t_norm = f"{t2t_scope}/layer_norm/layer_norm"
    return {
        f"{scope}/norm/gamma": checkpoint.read(f"{t2t_norm}_scale"),
        f"{scope}/norm/beta": checkpoint.read(f"{t2t_norm}_bias"),
    }
