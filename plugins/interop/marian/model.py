"""A Marian model in our terms: its hyper-parameters, weights and search settings.

Layer i of a stack has these parts, with kernels [in, out]:

    encoder/layer_0/self_attention/{query,key,value,output}/{kernel,bias}
    encoder/layer_0/feed_forward/{inner,outer}/{kernel,bias}
    encoder/layer_0/{self_attention,feed_forward}_residual/norm/{gamma,beta}
    encoder/norm/{gamma,beta}                                   with norm "pre"

The decoder has the same parts, and also `cross_attention`. These are our names, except
that our kernels hold several projections side by side.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.run.config import DecodingDefaults
from t2t_keras.text.vocabulary import PAD

from ..extended_transformer import ExtendedHParams
from .vocabulary import NO_ID, TokenList

# The bias of padding if a model has no padding. Its probability is then 0 in float32,
# and the mean of all logits, which label smoothing uses, hardly changes.
NO_PADDING_BIAS = -100.0

# By sub-layer, our projections and the parts that stand side by side in them.
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
    """A Marian model, converted to our hyper-parameters, names and vocabularies.

    Attributes:
        hparams: the hyper-parameters.
        weights: the weights by their names in our checkpoints (`run.checkpoint`).
        vocabularies: the contents of the `.marian` files of source and target.
        took: the files that were read, by what they hold.
        left_out: sentences about what was not imported.
        check: sentences about what the user should check.
        decoding: the decoding options that Marian or transformers would use.
    """

    hparams: HParams
    weights: dict[str, np.ndarray]
    vocabularies: tuple[bytes, bytes]
    took: dict[str, str | list[str]]
    left_out: list[str]
    check: list[str]
    decoding: DecodingDefaults


def marian_hparams(
    path: Path, encoder_layers: int, decoder_layers: int, **fields: Any
) -> ExtendedHParams:
    """Returns the hyper-parameters of a Marian model.

    Args:
        path: the file with its settings, for messages.
        encoder_layers: number of encoder layers.
        decoder_layers: number of decoder layers.
        **fields: other hyper-parameters.

    Raises:
        UserError: the combination is impossible.
    """
    if decoder_layers != encoder_layers:
        fields["num_decoder_layers"] = decoder_layers
    try:
        return ExtendedHParams.from_hparams(
            HParams(),
            num_layers=encoder_layers,
            attention_bias=True,
            output_bias=True,
            **fields,
        )
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


class ModelTensors:
    """The tensors of a model's file. Each of them must be read exactly once.

    Args:
        path: the file, for messages.
        arrays: the tensors by name.
        noun: what the format calls a tensor, "variable" or "tensor".
        settings: what the format calls the model's settings, for messages.
    """

    def __init__(
        self, path: Path, arrays: Mapping[str, np.ndarray], noun: str, settings: str
    ) -> None:
        self.path = path
        self._arrays = dict(arrays)
        self._noun = noun
        self._settings = settings

    def has(self, name: str) -> bool:
        """Returns whether there is a tensor of this name that has not been read."""
        return name in self._arrays

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor as float32.

        Raises:
            UserError: the tensor is missing, or has values that are not finite.
        """
        if name not in self._arrays:
            raise UserError(
                f"{self.path} has no {self._noun} {name}, which a model of its "
                f"{self._settings} has"
            )
        tensor = self._arrays.pop(name).astype(np.float32)
        if not np.isfinite(tensor).all():
            raise UserError(
                f"{self.path}: the {self._noun} {name} has values that are not finite"
            )
        return tensor

    def skip(self, *names: str) -> None:
        """Marks tensors as read, if they exist."""
        for name in names:
            self._arrays.pop(name, None)

    def read_layers(
        self,
        hparams: ExtendedHParams,
        embeddings: Mapping[str, np.ndarray],
        name_of_part: Callable[[str], str],
        transposed: bool = False,
    ) -> tuple[ExtendedHParams, dict[str, np.ndarray]]:
        """Reads the weights of all layers, after which no tensor may remain.

        Args:
            hparams: the hyper-parameters; `share_embeddings` is not set yet.
            embeddings: the result of `convert_embeddings`.
            name_of_part: returns the format's name of a part (see `layer_weights`).
            transposed: whether the format's kernels are [out, in].

        Returns:
            The hyper-parameters, and all weights by their names in our checkpoints.

        Raises:
            UserError: a tensor is missing, does not have the shape that the settings
                imply, or does not belong to the model.
        """
        is_shared = "softmax/table" not in embeddings
        hparams = ExtendedHParams.from_hparams(hparams, share_embeddings=is_shared)
        weights = dict(embeddings)
        for name, table in weights.items():
            if name != "output_bias" and table.shape[1:] != (hparams.d_model,):
                raise UserError(
                    f"{self.path}: the embeddings have the shape {list(table.shape)}, "
                    f"but by its {self._settings} they have {hparams.d_model} columns"
                )
        for name, parts in layer_weights(hparams):
            arrays = []
            for part in parts:
                shape = part_shape(part, hparams)
                arrays.append(self._read_part(name_of_part(part), shape, transposed))
            weights[name] = np.concatenate(arrays, axis=-1)
        if self._arrays:
            raise UserError(
                f"{self.path} has the {self._noun} {min(self._arrays)} (and "
                f"{len(self._arrays) - 1} more), which a model of its "
                f"{self._settings} does not have"
            )
        return hparams, {f"model/{name}": value for name, value in weights.items()}

    def _read_part(
        self, name: str, shape: tuple[int, ...], transposed: bool
    ) -> np.ndarray:
        tensor = self.read(name)
        expected = shape[::-1] if transposed else shape
        if tensor.shape != expected:
            raise UserError(
                f"{self.path}: the {self._noun} {name} has the shape "
                f"{list(tensor.shape)}, but by its {self._settings} it has "
                f"{list(expected)}"
            )
        return tensor.T if transposed else tensor


def layer_weights(hparams: HParams) -> Iterator[tuple[str, list[str]]]:
    """Yields the name of each weight of both stacks, and the names of its parts.

    The parts stand side by side along the last axis of the weight.
    """
    depths = {"encoder": hparams.num_layers, "decoder": hparams.decoder_layers}
    for stack, depth in depths.items():
        for layer in range(depth):
            for sublayer in _PROJECTIONS:
                if sublayer != "cross_attention" or stack == "decoder":
                    yield from _sublayer_weights(f"{stack}/layer_{layer}/{sublayer}")
        if hparams.norm == "pre":
            yield from _norm_weights(stack)


def _sublayer_weights(scope: str) -> Iterator[tuple[str, list[str]]]:
    sublayer = scope.rpartition("/")[2]
    for projection, parts in _PROJECTIONS[sublayer].items():
        for parameter in ("kernel", "bias"):
            name = f"{scope}/{projection}/{parameter}"
            yield name, [f"{scope}/{part}/{parameter}" for part in parts]
    yield from _norm_weights(f"{scope}_residual")


def _norm_weights(scope: str) -> Iterator[tuple[str, list[str]]]:
    for parameter in ("gamma", "beta"):
        name = f"{scope}/norm/{parameter}"
        yield name, [name]


def part_shape(part: str, hparams: HParams) -> tuple[int, ...]:
    """Returns the shape of a part of a layer: [in, out] for a kernel, else [out]."""
    _, name, parameter = part.rsplit("/", 2)
    out_width = hparams.d_ff if name == "inner" else hparams.d_model
    if parameter != "kernel":
        return (out_width,)
    return hparams.d_ff if name == "outer" else hparams.d_model, out_width


def convert_embeddings(
    path: Path,
    token_lists: tuple[TokenList, TokenList],
    source: np.ndarray,
    target: np.ndarray,
    softmax: np.ndarray | None,
    bias: np.ndarray,
) -> dict[str, np.ndarray]:
    """Returns the embedding matrices and the output bias, in the order of our ids.

    Args:
        path: the model's file, for messages.
        token_lists: the tokens of source and target.
        source: source embeddings [V, D].
        target: target embeddings [V, D].
        softmax: transposed kernel [V, D] of the logits; None: it is `target`.
        bias: output bias [V].

    Raises:
        UserError: a matrix does not have one row for each token, or the embedding of
            padding, with which our decoder starts, is not zero.
    """
    source_tokens, target_tokens = token_lists
    weights = {
        "source_embedding/table": _reorder(path, source, source_tokens),
        "target_embedding/table": _reorder(path, target, target_tokens),
    }
    for table in weights.values():
        if table[PAD].any():
            raise UserError(
                f"{path}: the embedding of padding, with which the decoder starts, is "
                "not zero"
            )
    if softmax is not None:
        weights["softmax/table"] = _reorder(path, softmax, target_tokens)
    elif source_tokens.tokens == target_tokens.tokens:
        if np.array_equal(source, target):
            weights = {"embedding/table": weights["source_embedding/table"]}
        else:
            # With two matrices, the model would expect two vocabularies.
            weights["softmax/table"] = weights["target_embedding/table"]
    weights["output_bias"] = _reorder(
        path, bias, target_tokens, NO_PADDING_BIAS, "output bias"
    )
    return weights


def _reorder(
    path: Path,
    rows: np.ndarray,
    tokens: TokenList,
    padding: float = 0.0,
    noun: str = "embedding matrix",
) -> np.ndarray:
    """Returns the rows of a matrix [V, D] or vector [V] in the order of our ids.

    Args:
        path: the model's file, for messages.
        rows: the rows in the order of the model's ids.
        tokens: the list of tokens.
        padding: the row of padding if the model has none.
        noun: what the rows are, for messages.

    Raises:
        UserError: there is not one row for each token.
    """
    num_tokens = int(tokens.original_ids.max()) + 1
    if len(rows) != num_tokens:
        raise UserError(
            f"{path} has an {noun} of {len(rows):,} rows, but its vocabulary has "
            f"{num_tokens:,} tokens; use the vocabulary of the model"
        )
    result = rows[tokens.original_ids].astype(np.float32)
    result[tokens.original_ids == NO_ID] = padding
    return result


def decoding_options(
    path: Path, beam_size: Any, power: Any, names: str
) -> DecodingDefaults:
    """Returns the decoding options that equal the settings of a file.

    Args:
        path: the file, for messages.
        beam_size: the number of beams.
        power: the power of its length by which a score is divided.
        names: the names of both settings, for messages.

    Raises:
        UserError: a value is not a number, or no search has it.
    """
    try:
        options = DecodingOptions(
            beam_size=int(beam_size), length_penalty="power", alpha=float(power)
        )
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {names} must be numbers: {error}") from None
    except UserError as error:
        raise UserError(f"{path}: {names}: {error}") from None
    return {
        "beam_size": options.beam_size,
        "length_penalty": options.length_penalty,
        "alpha": options.alpha,
    }


def ignored_settings(name: str, ignored: Mapping[str, object]) -> list[str]:
    """Returns a sentence about each setting of the search that was not imported.

    Args:
        name: the name of the file that has the settings.
        ignored: the settings that change outputs and have no counterpart.
    """
    return [
        f"{name}: {key} {value!r:.80} has no counterpart, so outputs may differ"
        for key, value in ignored.items()
    ]
