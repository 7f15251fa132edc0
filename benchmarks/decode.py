"""Benchmark of beam search: sentences per second, and the machine's matmul rate.

    python benchmarks/decode.py --config compare --dtype bfloat16 --json

With `--batch 1` the latency matters: the report has the milliseconds of a step, and of
reading the weights from memory once. With `--jit_compile` XLA compiles the search, as
it does by default on a GPU:

    for batch in 1 32 128 512; do
        python benchmarks/decode.py --config base --dtype bfloat16 --jit_compile \
            --batch $batch --json
    done
"""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import rates
import workload
from rates import median_seconds, seconds_of

if TYPE_CHECKING:
    import tensorflow as tf

    from t2t_keras.decoding.constraint import Constraint
    from t2t_keras.decoding.search_loop import Hypotheses, SearchLoop
    from t2t_keras.model.transformer import Transformer


class TimedSearch(NamedTuple):
    """A beam search to be timed.

    Attributes:
        run: finds outputs with the given number of tokens, and returns when it is done.
        traces: returns how often the search has been traced so far.
    """

    run: Callable[[int], None]
    traces: Callable[[], int]


def main() -> None:
    """Runs the benchmark that the flags describe and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser)
    parser.add_argument("--beam_size", type=int, default=4)
    parser.add_argument(
        "--max_length", type=int, default=40, help="steps of each search, above 1"
    )
    parser.add_argument("--steps", type=int, default=4, help="searches timed")
    parser.add_argument(
        "--jit_compile", action="store_true", help="let XLA compile the search"
    )
    args = parser.parse_args()
    if args.max_length < 2:
        parser.error("--max_length must be at least 2")
    work = workload.from_flags(args)
    report = workload.description(args, work) | _report(work, args)
    workload.print_report(report, args.json)


def timed_search(
    work: workload.Workload, beam_size: int, jit_compile: bool = False
) -> TimedSearch:
    """Returns a beam search on random ids, as the translator runs it.

    The graph is for any batch, beam and length. EOS is ruled out until the last step.

    Args:
        work: the model and the size of the batch.
        beam_size: K.
        jit_compile: whether XLA compiles the search, once for each size.
    """
    import tensorflow as tf

    from t2t_keras.decoding.constraint import MinimumLength
    from t2t_keras.decoding.search_loop import compiled
    from t2t_keras.devices import keep_compiled_programs
    from t2t_keras.model.transformer import Transformer

    if jit_compile:
        keep_compiled_programs()
    model = Transformer(work.hparams, work.vocab_size)
    source = tf.constant(work.ids())
    ids = tf.TensorSpec([None, None], tf.int32)
    scalar = tf.TensorSpec([], tf.int32)

    @tf.function(input_signature=[ids, scalar, scalar], autograph=False)
    def search(source, beam_size, length):
        constraint = MinimumLength(length, work.vocab_size)
        search_rows = row_search(model, beam_size, length, constraint)
        if not jit_compile:
            return search_rows(source, None, None)
        return compiled(search_rows, source, None, length - tf.shape(source)[1])

    def run(steps: int) -> None:
        outputs = search(source, tf.constant(beam_size), tf.constant(steps))
        assert (outputs.lengths.numpy() == steps).all(), "a search stopped too early"

    return TimedSearch(run, search.experimental_get_tracing_count)


def row_search(
    model: "Transformer",
    beam_size: "int | tf.Tensor",
    max_length: "int | tf.Tensor",
    constraint: "Constraint | None" = None,
) -> "Callable[[tf.Tensor, tf.Tensor | None, SearchLoop | None], Hypotheses]":
    """Returns a beam search that `compiled` takes; it ignores prefixes.

    Args:
        model: the model.
        beam_size: K.
        max_length: scalar, the largest number of tokens of every output.
        constraint: restricts the tokens.
    """
    import tensorflow as tf

    from t2t_keras.decoding.beam_search import beam_search

    def search_rows(
        ids: "tf.Tensor", prefixes: "tf.Tensor | None", loop: "SearchLoop | None"
    ) -> "Hypotheses":
        del prefixes
        return beam_search(
            model,
            ids,
            beam_size=beam_size,
            alpha=0.6,
            max_length=tf.fill([tf.shape(ids)[0]], max_length),
            constraint=constraint,
            loop=loop,
        )

    return search_rows


def _report(work: workload.Workload, args: argparse.Namespace) -> dict[str, object]:
    """Times whole searches and searches of one step, to find what each step adds."""
    beam_size = args.beam_size
    steps = args.max_length
    matmuls = rates.decoding_matmuls(
        work.hparams, work.vocab_size, work.batch, work.length, beam_size, steps
    )
    search = timed_search(work, beam_size, args.jit_compile)
    first_search = seconds_of(lambda: search.run(steps))
    search.run(1)
    rate = rates.MatmulRate(matmuls, args.dtype)
    seconds = rates.seconds_of_steps(lambda: search.run(steps), args.steps, rate)
    one_step = median_seconds(lambda: search.run(1), args.steps)
    speed = rates.speed(seconds, rates.total_flops(matmuls), rate)
    per_position = (speed["seconds_per_step"] - one_step) / (steps - 1)
    return {
        "beam_size": beam_size,
        "jit_compile": args.jit_compile,
        "seconds_of_first_search": first_search,
        "max_length": steps,
        "sentences_per_s": work.batch / speed["seconds_per_step"],
        **speed,
        "ms_per_position": 1e3 * per_position,
        "ms_to_read_weights": 1e3 * _seconds_to_read_weights(work, args.dtype),
        "traces": search.traces(),
    }


def _seconds_to_read_weights(work: workload.Workload, dtype: str) -> float:
    """Returns a lower bound of a step's time: reading its weights from memory."""
    width = {"float32": 4, "bfloat16": 2}[dtype]
    size = width * rates.step_weights(work.hparams, work.vocab_size)
    return size / rates.tensorflow_bandwidth()


if __name__ == "__main__":
    main()
