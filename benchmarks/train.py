"""Benchmark of training: target tokens per second beside the matmul rate, and memory.

    python benchmarks/train.py --config compare --dtype bfloat16 --json
    python benchmarks/train.py --config base --memory 1024 2048 4096 --json

Runs `TrainStep` on random ids: a step of `t2t train` without reading the data. With
`--replicas 2` two simulated devices share the processor, so that the additional time is
the overhead of replicas. With `--baseline fit` it also runs Keras's training loop on
the same model.

With `--memory` each of these batches is trained on in a separate process, whose peak
resident set the system reports. A line through these points gives the fixed memory, for
weights and optimizer, and the memory for each target token, and so the largest batch.
"""

import argparse
import dataclasses
import multiprocessing
import resource
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import rates
import workload
from rates import seconds_of
from workload import LEARNING_RATE, Workload

from t2t_keras import HParams

# TensorFlow is imported inside functions, after `workload` has set its environment.
if TYPE_CHECKING:
    import tensorflow as tf

    from t2t_keras.model.backend import Tensor
    from t2t_keras.model.transformer import Transformer
    from t2t_keras.training.step import StepResult, TrainStep

FIT_STEPS = 4  # steps in one call of `fit`, whose start takes some time
FIT_ROUNDS = 4
MEMORY_STEPS = 2  # The second has everything that stays in memory between steps.
SIZES = (2, 4, 8, 16, 24, 32, 48, 80)  # GB


def main() -> None:
    """Runs the benchmark that the flags describe and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser)
    parser.add_argument("--steps", type=int, default=12, help="timed steps")
    parser.add_argument("--replicas", type=int, default=1, help="simulated on the CPU")
    parser.add_argument(
        "--accumulate", type=int, default=1, help="micro-batches of each replica"
    )
    parser.add_argument("--baseline", choices=("fit",), help="to compare with")
    parser.add_argument(
        "--memory",
        type=int,
        nargs="+",
        metavar="TOKENS",
        help="measure the memory of batches with these numbers of target tokens",
    )
    args = parser.parse_args()
    work = workload.from_flags(args)
    report = workload.description(args, work)
    report |= (_memory_report if args.memory else _speed_report)(work, args)
    workload.print_report(report, args.json)


def _speed_report(work: Workload, args: argparse.Namespace) -> dict[str, object]:
    """Times `TrainStep`, and what it is compared with."""
    step = train_step(work, args.replicas, args.accumulate)
    report: dict[str, object] = {
        "replicas": args.replicas,
        "accumulate": args.accumulate,
        "parameters": step.parameters,
    }
    matmuls = rates.training_matmuls(
        work.hparams, work.vocab_size, work.batch, work.length, work.length
    )
    rate = rates.MatmulRate(matmuls, args.dtype)
    seconds = rates.seconds_of_steps(step.run, args.steps, rate)
    speed = rates.speed(seconds, rates.total_flops(matmuls), rate)
    tokens_per_s = work.batch * work.length / speed["seconds_per_step"]
    report |= {"target_tokens_per_s": tokens_per_s, **speed}
    if args.baseline:
        report |= _compared_with_fit(work, step.run)
    return report | {"traces": step.traces()}


def _compared_with_fit(work: Workload, step: Callable[[], None]) -> dict[str, object]:
    """Times Keras's `fit` on the same batches, alternately with `TrainStep`."""

    def train(steps: int) -> None:
        for _ in range(steps):
            step()

    loops = {
        "train_step": train,
        "fit": fit_steps(work, jit_compile=False),
        "fit_xla": fit_steps(work, jit_compile=True),
    }
    seconds: dict[str, list[float]] = defaultdict(list)
    for _ in range(1 + FIT_ROUNDS):
        for name, run in loops.items():
            duration = seconds_of(lambda run=run: run(FIT_STEPS))
            seconds[name].append(duration / FIT_STEPS)
    # Without the first round, which traces and compiles.
    median = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    tokens = work.batch * work.length
    return {
        "fit_target_tokens_per_s": tokens / median["fit"],
        "fit_xla_target_tokens_per_s": tokens / median["fit_xla"],
        "speedup": min(median["fit"], median["fit_xla"]) / median["train_step"],
    }


def _memory_report(work: Workload, args: argparse.Namespace) -> dict[str, object]:
    """Measures the memory of batches of several sizes."""
    peaks = [_peak_in_child(work, tokens, args.accumulate) for tokens in args.memory]
    slope, fixed = np.polyfit(args.memory, peaks, 1)
    return {
        "accumulate": args.accumulate,
        "tokens": args.memory,
        "peak_gb": [peak / 1e9 for peak in peaks],
        "fixed_gb": fixed / 1e9,
        "kb_per_token": slope / 1e3,
        "largest_batch_tokens": {
            f"{size} GB": max(0, int((size * 1e9 - fixed) / slope)) for size in SIZES
        },
    }


def _peak_in_child(work: Workload, tokens: int, micro_batches: int) -> int:
    """Returns the peak memory, in bytes, of a process that trains on such batches."""
    work = dataclasses.replace(work, batch=max(1, tokens // work.length))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (work, micro_batches))


def _peak(work: Workload, micro_batches: int) -> int:
    """Trains for some steps in this process; returns its peak in bytes."""
    step = train_step(work, micro_batches=micro_batches)
    for _ in range(MEMORY_STEPS):
        step.run()
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class TimedStep(NamedTuple):
    """A training step to be timed.

    Attributes:
        run: does the step and returns when it is done.
        traces: returns how often the step has been traced so far.
        parameters: number of the model's parameters.
    """

    run: Callable[[], None]
    traces: Callable[[], int]
    parameters: int


def model_and_step(
    hparams: HParams,
    vocab_size: int,
    strategy: "tf.distribute.Strategy",
    micro_batches: int = 1,
) -> "tuple[Transformer, TrainStep]":
    """Returns a new model on the replicas of a strategy, and its `TrainStep`."""
    from t2t_keras.model.transformer import Transformer
    from t2t_keras.run.checkpoint import model_variables
    from t2t_keras.training.optimizer import make_optimizer
    from t2t_keras.training.step import TrainStep

    with strategy.scope():
        model = Transformer(hparams, vocab_size)
        optimizer = make_optimizer(model_variables(model), hparams)
        return model, TrainStep(model, optimizer, strategy, 0, micro_batches)


def updates_of(
    step: "TrainStep",
    batch: Mapping[str, np.ndarray],
    strategy: "tf.distribute.Strategy",
    micro_batches: int,
) -> "Callable[[int], StepResult]":
    """Returns a function that makes the update of a step, counted from 0.

    Args:
        step: has the model.
        batch: rows of all replicas and their micro-batches, the same in every step.
        strategy: divides the rows.
        micro_batches: the parts into which each replica divides its rows.
    """
    import tensorflow as tf

    from t2t_keras.data.pipeline import rows_per_replica
    from t2t_keras.training.strategy import distribute

    replicas = strategy.num_replicas_in_sync
    divided = {
        name: rows_per_replica(tf.constant(rows), replicas, micro_batches)
        for name, rows in batch.items()
    }
    dataset = tf.data.Dataset.from_tensor_slices(divided)
    (distributed,) = distribute(strategy, dataset)
    return lambda index: step.update(distributed, index, LEARNING_RATE)


def train_step(work: Workload, replicas: int = 1, micro_batches: int = 1) -> TimedStep:
    """Returns an update of `TrainStep`.

    Args:
        work: the model and its batch.
        replicas: simulated devices among which the batch is divided.
        micro_batches: the parts into which each replica divides its rows.
    """
    from t2t_keras.training.strategy import make_strategy

    strategy = make_strategy(replicas)
    model, train = model_and_step(
        work.hparams, work.vocab_size, strategy, micro_batches
    )
    batch = {"source": work.ids(0), "target": work.ids(1)}
    update = updates_of(train, batch, strategy, micro_batches)
    index = 0

    def run() -> None:
        nonlocal index
        float(update(index).loss_sum)  # waits for the device
        index += 1

    traces = train.function.experimental_get_tracing_count
    return TimedStep(run, traces, model.count_params())


def fit_steps(work: Workload, jit_compile: bool) -> Callable[[int], None]:
    """Returns a function that trains for a number of steps with Keras's `fit`.

    Args:
        work: the model and its batch.
        jit_compile: let XLA compile the step.
    """
    import keras
    import tensorflow as tf

    from t2t_keras.model.transformer import Transformer

    hparams = work.hparams

    class FitModel(keras.Model):
        """The model of pairs; a seed generator seeds its dropout."""

        def __init__(self) -> None:
            super().__init__()
            self.transformer = Transformer(hparams, work.vocab_size)
            self.seeds = keras.random.SeedGenerator(0)

        def call(
            self, pair: "tuple[Tensor, Tensor]", training: bool = False
        ) -> "Tensor":
            """Returns logits [B, T, V]."""
            seed = self.seeds.next() if training else None
            return self.transformer(*pair, seed=seed)

    def loss(target: "Tensor", logits: "Tensor") -> "Tensor":
        return keras.losses.categorical_crossentropy(
            keras.ops.one_hot(target, work.vocab_size),
            logits,
            from_logits=True,
            label_smoothing=hparams.label_smoothing,
        )

    model = FitModel()
    optimizer = keras.optimizers.Adam(
        LEARNING_RATE, hparams.adam_beta1, hparams.adam_beta2, hparams.adam_epsilon
    )
    model.compile(optimizer, loss, jit_compile=jit_compile)
    target = work.ids(1)
    pair = (work.ids(0), target)
    batches = tf.data.Dataset.from_tensors((pair, target)).repeat()

    def run(steps: int) -> None:
        model.fit(batches, steps_per_epoch=steps, verbose=0)

    return run


if __name__ == "__main__":
    main()
