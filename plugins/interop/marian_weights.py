"""The weights of Marian models, in parts that every format has.

The parts of layer i of a stack are, with kernels [in, out]:

    encoder/layer_0/self_attention/{query,key,value,output}/{kernel,bias}
    encoder/layer_0/feed_forward/{inner,outer}/{kernel,bias}
    encoder/layer_0/{self_attention,feed_forward}_residual/norm/{gamma,beta}
    encoder/norm/{gamma,beta}                                   with norm "pre"

and likewise for the decoder, which also has `cross_attention`. Our names are these, but
kernels of several projections stand side by side in one.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.hparam import HParams
from t2t_keras.option import UserError
from t2t_keras.text.tokenizer import PAD

from .marian_vocabulary import NO_ROW, TokenList

# The bias of padding where a model has none: its probability is 0 in float32, and label
# smoothing, which uses the mean of all logits, hardly changes.
NO_PADDING_BIAS = -100.0

# Sub-layer -> our projections, and the parts that stand side by side in them.
_PROJECTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "self_attention": {
        "query_key_value": ("query", "key", "value"),
        "output": ("output",),
    },
    "cross_attention": {
        "query": ("query",),
        "key_value": ("key", "value"),
        "output": ("output",),
    },
    "feed_forward": {"inner": ("inner",), "outer": ("outer",)},
}


@dataclasses.dataclass(frozen=True)
class MarianModel:
    """A Marian model in our terms.

    Attributes:
        hparams: the hyper-parameters.
        weights: the weights by their names in our checkpoints (`runs.checkpoint`).
        vocabularies: the contents of the `.marian` files of source and target.
        took: what was taken, by kind.
        left_out: what was not.
        check: what the user should check.
        options: the options of decoding with which its program translates.
    """

    hparams: HParams
    weights: dict[str, np.ndarray]
    vocabularies: tuple[bytes, bytes]
    took: dict[str, Any]
    left_out: list[str]
    check: list[str]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


class Tensors:
    """The tensors of a model's file, which are to be read once each.

    Args:
        path: the file, for messages.
        arrays: the tensors by name.
        kind: what the format calls them, "variable" or "tensor".
        settings: what describes the model, for messages.
    """

    def __init__(
        self, path: Path, arrays: Mapping[str, np.ndarray], kind: str, settings: str
    ) -> None:
        self.path = path
        self._arrays = dict(arrays)
        self._kind = kind
        self._settings = settings

    def has(self, name: str) -> bool:
        """Returns whether there is a tensor that has not been read."""
        return name in self._arrays

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as float32.

        Raises:
            UserError: there is no such tensor, or it has a value that is not finite.
        """
        if name not in self._arrays:
            raise UserError(
                f"{self.path} has no {self._kind} {name}, which a model of its "
                f"{self._settings} has"
            )
        tensor = self._arrays.pop(name).astype(np.float32)
        if not np.isfinite(tensor).all():
            raise UserError(
                f"{self.path}: the {self._kind} {name} has values that are not finite"
            )
        return tensor

    def read_all(
        self,
        hparams: HParams,
        embeddings: Mapping[str, np.ndarray],
        name_of: Callable[[str], str],
        transposed: bool = False,
    ) -> tuple[HParams, dict[str, np.ndarray]]:
        """Reads the weights of the layers, after which nothing may be left.

        Args:
            hparams: the hyper-parameters, but for `share_embeddings`.
            embeddings: what the function `embeddings` returns.
            name_of: the format's name of a part, see `layer_weights`.
            transposed: whether its kernels are [out, in].

        Returns:
            The hyper-parameters, and all weights by their names in our checkpoints.

        Raises:
            UserError: a tensor is missing, has another shape than the settings demand,
                or is one too many.
        """
        hparams = hparams.override(share_embeddings="softmax/table" not in embeddings)
        weights = dict(embeddings)
        for name, table in weights.items():
            if name != "output_bias" and table.shape[1:] != (hparams.d_model,):
                raise UserError(
                    f"{self.path}: the embeddings have the shape {list(table.shape)}, "
                    f"and by its {self._settings} {hparams.d_model} columns"
                )
        for name, parts in layer_weights(hparams):
            weights[name] = np.concatenate(
                [
                    self._part(part, hparams, name_of(part), transposed)
                    for part in parts
                ],
                axis=-1,
            )
        if self._arrays:
            raise UserError(
                f"{self.path} has the {self._kind} {min(self._arrays)} (and "
                f"{len(self._arrays) - 1} more), which a model of its "
                f"{self._settings} does not have"
            )
        return hparams, {f"model/{name}": value for name, value in weights.items()}

    def _part(
        self, part: str, hparams: HParams, name: str, transposed: bool
    ) -> np.ndarray:
        """Reads a part of a layer; raises `UserError` if it has another shape."""
        tensor, shape = self.read(name), part_shape(part, hparams)
        expected = shape[::-1] if transposed else shape
        if tensor.shape != expected:
            raise UserError(
                f"{self.path}: the {self._kind} {name} has the shape "
                f"{list(tensor.shape)}, and by its {self._settings} it has "
                f"{list(expected)}"
            )
        return tensor.T if transposed else tensor

    def skip(self, *names: str) -> None:
        """Counts tensors as read, if they are there."""
        for name in names:
            self._arrays.pop(name, None)


def marian_hparams(path: Path, encoder: int, decoder: int, **fields: Any) -> HParams:
    """Returns the hyper-parameters of a Marian model.

    Args:
        path: the file with its settings, for messages.
        encoder: number of layers of the encoder.
        decoder: number of layers of the decoder.
        **fields: other fields.

    Raises:
        UserError: they are impossible.
    """
    try:
        return HParams().override(
            num_layers=encoder,
            num_decoder_layers=decoder if decoder != encoder else 0,
            attention_bias=True,
            output_bias=True,
            **fields,
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def layer_weights(hparams: HParams) -> Iterator[tuple[str, list[str]]]:
    """Yields our name of each weight of the two stacks, and the names of its parts.

    The parts stand side by side, along the last axis.
    """
    depths = {"encoder": hparams.num_layers, "decoder": hparams.decoder_layers}
    for stack, depth in depths.items():
        kinds = [k for k in _PROJECTIONS if stack == "decoder" or "cross" not in k]
        for scope in (f"{stack}/layer_{i}" for i in range(depth)):
            for kind in kinds:
                for name, parts in _PROJECTIONS[kind].items():
                    for parameter in ("kernel", "bias"):
                        yield (
                            f"{scope}/{kind}/{name}/{parameter}",
                            [f"{scope}/{kind}/{part}/{parameter}" for part in parts],
                        )
                yield from _norm(f"{scope}/{kind}_residual")
        if hparams.norm == "pre":
            yield from _norm(stack)


def part_shape(part: str, hparams: HParams) -> tuple[int, ...]:
    """Returns the shape of a part of a layer: [in, out] of a kernel, else a vector."""
    _, name, parameter = part.rsplit("/", 2)
    inner = hparams.d_ff if name == "inner" else hparams.d_model
    if parameter != "kernel":
        return (inner,)
    return hparams.d_ff if name == "outer" else hparams.d_model, inner


def _norm(scope: str) -> Iterator[tuple[str, list[str]]]:
    for parameter in ("gamma", "beta"):
        name = f"{scope}/norm/{parameter}"
        yield name, [name]


def embeddings(
    path: Path,
    lists: tuple[TokenList, TokenList],
    source: np.ndarray,
    target: np.ndarray,
    softmax: np.ndarray | None,
    bias: np.ndarray,
) -> dict[str, np.ndarray]:
    """Returns our embedding matrices and the bias of the logits.

    Args:
        path: the model's file, for messages.
        lists: the tokens of source and target.
        source: embeddings [V, D] of the source.
        target: those of the target.
        softmax: the transposed kernel [V, D] of the logits; None: it is `target`.
        bias: their bias [V].

    Raises:
        UserError: a matrix has another number of rows than its vocabulary has tokens,
            or padding, with which our decoder starts, is not embedded as zeros.
    """
    weights = {
        "source_embedding/table": _in_our_order(path, source, lists[0]),
        "target_embedding/table": _in_our_order(path, target, lists[1]),
    }
    for rows in weights.values():
        if rows[PAD].any():
            raise UserError(
                f"{path}: the embedding of padding, with which the decoder starts, is "
                "not zero"
            )
    if softmax is not None:
        weights["softmax/table"] = _in_our_order(path, softmax, lists[1])
    elif lists[0].tokens == lists[1].tokens:
        if np.array_equal(source, target):
            weights = {"embedding/table": weights["source_embedding/table"]}
        else:  # two matrices would be those of two vocabularies
            weights["softmax/table"] = weights["target_embedding/table"]
    biases = _in_our_order(path, bias, lists[1], NO_PADDING_BIAS, "output bias")
    return weights | {"output_bias": biases}


def _in_our_order(
    path: Path,
    rows: np.ndarray,
    tokens: TokenList,
    padding: float = 0.0,
    kind: str = "embedding matrix",
) -> np.ndarray:
    """Returns the rows [V, ...] of a matrix or a vector in the order of our ids.

    Args:
        path: the model's file, for messages.
        rows: in the order of the model's ids.
        tokens: the list of tokens.
        padding: the row of padding if the model has none.
        kind: what the rows are, for messages.

    Raises:
        UserError: there is not one row for each token.
    """
    if len(rows) != (known := int(tokens.rows.max()) + 1):
        raise UserError(
            f"{path} has an {kind} of {len(rows):,} rows, and the vocabulary beside it "
            f"has {known:,} tokens; put that of the model there"
        )
    result = rows[tokens.rows].astype(np.float32)
    result[tokens.rows == NO_ROW] = padding
    return result
