"""A beam search on random ids with a fixed number of steps, to be timed."""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from workload import Workload

from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.constraint import MinimumLength
from t2t_keras.model.transformer import Transformer

ALPHA = 0.6


class DecodingWork(NamedTuple):
    """A search to be timed.

    Attributes:
        search: finds outputs of so many tokens, and returns when it is done.
        traces: returns how often the search has been traced so far.
    """

    search: Callable[[int], None]
    traces: Callable[[], int]


def prepare(work: Workload, beam_size: int) -> DecodingWork:
    """Returns the work of beam search, as the translator runs it.

    The graph is for any batch, beam and length. EOS is ruled out until the last step.
    """
    model = Transformer(work.hparams, work.vocab_size)
    source = tf.constant(work.ids())
    ids, number = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([], tf.int32)

    @tf.function(input_signature=[ids, number, number], autograph=False)
    def graph(source, beam_size, limit):
        return beam_search(
            model,
            source,
            beam_size=beam_size,
            alpha=ALPHA,
            max_length=tf.fill([tf.shape(source)[0]], limit),
            constraint=MinimumLength(limit, work.vocab_size),
        )

    def search(steps: int) -> None:
        found = graph(source, tf.constant(beam_size), tf.constant(steps))
        assert (found.lengths.numpy() == steps).all(), "a search ended before its time"

    return DecodingWork(search, graph.experimental_get_tracing_count)
