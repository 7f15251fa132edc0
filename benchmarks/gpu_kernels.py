"""The kernels that XLA makes for a GPU, counted on any machine, with an estimate.

    python benchmarks/gpu_kernels.py --config base --dtype bfloat16 --batch 704
    python benchmarks/gpu_kernels.py --config base --dtype bfloat16 --search --batch 1

Compiles what `t2t` lets XLA compile: the two parts of a training step on packed rows,
or a beam search, for a card that need not be there. Prints the kernels, their bytes and
FLOPs, and how long they would take at the rates that kernels sustain. For each part the
kernels are summed by category, and the longest are named by TensorFlow's operation.

It needs JAX's plugin for CUDA, which runs without a GPU:

    pip install jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import workload
from decode import row_search
from xla_kernels.kernel_costs import Kernel, Rates, kernels
from xla_kernels.optimized_hlo import read_module

from t2t_keras.cli.command import positive
from t2t_keras.console import columns, table
from t2t_keras.errors import UserError

if TYPE_CHECKING:
    import jax
    from xla_kernels.absent_gpu import Compiler


class Part(NamedTuple):
    """A part of the work.

    Attributes:
        kernels: its kernels.
        memory_gb: of arguments, results and temporary arrays of its program.
    """

    kernels: list[Kernel]
    memory_gb: float


def main() -> None:
    """Runs the benchmark that the flags describe and prints its report."""
    from xla_kernels.absent_gpu import CHOICES, Compiler, rates

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser, config="base")
    parser.add_argument("--card", type=str.upper, choices=CHOICES, default="H100")
    parser.add_argument("--search", action="store_true", help="in place of training")
    parser.add_argument("--beam_size", type=positive, default=4)
    parser.add_argument(
        "--max_length",
        type=positive,
        default=64,
        help="tokens for which the search has memory (default: 64)",
    )
    parser.add_argument(
        "--largest", type=positive, default=20, help="kernels that are listed"
    )
    args = parser.parse_args()
    work = workload.from_flags(args)
    try:
        compiler = Compiler(args.card)
    except UserError as error:
        parser.error(str(error))
    if args.search:
        parts = _search_parts(compiler, work, args.beam_size, args.max_length)
    else:
        parts = dict(_training_parts(compiler, work))
    report = {
        "config": args.config,
        "dtype": args.dtype,
        "batch": work.batch,
        "length": work.length,
        "card": args.card,
        "parts": {
            name: _part_report(part, rates(args.card), args.largest)
            for name, part in parts.items()
        },
    }
    _print_tables(report, sys.stderr if args.json else sys.stdout)
    if args.json:
        print(json.dumps(report))


def _training_parts(
    compiler: "Compiler", work: workload.Workload
) -> Iterator[tuple[str, Part]]:
    """Yields the two programs of a training step, as `t2t train` has them on a GPU."""
    import tensorflow as tf
    from training_steps import model_and_step

    from t2t_keras.data.pipeline import batch_signature
    from t2t_keras.training.strategy import make_strategy

    tf.keras.utils.set_random_seed(1)
    tf.config.experimental.enable_op_determinism()
    hparams = work.hparams.override(bucketing="packed", jit_compile=True)
    _, step = model_and_step(hparams, work.vocab_size, make_strategy(1))
    rows = tf.TensorSpec([work.batch, work.length], tf.int64)
    inputs = (
        dict.fromkeys(batch_signature(packed=True), rows),
        tf.TensorSpec([2], tf.int64),  # seed
        tf.TensorSpec([], tf.float32),  # loss scale
        tf.TensorSpec([], tf.uint32),  # first row
    )
    sums = step.gradient_sums.get_concrete_function(*inputs).structured_outputs
    program = compiler.compile(step.gradient_sums, *inputs, is_deterministic=True)
    yield "forward and backward pass", _part(program)
    index = tf.TensorSpec([], tf.int64)
    learning_rate = tf.TensorSpec([], tf.float32)
    dry_run = tf.TensorSpec([], tf.bool)
    program = compiler.compile(
        step.weight_update, sums, index, learning_rate, dry_run, is_deterministic=True
    )
    yield "update", _part(program)


def _search_parts(
    compiler: "Compiler", work: workload.Workload, beam_size: int, max_length: int
) -> dict[str, Part]:
    """Returns the parts of a beam search: a step of each loop, and the rest."""
    import tensorflow as tf

    from t2t_keras.decoding.constraint import MinimumLength
    from t2t_keras.decoding.search_loop import CompiledLoop, Hypotheses
    from t2t_keras.model.transformer import Transformer

    model = Transformer(work.hparams, work.vocab_size)

    @tf.function(autograph=False, jit_compile=True)
    def search(ids: tf.Tensor) -> Hypotheses:
        constraint = MinimumLength(0, work.vocab_size)
        search_rows = row_search(model, beam_size, max_length, constraint)
        return search_rows(ids, None, CompiledLoop(max_length))

    ids = tf.TensorSpec([work.batch, work.length], tf.int32)
    part = _part(compiler.compile(search, ids))
    by_loop: defaultdict[str, list[Kernel]] = defaultdict(list)
    for kernel in part.kernels:
        by_loop[kernel.loop].append(kernel)
    parts = {"encoder, and all that is not in a loop": by_loop.pop("")}
    for index, group in enumerate(by_loop.values(), 1):
        parts[f"a step in loop {index} of {len(by_loop)}"] = group
    return {name: part._replace(kernels=group) for name, group in parts.items()}


def _part(program: "jax.stages.Compiled") -> Part:
    """Returns the kernels and the memory of a program."""
    memory = program.memory_analysis()
    num_bytes = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
    )
    return Part([*kernels(read_module(program.as_text()))], num_bytes / 1e9)


def _part_report(part: Part, rates: Rates, largest: int) -> dict[str, object]:
    """Returns the sums over all kernels and over each category, and the longest."""
    by_category: defaultdict[str, list[Kernel]] = defaultdict(list)
    for kernel in part.kernels:
        by_category[kernel.category].append(kernel)
    categories = {
        category: _sums(group, rates) for category, group in by_category.items()
    }
    longest = sorted(part.kernels, key=lambda kernel: -kernel.seconds(rates))
    return {
        **_sums(part.kernels, rates),
        "memory_gb": part.memory_gb,
        "categories": dict(
            sorted(categories.items(), key=lambda item: -item[1]["estimate_ms"])
        ),
        "largest": [
            {
                **_sums([kernel], rates),
                "category": kernel.category,
                "operation": kernel.operation,
            }
            for kernel in longest[:largest]
        ],
    }


def _sums(group: Iterable[Kernel], rates: Rates) -> dict[str, float]:
    """Returns the sums over all runs of kernels."""
    group = list(group)
    return {
        "kernels": sum(kernel.count for kernel in group),
        "gb": sum(kernel.count * kernel.num_bytes for kernel in group) / 1e9,
        "tflop": sum(kernel.count * kernel.flops for kernel in group) / 1e12,
        "estimate_ms": 1e3 * sum(kernel.seconds(rates) for kernel in group),
    }


def _print_tables(report: dict[str, Any], file: TextIO) -> None:
    """Prints the workload, and two tables for each part."""
    parts = report["parts"]
    print(table({**report, "parts": ", ".join(parts)}), file=file)
    for name, part in parts.items():
        sums = {key: part[key] for key in ("kernels", "gb", "tflop", "estimate_ms")}
        rows = [
            {"category": category, **values}
            for category, values in part["categories"].items()
        ]
        rows.append({"category": "all", **sums})
        print(f"\n{name}, {part['memory_gb']:.2f} GB of memory", file=file)
        print(columns(rows), file=file)
        print("\nthe longest", file=file)
        print(columns(part["largest"]), file=file)


if __name__ == "__main__":
    main()
