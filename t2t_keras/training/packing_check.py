"""Whether a model keeps the pairs of packed rows apart."""

from collections.abc import Iterator
from typing import TypeAlias

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


def require_packing(model: Transformer) -> None:
    """Raises `UserError` if a model mixes the pairs of packed rows, or lacks them."""
    advice = "set the hyper-parameter bucketing=static, or see check_model"
    name = model.hparams.model
    try:
        comparisons = list(packed_and_single_logits(model))
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        raise UserError(
            f"model '{name}' fails with packed rows ({first_line(error)}): {advice}"
        ) from error
    for packed, single in comparisons:
        if np.max(np.abs(packed - single)) > _TOLERANCE * np.std(single):
            raise UserError(f"model '{name}' mixes the pairs of packed rows: {advice}")


def packed_and_single_logits(
    model: Transformer, seed: _Ids | None = None
) -> Iterator[tuple[_Floats, _Floats]]:
    """Yields the logits [T, V] of random pairs in packed rows, and in separate rows.

    Args:
        model: the model.
        seed: integers [2], dropout seed.
    """
    sides = {}  # [3, T], a pair in each row
    batch: dict[str, _Ids] = {}
    locations = {}  # of the target's tokens, in packed rows
    rng = np.random.default_rng(0)
    for side, lengths in _LENGTHS.items():
        is_token = np.arange(max(lengths)) < np.array(lengths)[:, None]  # [3, T]
        ids = rng.integers(2, _vocab_size(model), is_token.shape)  # without PAD and EOS
        sides[side] = (ids * is_token).astype(np.int32)
        packed = np.zeros((3, len(_ROWS), sum(lengths)), np.int32)
        for row, pairs in enumerate(_ROWS):
            start = 0
            for pair in pairs:
                stop = start + lengths[pair]
                packed[0, row, start:stop] = ids[pair, : lengths[pair]]
                packed[1, row, start:stop] = pair + 1
                packed[2, row, start:stop] = np.arange(lengths[pair])
                locations[pair] = row, slice(start, stop)
                start = stop
        names = (side, f"{side}_segments", f"{side}_positions")
        batch |= dict(zip(names, packed, strict=True))
    single = np.array(model(sides["source"], sides["target"], seed=seed))  # [3, T, V]
    packing = Packing.from_batch(batch)
    states, _ = model.decoder_outputs(batch["source"], batch["target"], seed, packing)
    logits = np.array(model.logits(states))  # [2, T', V]
    for pair, (row, columns) in locations.items():
        packed_logits = logits[row, columns]
        yield packed_logits, single[pair, : len(packed_logits)]


def _vocab_size(model: Transformer) -> int:
    """Returns the size of the smaller vocabulary."""
    if model.target_vocab_size is None:
        return model.source_vocab_size
    return min(model.source_vocab_size, model.target_vocab_size)
