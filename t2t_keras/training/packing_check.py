"""Checks that a model keeps the pairs of packed rows apart."""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from t2t_keras.errors import UserError, first_line
from t2t_keras.model import Packing, Transformer

_Floats: TypeAlias = NDArray[np.float32]
_Ids: TypeAlias = NDArray[np.int32]

# The lengths of three pairs, and the pairs in each packed row.
_LENGTHS = {"source": (3, 2, 5), "target": (4, 1, 3)}
_ROWS = ((2, 0), (1,))
# How far logits may differ, in standard deviations: bfloat16 has 1%, mixed pairs 30%.
_TOLERANCE = 0.1
# How far losses may differ, relative to them: mixed pairs differ by 0.5% and more.
_LOSS_TOLERANCE = 0.002


class PackedPairs(NamedTuple):
    """Random pairs, each in a separate row, and the same pairs in packed rows.

    Attributes:
        single: "source" [3, S] and "target" [3, T], a pair in each row.
        packed: the batch of packed rows.
        places: the row and the columns of each pair's target in the packed rows.
    """

    single: dict[str, _Ids]
    packed: dict[str, _Ids]
    places: dict[int, tuple[int, slice]]


def require_packing(model: Transformer) -> None:
    """Raises `UserError` unless a model supports packed rows, with separate pairs."""
    advice = "set the hyper-parameter bucketing=static, or see check_model"
    name = model.hparams.model
    try:
        comparisons = list(packed_and_single_logits(model))
        packed_loss, single_loss = packed_and_single_losses(model)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise UserError(
            f"model '{name}' fails with packed rows ({first_line(error)}): {advice}"
        ) from error
    for packed, single in comparisons:
        if np.max(np.abs(packed - single)) > _TOLERANCE * np.std(single):
            raise UserError(f"model '{name}' mixes the pairs of packed rows: {advice}")
    if abs(packed_loss - single_loss) > _LOSS_TOLERANCE * abs(single_loss):
        raise UserError(
            f"`training_losses` of model '{name}' mixes the pairs of packed rows: "
            f"{advice}"
        )


def packed_and_single_logits(
    model: Transformer, seed: _Ids | None = None
) -> Iterator[tuple[_Floats, _Floats]]:
    """Yields the logits [T, V] of random pairs in packed rows, and in separate rows.

    Args:
        model: the model.
        seed: integers [2], dropout seed.
    """
    pairs = _packed_pairs(model)
    single = np.array(model(pairs.single, seed=seed))  # [3, T, V]
    packing = Packing.from_batch(pairs.packed)
    source = pairs.packed["source"]
    target = pairs.packed["target"]
    states, _ = model.decoder_outputs(source, target, seed, packing)
    logits = np.array(model.logits(states))  # [2, T', V]
    for pair, (row, columns) in pairs.places.items():
        packed_logits = logits[row, columns]
        yield packed_logits, single[pair, : len(packed_logits)]


def packed_and_single_losses(model: Transformer) -> tuple[float, float]:
    """Returns the training loss of random pairs in packed rows, and in separate rows.

    The dropout masks are the same.
    """
    single, packed, _ = _packed_pairs(model)
    seed = np.array([1, 2], np.int32)
    losses = []
    for batch in (packed, single):
        loss, _ = model.training_losses(
            batch["source"],
            batch["target"],
            seed,
            packing=Packing.from_batch(batch),
        )
        losses.append(float(loss))
    return losses[0], losses[1]


def _packed_pairs(model: Transformer) -> PackedPairs:
    """Returns random pairs of a model's vocabularies."""
    single = {}  # [3, T], a pair in each row
    batch: dict[str, _Ids] = {}
    places = {}
    rng = np.random.default_rng(0)
    for side, lengths in _LENGTHS.items():
        is_token = np.arange(max(lengths)) < np.array(lengths)[:, None]  # [3, T]
        ids = rng.integers(2, _vocab_size(model), is_token.shape)  # without PAD and EOS
        single[side] = (ids * is_token).astype(np.int32)
        packed = np.zeros((3, len(_ROWS), sum(lengths)), np.int32)
        for row, pairs in enumerate(_ROWS):
            start = 0
            for pair in pairs:
                stop = start + lengths[pair]
                packed[0, row, start:stop] = ids[pair, : lengths[pair]]
                packed[1, row, start:stop] = pair + 1
                packed[2, row, start:stop] = np.arange(lengths[pair])
                # The target comes after the source, and replaces its place.
                places[pair] = row, slice(start, stop)
                start = stop
        names = (side, f"{side}_segments", f"{side}_positions")
        batch |= dict(zip(names, packed, strict=True))
    return PackedPairs(single, batch, places)


def _vocab_size(model: Transformer) -> int:
    """Returns the size of the smaller vocabulary."""
    if model.target_vocab_size is None:
        return model.source_vocab_size
    return min(model.source_vocab_size, model.target_vocab_size)
