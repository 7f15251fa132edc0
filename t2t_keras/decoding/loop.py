"""The loop of beam search and sampling: steps, until all rows of a batch are done.

A row is a sentence with its K hypotheses, or one sample. Some rows are done long before
others, and in a batch of fixed size their share of the later steps would be wasted:
almost half of all steps in translations of news. So the rows that are done leave the
batch. To select rows is to copy the model's cache, so the loop is two: the inner one
runs steps until enough rows are done, then the outer one copies the others.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

import keras
import tensorflow as tf

from t2t_keras.decoding.options import LengthPenalty
from t2t_keras.model.backend import Nest

NOTHING = float("-inf")  # the log-probability of a place without a hypothesis

# The inner loop ends when one row in so many is done, or after so many steps, because a
# step appends to the cache and appending copies what was appended since.
_ROWS_PER_DONE = 16
_STEPS_AT_ONCE = 8


class StepModel(Protocol):
    """The methods of a model that decoding calls; `model.Transformer` has them.

    The cache is a nest of tensors: all that the model keeps of the source and of the
    tokens so far.
    """

    def encode(self, source: tf.Tensor) -> tf.Tensor:
        """Returns the memory of source ids [B, S]."""

    def start_cache(
        self, memory: tf.Tensor, source: tf.Tensor, num_beams: tf.Tensor
    ) -> Nest:
        """Returns the cache before the first step."""

    def cache_shapes(self, cache: Nest) -> Nest:
        """Returns the shapes that hold for the cache at every step."""

    def decode_step(
        self, ids: tf.Tensor, position: tf.Tensor, cache: Nest
    ) -> tuple[tf.Tensor, Nest]:
        """Returns logits [B, K, V] after the tokens [B, K] of the previous step."""

    def reorder_cache(self, cache: Nest, parents: tf.Tensor) -> Nest:
        """Returns the cache in which beam k continues beam `parents[b, k]`."""

    def select_rows(self, cache: Nest, rows: tf.Tensor) -> Nest:
        """Returns the cache of the given rows of the batch."""

    def track_coverage(self, cache: Nest, source: tf.Tensor) -> Nest:
        """Returns the first cache, changed so that `coverage` can be asked for."""

    def coverage(self, cache: Nest) -> tf.Tensor:
        """Returns how much attention each source token got from a hypothesis.

        It is [B, K, S], the sum of the attention weights over all steps, and 1 where
        the source is padded.
        """


class Hypotheses(NamedTuple):
    """The results for a batch, best first.

    Where there are fewer than n hypotheses, the other places have no ids, length 0 and
    score -inf.

    Attributes:
        ids: [B, n, T] int32, ending in EOS unless cut off, then padded with PAD.
        scores: [B, n] float32, log_probs over the length penalty, plus the coverage
            penalty if there is one.
        log_probs: [B, n] float32, summed over the tokens.
        lengths: [B, n] int32, the numbers of tokens, EOS included.
    """

    ids: tf.Tensor
    scores: tf.Tensor
    log_probs: tf.Tensor
    lengths: tf.Tensor


def length_penalty(
    length: tf.Tensor, alpha: float | tf.Tensor, kind: LengthPenalty = "gnmt"
) -> tf.Tensor:
    """Returns what the log-probability of so many tokens is divided by, float32.

    Args:
        length: numbers of tokens, EOS included.
        alpha: the exponent of `gnmt` and `power`.
        kind: `gnmt` is ((5 + length) / 6) ** alpha (Wu et al., 2016); `power`, of
            fairseq, Marian and CTranslate2, is length ** alpha; `average` is the
            length; `none` is 1.
    """
    length = tf.cast(length, tf.float32)
    if kind == "gnmt":
        return tf.pow((5.0 + length) / 6.0, alpha)
    length = tf.maximum(length, 1.0)
    if kind == "power":
        return tf.pow(length, alpha)
    return length if kind == "average" else tf.ones_like(length)


def decode(
    model: StepModel,
    start: Nest,
    step: Callable[[Nest], Nest],
    results: Callable[[Nest], Hypotheses],
) -> Hypotheses:
    """Runs steps until all rows are done, and returns their results.

    The state is a NamedTuple. Its field `position` is a scalar, the number of steps
    done; `done` [B] tells which rows have their results; `cache` is the model's. All
    other tensors have one element for each row along their first axis.

    Args:
        model: the model, to which the cache belongs.
        start: the state before the first step.
        step: maps a state to the next one. It must not change the results of rows that
            are done.
        results: maps a state to the results of its rows, with a column of ids for each
            step done.
    """
    shapes = _shapes(model, start)

    def run_steps(
        is_active: tf.Tensor, found: Hypotheses, state: Nest
    ) -> tuple[tf.Tensor, Hypotheses, Nest]:
        is_left = tf.where(~state.done)[:, 0]
        state = select(model, state, tf.cast(is_left, tf.int32))
        last = state.position + _STEPS_AT_ONCE

        def few_are_done(state: Nest) -> tf.Tensor:
            done = tf.math.count_nonzero(state.done, dtype=tf.int32)
            few = _ROWS_PER_DONE * done < tf.size(state.done)
            return few & (state.position < last)

        (state,) = tf.while_loop(
            few_are_done,
            lambda state: (step(state),),
            (state,),
            shape_invariants=(shapes,),
        )
        # The row that each active sentence has in the state.
        rows = tf.maximum(tf.cumsum(tf.cast(is_active, tf.int32)) - 1, 0)
        new = tf.nest.map_structure(lambda x: tf.gather(x, rows), results(state))
        more = tf.shape(new.ids)[2] - tf.shape(found.ids)[2]
        old = found._replace(ids=tf.pad(found.ids, [[0, 0], [0, 0], [0, more]]))
        found = where(is_active, new, old)
        return is_active & ~tf.gather(state.done, rows), found, state

    found = results(start)
    ranks = tf.nest.map_structure(
        lambda x: tf.TensorShape([None] * x.shape.rank), found
    )
    _, found, _ = tf.while_loop(
        lambda is_active, *_: tf.reduce_any(is_active),
        run_steps,
        (~start.done, found, start),
        shape_invariants=(tf.TensorShape([None]), ranks, shapes),
    )
    return found


def select(model: StepModel, state: Nest, rows: tf.Tensor) -> Nest:
    """Returns the state of the given rows."""
    others = {
        name: tf.nest.map_structure(lambda x: tf.gather(x, rows), value)
        for name, value in state._asdict().items()
        if name not in ("position", "cache")
    }
    return state._replace(cache=model.select_rows(state.cache, rows), **others)


def where(condition: tf.Tensor, first: Nest, second: Nest) -> Nest:
    """Returns the first nest in the rows where the condition holds, else the second."""
    return tf.nest.map_structure(
        lambda x, y: tf.where(
            tf.reshape(condition, [-1] + [1] * (x.shape.rank - 1)), x, y
        ),
        first,
        second,
    )


def _shapes(model: StepModel, state: Nest) -> Nest:
    """Returns the shape invariants of the state, valid for any batch."""
    ranks = tf.nest.map_structure(
        lambda x: tf.TensorShape([None] * x.shape.rank), state
    )
    cache = keras.tree.map_structure_up_to(
        state.cache,
        lambda shape: tf.TensorShape([None, *shape[1:]]),
        model.cache_shapes(state.cache),
    )
    return ranks._replace(cache=cache)
