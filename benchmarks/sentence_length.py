"""Benchmark of a layer's time by sentence length: the paper's Table 1, measured.

    python benchmarks/sentence_length.py --lengths 16 64 256 1024 --plot lengths.svg

Self-attention takes O(n^2 d) per sentence, and O(r n d) with a window r. Every length
gets batches with the same number of positions, so that costs that are linear in n are
constant: the projections, the feed-forward network and restricted attention. Because
the decoder attends to the whole source even if self-attention has a window,
self-attention is also timed alone.
"""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path

import rates
import workload
from rates import median_seconds

LAYERS = 2
VOCAB_SIZE = 64  # so small that nearly all the time is the layers'
BEAM_SIZE = 4


def main() -> None:
    """Runs the benchmark that the flags describe and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    workload.add_flags(parser)
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[2**i for i in range(4, 11)]
    )
    parser.add_argument(
        "--positions", type=int, default=2048, help="positions of a batch"
    )
    parser.add_argument("--window", type=int, default=32, help="r")
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="an SVG or PNG")
    args = parser.parse_args()
    work = workload.from_flags(args)
    rows = [_measure(length, work, args) for length in args.lengths]
    report = workload.description(args, work) | {
        "positions": args.positions,
        "window": args.window,
    }
    for name in rows[0]:
        report[name] = [row[name] for row in rows]
    workload.print_report(report, args.json)
    if args.plot:
        _plot(report, args.plot)


def _measure(
    length: int, work: workload.Workload, args: argparse.Namespace
) -> dict[str, float]:
    """Returns milliseconds of each layer at a length, and the FLOPs of training.

    Training and decoding have a layer of the encoder and one of the decoder; attention
    is the encoder's self-attention alone.
    """
    from decode import timed_search
    from train import train_step

    full = dataclasses.replace(
        work,
        hparams=work.hparams.override(num_layers=LAYERS),
        vocab_size=VOCAB_SIZE,
        batch=max(1, args.positions // length),
        length=length,
    )
    windowed = dataclasses.replace(
        full, hparams=full.hparams.override(attention_window=args.window)
    )
    search = timed_search(dataclasses.replace(full, batch=1), BEAM_SIZE)
    runs = {
        "training_ms": (train_step(full).run, LAYERS),
        "training_window_ms": (train_step(windowed).run, LAYERS),
        "decoding_ms": (lambda: search.run(length), LAYERS),
        "attention_ms": (_self_attention(full), 1),
        "attention_window_ms": (_self_attention(windowed), 1),
    }
    metrics: dict[str, float] = {"length": length}
    for name, (run, layers) in runs.items():
        run()
        metrics[name] = 1e3 * median_seconds(run, args.steps) / layers
    metrics["training_gflop"] = _training_gflop(full)
    metrics["training_gflop_window"] = _training_gflop(windowed)
    return metrics


def _training_gflop(work: workload.Workload) -> float:
    """Returns 10^9 operations of a training step in each layer."""
    matmuls = rates.training_matmuls(
        work.hparams, VOCAB_SIZE, work.batch, work.length, work.length
    )
    return rates.total_flops(matmuls) / LAYERS / 1e9


def _self_attention(work: workload.Workload) -> Callable[[], None]:
    """Returns a function that runs an encoder's self-attention and its gradient."""
    import tensorflow as tf

    from t2t_keras.model.transformer import Transformer

    hparams = work.hparams
    layer = Transformer(hparams, 8).make_self_attention(causal=False)
    x = tf.random.normal((work.batch, work.length, hparams.d_model))
    layer.build(x.shape)

    @tf.function
    def gradients() -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        return tape.gradient(y, [x, *(w.value for w in layer.trainable_weights)])

    return lambda: gradients()[-1].numpy()


def _plot(report: dict[str, object], path: Path) -> None:
    """Draws a training step of a layer, and self-attention alone, over the length."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 4), sharey=True)
    lengths = report["length"]
    names = ("training", "attention")
    titles = ("one layer of encoder and decoder", "encoder self-attention alone")
    for axes, name, title in zip(panels, names, titles, strict=True):
        axes.loglog(lengths, report[f"{name}_ms"], "o-", label="full")
        windowed = report[f"{name}_window_ms"]
        axes.loglog(lengths, windowed, "s-", label=f"window {report['window']}")
        axes.set_title(title)
        axes.set_xlabel("tokens in a sentence, n")
        axes.set_xticks(lengths, list(map(str, lengths)))
        axes.legend()
    panels[0].set_ylabel(f"ms for {report['positions']:,} positions a side")
    figure.tight_layout()
    figure.savefig(path)


if __name__ == "__main__":
    main()
