"""Beam search compiled by XLA: all sizes are fixed, and rows stay until all are done.

XLA compiles a search for each size of its inputs, which takes seconds. So sizes are
rounded up: the rows of a batch, the length of its sources and the number of steps.
"""

import operator
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from t2t_keras.decoding.decode_loop import SearchLoop, run_all_rows, shape_invariants
from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.decoding.hypotheses import Hypotheses
from t2t_keras.model.backend import Nest
from t2t_keras.text.tokenizer import PAD

# One row would need more kernels: XLA pads a matrix of fewer than 8 rows, such as that
# of 4 beams, for each product.
_ROWS = (2, 8, *(2**n for n in range(5, 31)))
_LENGTHS = tuple(2**n for n in range(4, 31))
_STEPS = 32  # the number of steps is a multiple of it
# The cache is preallocated for 1 / 4 of the steps in the first stage, for 1 / 2 in the
# second, and for all in the third. Each is a multiple of 8 steps, so XLA does not pad
# the cache.
_STAGES = (4, 2, 1)


class CompiledLoop:
    """A `SearchLoop` for XLA, with preallocated cache and ids.

    Attention reads all columns of the cache, used or not. So the search has stages. The
    cache of the first is preallocated for a quarter of the steps, and that of the
    second for half of them. Most searches end before the last stage.

    Args:
        max_steps: scalar, the largest number of steps, a multiple of 32.
    """

    def __init__(self, max_steps: int | tf.Tensor) -> None:
        self._max_steps = max_steps

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
        for stage in _STAGES:
            max_steps = self._max_steps // stage
            cache = model.reserve_cache(state.cache, max_steps)
            state = state._replace(cache=cache)
            shapes = shape_invariants(model, state)
            state = _run_stage(state, step, shapes, max_steps)
        return results(state)


def _run_stage(
    state: Nest, step: Callable[[Nest], Nest], shapes: Nest, max_steps: int | tf.Tensor
) -> Nest:
    """Calls `run_all_rows`; what no step changes bypasses the loop.

    TensorFlow 2.21 cannot compile a constant that goes through more than two loops.
    """
    is_constant: Nest = None

    def watched_step(state: Nest) -> Nest:
        nonlocal is_constant
        next_state = step(state)
        is_constant = tf.nest.map_structure(operator.is_, state, next_state)
        return next_state

    last_state = run_all_rows(state, watched_step, shapes, max_steps)
    return tf.nest.map_structure(
        lambda constant, x, y: x if constant else y, is_constant, state, last_state
    )


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
        ids: [B, S], see `SearchInputs`.
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
