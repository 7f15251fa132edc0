"""The FLOPs of a step, and its speed beside the machine's matmul rate and bandwidth.

FLOPs are those of the matrix products, counted from shapes alone. The other operations
of a Transformer (softmax, layer normalization, dropout, the optimizer) are passes over
memory. Masked products of attention count; with a window, each query meets all keys in
its blocks. The letters in shapes are as in `t2t_keras.model.layers`.

Step, matmul rate and bandwidth are measured in one process, with the same threads and
dtype, because machines differ, and a shared machine's speed changes from hour to hour.
"""

import dataclasses
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypedDict

from t2t_keras import HParams
from t2t_keras.plugins.reports.costs import keys_per_query

MIN_SECONDS = 0.02  # A timing is so long that the cost of calls is negligible.
RATE_SAMPLES = 4  # between the timed steps of a benchmark


@dataclasses.dataclass(frozen=True)
class MatMul:
    """An operation that multiplies [m, k] by [k, n] `batch` times, run `count` times.

    The flags say which operand is stored transposed, as [k, m] or [n, k].
    """

    count: int
    batch: int
    m: int
    k: int
    n: int
    transpose_a: bool = False
    transpose_b: bool = False

    @property
    def flops(self) -> int:
        """FLOPs of all products; a multiplication and an addition are two."""
        return 2 * self.count * self.batch * self.m * self.k * self.n

    def gradients(self) -> tuple["MatMul", "MatMul"]:
        """Returns the products of the backward pass: with respect to A, and to B."""
        count, batch, m, k, n, *_ = dataclasses.astuple(self)
        if self.transpose_b:  # C = A B^T: dA = dC B, dB = dC^T A
            return (
                MatMul(count, batch, m, n, k),
                MatMul(count, batch, n, m, k, transpose_a=True),
            )
        return (  # C = A B: dA = dC B^T, dB = A^T dC
            MatMul(count, batch, m, n, k, transpose_b=True),
            MatMul(count, batch, k, m, n, transpose_a=True),
        )


def total_flops(matmuls: Iterable[MatMul]) -> int:
    """Returns the FLOPs of all products together."""
    return sum(matmul.flops for matmul in matmuls)


def training_matmuls(
    hparams: HParams, vocab_size: int, batch: int, source: int, target: int
) -> list[MatMul]:
    """Returns the products of a training step, forward and backward.

    Args:
        hparams: the model's hyper-parameters.
        vocab_size: vocabulary size V of the softmax.
        batch: batch size B, in pairs of sentences.
        source: source length S.
        target: target length T.
    """
    count = hparams.decoder_layers
    rows = batch * target
    seen = keys_per_query(hparams, target, bidirectional=False)
    forward = [
        *_encoding(hparams, batch, source),
        *_self_attention(hparams, count, batch, target, seen),
        _encoder_output_projection(hparams, batch * source),
        *_cross_attention(hparams, count, batch, target, source),
        *_position_wise(hparams, count, rows),
        MatMul(1, 1, rows, hparams.d_model, vocab_size),
    ]
    matmuls = []
    for matmul in forward:
        matmuls += [matmul, *matmul.gradients()]
    return matmuls


def decoding_matmuls(
    hparams: HParams, vocab_size: int, batch: int, source: int, beam: int, steps: int
) -> list[MatMul]:
    """Returns the products of a beam search.

    Self-attention sees one more position at each step; its products are counted for the
    step in the middle.

    Args:
        hparams: the model's hyper-parameters.
        vocab_size: vocabulary size V of the softmax.
        batch: batch size B, in sentences.
        source: source length S.
        beam: beam size K.
        steps: number of steps T.
    """
    count = hparams.decoder_layers * steps
    rows = batch * beam
    past = (steps + 1) // 2
    if hparams.attention_window:
        past = min(past, hparams.attention_window)
    return [
        *_encoding(hparams, batch, source),
        _encoder_output_projection(hparams, batch * source),
        *_self_attention(hparams, count, rows, 1, past),
        *_cross_attention(hparams, count, batch, beam, source),
        *_position_wise(hparams, count, rows),
        MatMul(steps, 1, rows, hparams.d_model, vocab_size),
    ]


def step_weights(hparams: HParams, vocab_size: int) -> int:
    """Returns the number of weights that each decoding step multiplies by."""
    d_model = hparams.d_model
    projections = 3 * hparams.key_size + 3 * hparams.value_size  # q k v o, and q o
    layer = d_model * (hparams.num_heads * projections + 2 * hparams.d_ff)
    return hparams.decoder_layers * layer + vocab_size * d_model


def _encoding(hparams: HParams, batch: int, source: int) -> list[MatMul]:
    """Returns the products of the encoder's forward pass."""
    count = hparams.num_layers
    seen = keys_per_query(hparams, source, bidirectional=True)
    return [
        *_self_attention(hparams, count, batch, source, seen),
        *_position_wise(hparams, count, batch * source),
    ]


def _self_attention(
    hparams: HParams, count: int, batch: int, queries: int, keys: int
) -> list[MatMul]:
    """Returns the products of self-attention; q, k, v are one product."""
    width = hparams.num_heads * (2 * hparams.key_size + hparams.value_size)
    return [
        MatMul(count, 1, batch * queries, hparams.d_model, width),
        *_heads(hparams, count, batch, queries, keys),
    ]


def _cross_attention(
    hparams: HParams, count: int, batch: int, queries: int, keys: int
) -> list[MatMul]:
    """Returns the products of cross-attention, without the keys and values."""
    width = hparams.num_heads * hparams.key_size
    return [
        MatMul(count, 1, batch * queries, hparams.d_model, width),
        *_heads(hparams, count, batch, queries, keys),
    ]


def _encoder_output_projection(hparams: HParams, rows: int) -> MatMul:
    """Returns the products for the source's keys and values in all decoder layers."""
    width = hparams.num_heads * (hparams.key_size + hparams.value_size)
    return MatMul(hparams.decoder_layers, 1, rows, hparams.d_model, width)


def _heads(
    hparams: HParams, count: int, batch: int, queries: int, keys: int
) -> list[MatMul]:
    """Returns Q K^T, the weighted sum of the values, and the output projection."""
    heads = hparams.num_heads
    d_v = hparams.value_size
    return [
        MatMul(count, batch * heads, queries, hparams.key_size, keys, transpose_b=True),
        MatMul(count, batch * heads, queries, keys, d_v),
        MatMul(count, 1, batch * queries, heads * d_v, hparams.d_model),
    ]


def _position_wise(hparams: HParams, count: int, rows: int) -> list[MatMul]:
    """Returns the products of the feed-forward network."""
    return [
        MatMul(count, 1, rows, hparams.d_model, hparams.d_ff),
        MatMul(count, 1, rows, hparams.d_ff, hparams.d_model),
    ]


class Speed(TypedDict):
    """What each report says of the timed steps.

    Attributes:
        steps: number of timed steps.
        seconds_per_step: the median.
        min_seconds_per_step: of the fastest step.
        gflop_per_step: 10^9 operations in the step's matrix products.
        gflops: 10^9 operations per second in the median step.
        matmul_gflops: 10^9 operations per second of the products alone.
        fraction: gflops / matmul_gflops.
    """

    steps: int
    seconds_per_step: float
    min_seconds_per_step: float
    gflop_per_step: float
    gflops: float
    matmul_gflops: float
    fraction: float


def seconds_of(run: Callable[[], object]) -> float:
    """Returns how many seconds a call of `run` takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def median_seconds(run: Callable[[], object], repetitions: int) -> float:
    """Returns the median of how many seconds the calls of `run` take."""
    return statistics.median(seconds_of(run) for _ in range(repetitions))


def seconds_of_steps(
    step: Callable[[], object], steps: int, rate: "MatmulRate"
) -> list[float]:
    """Returns the seconds of each step, after two steps that warm up.

    Args:
        step: does the work and returns when it is done.
        steps: the number of timed steps.
        rate: sampled before, between and after them, so that a slow phase of the
            machine affects both.
    """
    step()
    step()
    seconds = []
    rate.sample()
    for i in range(steps):
        seconds.append(seconds_of(step))
        if (i + 1) * RATE_SAMPLES // steps > i * RATE_SAMPLES // steps:
            rate.sample()
    return seconds


def speed(seconds: list[float], flops: int, rate: "MatmulRate") -> Speed:
    """Returns the speed of the median step.

    Args:
        seconds: of each step.
        flops: operations in a step's matrix products.
        rate: that of the same products alone.
    """
    median = statistics.median(seconds)
    gflops = flops / median / 1e9
    matmul_gflops = rate.gflops()
    return {
        "steps": len(seconds),
        "seconds_per_step": median,
        "min_seconds_per_step": min(seconds),
        "gflop_per_step": flops / 1e9,
        "gflops": gflops,
        "matmul_gflops": matmul_gflops,
        "fraction": gflops / matmul_gflops,
    }


def repeated_product(matmul: MatMul, dtype: str) -> Callable[[int], None]:
    """Returns a function that repeats a product in one graph of TensorFlow."""
    import tensorflow as tf

    shape_a, shape_b = _operand_shapes(matmul)
    a = tf.cast(tf.random.normal(shape_a, seed=1), dtype)
    b = tf.cast(tf.random.normal(shape_b, seed=1), dtype)

    def repeat(a: tf.Tensor, b: tf.Tensor, repetitions: tf.Tensor) -> tf.Tensor:
        def multiply(i: tf.Tensor, product: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            del product
            return i + 1, tf.matmul(a, b, matmul.transpose_a, matmul.transpose_b)

        # The loop carries the product, or the graph would be pruned to nothing.
        rows = a.shape[-1 if matmul.transpose_a else -2]
        columns = b.shape[-2 if matmul.transpose_b else -1]
        zeros = tf.zeros([*a.shape[:-2], rows, columns], a.dtype)
        _, product = tf.while_loop(
            lambda i, _: i < repetitions,
            multiply,
            (tf.constant(0), zeros),
            parallel_iterations=1,
        )
        return tf.reshape(product, [-1])[0]

    graph = tf.function(repeat).get_concrete_function(a, b, tf.TensorSpec([], tf.int32))

    def run(repetitions: int) -> None:
        float(graph(a, b, tf.constant(repetitions)))  # waits for the device

    return run


def tensorflow_bandwidth() -> float:
    """Returns the bytes per second that the processor reads from memory."""
    import tensorflow as tf

    array = tf.ones([2**27])  # 512 MB, more than any cache holds
    reduce_sum = tf.function(lambda: tf.reduce_sum(array))
    return 4 * 2**27 / min(seconds_of(lambda: float(reduce_sum())) for _ in range(6))


class MatmulRate:
    """The rate of a step's own products, one after another, and nothing else.

    `sample` is called before, between and after the timed steps. The rate follows from
    the median time of each shape, weighted by how often it occurs in the step.
    """

    def __init__(self, matmuls: Iterable[MatMul], dtype: str) -> None:
        self._matmuls = list(matmuls)
        self._repetitions: dict[MatMul, int] = {}
        self._times: dict[MatMul, list[float]] = defaultdict(list)
        self._runs: dict[MatMul, Callable[[int], None]] = {}
        for matmul in self._matmuls:
            shape = _shape_of(matmul)
            if shape in self._runs:
                continue
            run = repeated_product(shape, dtype)
            run(1)
            seconds = seconds_of(lambda run=run: run(1))
            self._repetitions[shape] = math.ceil(MIN_SECONDS / seconds)
            self._runs[shape] = run

    def sample(self) -> None:
        """Times every shape once more."""
        for shape, run in self._runs.items():
            repetitions = self._repetitions[shape]
            seconds = seconds_of(lambda run=run, n=repetitions: run(n))
            self._times[shape].append(seconds / repetitions)

    def gflops(self) -> float:
        """Returns 10^9 operations per second."""
        seconds = 0.0
        for matmul in self._matmuls:
            seconds += matmul.count * statistics.median(self._times[_shape_of(matmul)])
        return total_flops(self._matmuls) / seconds / 1e9


def _shape_of(matmul: MatMul) -> MatMul:
    """Returns the product with a count of 1, as a key for its time."""
    return dataclasses.replace(matmul, count=1)


def _operand_shapes(matmul: MatMul) -> tuple[list[int], list[int]]:
    """Returns the shapes in which both operands are stored."""
    a = [matmul.m, matmul.k]
    b = [matmul.k, matmul.n]
    if matmul.transpose_a:
        a.reverse()
    if matmul.transpose_b:
        b.reverse()
    batch = [matmul.batch] if matmul.batch > 1 else []
    return batch + a, batch + b
