"""Beam search compiled by XLA: all sizes are fixed, and rows stay until all are done.

XLA compiles a search for each size of its inputs, which takes seconds. So sizes are
rounded up: the rows of a batch, the length of its sources and the number of steps.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.decode_loop import SearchLoop, run_all_rows, shape_invariants
from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.decoding.hypotheses import Hypotheses
from t2t_keras.model.backend import Nest
from t2t_keras.text.tokenizer import PAD

_ROWS = (1, 8, *(2**n for n in range(5, 31)))
_LENGTHS = tuple(2**n for n in range(4, 31))
_STEPS = 32  # the number of steps is a multiple of it


class CompiledLoop:
    """A `SearchLoop` for XLA: cache and ids are preallocated for all steps.

    Args:
        max_steps: scalar, the largest number of steps.
    """

    def __init__(self, max_steps: int | tf.Tensor) -> None:
        self._max_steps = max_steps

    def start_cache(self, model: DecodingModel, cache: Nest) -> Nest:
        """Returns the model's cache, preallocated for all steps."""
        return model.reserve_cache(cache, self._max_steps)

    def start_ids(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the ids with a column of PAD for each step."""
        columns = [[0, 0], [0, 0], [0, self._max_steps]]
        return tf.pad(ids, columns, constant_values=PAD)

    def append(
        self, ids: tf.Tensor, tokens: tf.Tensor, position: tf.Tensor
    ) -> tf.Tensor:
        """Returns the ids with the tokens in their column."""
        is_new = tf.range(tf.shape(ids)[2]) == position + 1  # [1 + T]
        return tf.where(is_new, tokens[:, :, None], ids)

    def append_pad(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the same ids, which have all columns."""
        return ids

    def run(
        self,
        model: DecodingModel,
        state: Nest,
        step: Callable[[Nest], Nest],
        results: Callable[[Nest], Hypotheses],
    ) -> Hypotheses:
        """Runs steps until all rows are done; see `SearchLoop`."""
        shapes = shape_invariants(model, state)
        return results(run_all_rows(state, step, shapes))


def compiled(
    search: Callable[[tf.Tensor, tf.Tensor | None, SearchLoop], Hypotheses],
    ids: tf.Tensor,
    prefixes: tf.Tensor | None,
    extra_length: int | tf.Tensor,
) -> Hypotheses:
    """Returns the results of a search that XLA compiles, for inputs of rounded sizes.

    Args:
        search: maps the ids of sources and prefixes, and a loop, to hypotheses; a
            source of PAD only has the empty output.
        ids: [B, S], see `SearchGraph.search`.
        prefixes: [B, P], or None.
        extra_length: how many more tokens than its source an output may have.
    """
    batch, length = tf.unstack(tf.shape(ids))
    rows = _rounded(batch, _ROWS) - batch
    ids = tf.pad(ids, [[0, rows], [0, _rounded(length, _LENGTHS) - length]])
    steps = tf.shape(ids)[1] + extra_length
    if prefixes is not None:
        prefixes = tf.pad(prefixes, [[0, rows], [0, 0]])
        steps = tf.maximum(steps, tf.shape(prefixes)[1] + 1)
    steps = -(-steps // _STEPS) * _STEPS

    @tf.function(jit_compile=True, autograph=False)
    def run() -> Hypotheses:
        return search(ids, prefixes, CompiledLoop(steps))

    hypotheses = tf.nest.map_structure(lambda x: x[:batch], run())
    width = tf.reduce_max(hypotheses.lengths)
    return hypotheses._replace(ids=hypotheses.ids[:, :, :width])


def rounded_length(length: int) -> int:
    """Returns the length to which sources are padded."""
    return next(size for size in _LENGTHS if size >= length)


def _rounded(size: tf.Tensor, sizes: tuple[int, ...]) -> tf.Tensor:
    """Returns the smallest of the sizes that is at least `size`."""
    table = np.array(sizes, np.int32)
    # By arithmetic: a GPU would run `tf.where`, and the host would wait for it.
    is_smaller = tf.clip_by_value(size - table, 0, 1)
    return tf.reduce_min(table + is_smaller * (table[-1] - table))
