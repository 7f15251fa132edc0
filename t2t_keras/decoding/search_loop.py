"""The loop of beam search and sampling, and its hypotheses.

`decode_loop` drops rows that are done. Compiled by XLA, all sizes are fixed, and rows
stay until all are done; XLA compiles a search for each size of its inputs, which takes
seconds, so sizes are rounded up: the rows of a batch, the length of its sources and the
number of steps.
"""

import operator
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.decoding.engine import length_penalty
from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.model.backend import Nest
from t2t_keras.problem import LengthPenalty
from t2t_keras.text.vocabulary import PAD

NEG_INF = float("-inf")  # log-probability of an empty beam slot


class Hypotheses(NamedTuple):
    """The hypotheses for a batch, best first.

    If a sentence has fewer than n, its other slots have no ids, length 0 and score
    -inf.

    Attributes:
        ids: [B, n, T] int32, ending in EOS unless cut off, then padded with PAD.
        scores: [B, n] float32, the log-probabilities divided by the length penalty,
            plus the coverage penalty if there is one.
        log_probs: [B, n] float32, summed over the tokens.
        lengths: [B, n] int32, numbers of tokens, EOS included.
    """

    ids: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


def length_penalties(
    lengths: tf.Tensor, alpha: float | tf.Tensor, formula: LengthPenalty
) -> tf.Tensor:
    """Returns `length_penalty` of integer lengths, float32; slots may be empty."""
    lengths = tf.cast(lengths, tf.float32)
    if formula != "gnmt":
        lengths = tf.maximum(lengths, 1.0)
    return length_penalty(lengths, alpha, formula)


# The inner loop ends when one row in 16 is done, or after 8 steps: each step appends to
# the cache, which copies everything appended since the inner loop began.
_ROWS_PER_DONE = 16
_MAX_INNER_STEPS = 8

_PAD = np.int64(PAD)


class SearchLoop:
    """Runs the steps of beam search, and stores what gets longer with each of them.

    Here ids and cache grow; `CompiledLoop` preallocates them.
    """

    def start_ids(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the ids [B, K, 1], int64, before the first step."""
        return ids

    def append(
        self, ids: tf.Tensor, tokens: tf.Tensor, position: tf.Tensor
    ) -> tf.Tensor:
        """Returns the ids [B, N, 1 + T] of hypotheses with one more token, [B, N].

        Args:
            ids: their ids so far.
            tokens: the tokens.
            position: scalar, the number T of tokens so far.
        """
        del position
        return tf.concat([ids, tf.expand_dims(tokens, 2)], axis=2)

    def append_pad(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns the same ids with as many columns as `append` returns."""
        return tf.concat([ids, tf.fill(tf.shape(ids[:, :, :1]), _PAD)], axis=2)

    def run(
        self,
        model: DecodingModel,
        state: Nest,
        step: Callable[[Nest], Nest],
        results: Callable[[Nest], Hypotheses],
    ) -> Hypotheses:
        """Runs steps until all rows are done; see `decode_loop`."""
        return decode_loop(model, state, step, results)


def decode_loop(
    model: DecodingModel,
    state: Nest,
    step: Callable[[Nest], Nest],
    results: Callable[[Nest], Hypotheses],
) -> Hypotheses:
    """Runs steps until all rows are done, and returns their results.

    A row is a sentence with its K hypotheses, or one sample. Some rows are done long
    before others. If they stayed in the batch, their share of the later steps would be
    wasted: almost half of all steps when news are translated. Removing them copies the
    model's cache, so there are two loops: the inner one runs steps until enough rows
    are done, and the outer one keeps the others.

    The state is a NamedTuple. Its field `position` is a scalar, the number of steps
    done; `done` [B] tells which rows have their results; `cache` is the model's. The
    first axis of all other tensors is the rows.

    Args:
        model: the model that the cache belongs to.
        state: the state before the first step.
        step: maps a state to the next one, and keeps the results of rows that are done.
        results: maps a state to the results of its rows, with one column of ids for
            each step done.
    """
    shapes = shape_invariants(model, state)

    def run_active_rows(
        is_active: tf.Tensor, hypotheses: Hypotheses, state: Nest
    ) -> tuple[tf.Tensor, Hypotheses, Nest]:
        active_rows = tf.cast(tf.where(~state.done)[:, 0], tf.int32)
        stop_position = state.position + _MAX_INNER_STEPS

        def few_are_done(state: Nest) -> tf.Tensor:
            num_done = tf.math.count_nonzero(state.done, dtype=tf.int32)
            is_few = _ROWS_PER_DONE * num_done < tf.size(state.done)
            return is_few & (state.position < stop_position)

        state = select_rows(model, state, active_rows)
        state = run_steps(state, step, few_are_done, shapes)
        # The row of the state that belongs to each active sentence.
        rows = tf.maximum(tf.cumsum(tf.cast(is_active, tf.int32)) - 1, 0)  # [B]
        hypotheses = _update_active(is_active, rows, results(state), hypotheses)
        return is_active & ~tf.gather(state.done, rows), hypotheses, state

    hypotheses = results(state)
    _, hypotheses, _ = tf.while_loop(
        lambda is_active, *_: tf.reduce_any(is_active),
        run_active_rows,
        (~state.done, hypotheses, state),
        shape_invariants=(tf.TensorShape([None]), _ranks(hypotheses), shapes),
    )
    return hypotheses


def run_steps(
    state: Nest,
    step: Callable[[Nest], Nest],
    is_running: Callable[[Nest], tf.Tensor],
    shapes: Nest,
) -> Nest:
    """Runs steps with the same rows while `is_running`.

    Args:
        state: the state before the first step; see `decode_loop`.
        step: maps a state to the next one.
        is_running: maps a state to a scalar.
        shapes: the shapes that hold at every step; see `shape_invariants`.
    """
    (state,) = tf.while_loop(
        is_running,
        lambda state: (step(state),),
        (state,),
        shape_invariants=(shapes,),
    )
    return state


def shape_invariants(model: DecodingModel, state: Nest) -> Nest:
    """Returns the shapes that hold for a state with any number of rows."""
    cache_shapes = keras.tree.map_structure_up_to(
        state.cache,
        lambda shape: tf.TensorShape([None, *shape[1:]] if shape else []),
        model.cache_shapes(state.cache),
    )
    return _ranks(state)._replace(cache=cache_shapes)


def _ranks(nest: Nest) -> Nest:
    """Returns shapes of which only the ranks are known."""
    return tf.nest.map_structure(lambda x: tf.TensorShape([None] * x.shape.rank), nest)


def _update_active(
    is_active: tf.Tensor, rows: tf.Tensor, results: Hypotheses, hypotheses: Hypotheses
) -> Hypotheses:
    """Returns the hypotheses, with those of active sentences from the given rows."""
    latest = tf.nest.map_structure(lambda x: tf.gather(x, rows), results)
    columns = tf.shape(latest.ids)[2] - tf.shape(hypotheses.ids)[2]
    ids = tf.pad(hypotheses.ids, [[0, 0], [0, 0], [0, columns]])  # [B, n, T]
    return where_rows(is_active, latest, hypotheses._replace(ids=ids))


def select_rows(model: DecodingModel, state: Nest, rows: tf.Tensor) -> Nest:
    """Returns the state of the given rows."""
    fields = {
        name: tf.nest.map_structure(lambda x: tf.gather(x, rows), value)
        for name, value in state._asdict().items()
        if name not in ("position", "cache")
    }
    return state._replace(cache=model.select_rows(state.cache, rows), **fields)


def where_rows(condition: tf.Tensor, x: Nest, y: Nest) -> Nest:
    """Returns nest x in the rows where the condition [B] holds, and y elsewhere."""
    return tf.nest.map_structure(
        lambda x, y: tf.where(
            tf.reshape(condition, [-1] + [1] * (x.shape.rank - 1)), x, y
        ),
        x,
        y,
    )


# One row would need more kernels: XLA pads a matrix of fewer than 8 rows, such as that
# of 4 beams, for each product.
_ROWS = (2, 8, *(2**n for n in range(5, 31)))
_LENGTHS = tuple(2**n for n in range(4, 31))
_STEPS = 32  # the number of steps is a multiple of it
# The cache is preallocated for 1 / 4 of the steps in the first stage, for 1 / 2 in the
# second, and for all in the third. Each is a multiple of 8 steps, so XLA does not pad
# the cache.
_STAGES = (4, 2, 1)


class CompiledLoop(SearchLoop):
    """The loop for XLA, with preallocated cache and ids.

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
        """Runs steps until all rows are done, in stages."""
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
    """Runs the steps of a stage; what no step changes bypasses the loop.

    TensorFlow 2.21 cannot compile a constant that goes through more than two loops.
    """
    is_constant: Nest = None

    def watched_step(state: Nest) -> Nest:
        nonlocal is_constant
        next_state = step(state)
        is_constant = tf.nest.map_structure(operator.is_, state, next_state)
        return next_state

    def is_running(state: Nest) -> tf.Tensor:
        return ~tf.reduce_all(state.done | (state.position >= max_steps))

    last_state = run_steps(state, watched_step, is_running, shapes)
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
