"""The machine's matmul rate and memory bandwidth, measured in this process.

They are measured together with a throughput, with the same threads and dtype, because
machines differ, and a shared machine's speed changes from hour to hour.
"""

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from products import Product, total_flops
from stopwatch import seconds_of

# multiply(product, dtype) -> run(repetitions), which returns when they are done.
Multiply = Callable[[Product, str], Callable[[int], None]]

AT_LEAST = 0.02  # seconds of one timing, so that the cost of calls is negligible


def tensorflow_multiply(product: Product, dtype: str) -> Callable[[int], None]:
    """Returns a function that runs a product so many times in one graph."""
    import tensorflow as tf

    a, b = (
        tf.cast(tf.random.normal(shape, seed=1), dtype)
        for shape in _operand_shapes(product)
    )

    def run(a: tf.Tensor, b: tf.Tensor, repetitions: tf.Tensor) -> tf.Tensor:
        def multiply(i: tf.Tensor, last: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            del last
            return i + 1, tf.matmul(a, b, product.transpose_a, product.transpose_b)

        # The last result is returned, or the graph would be pruned to nothing.
        rows, columns = (
            a.shape[-1 if product.transpose_a else -2],
            b.shape[-2 if product.transpose_b else -1],
        )
        start = tf.zeros([*a.shape[:-2], rows, columns], a.dtype)
        _, last = tf.while_loop(
            lambda i, _: i < repetitions,
            multiply,
            (tf.constant(0), start),
            parallel_iterations=1,
        )
        return tf.reshape(last, [-1])[0]

    graph = tf.function(run).get_concrete_function(a, b, tf.TensorSpec([], tf.int32))

    def repeated(repetitions: int) -> None:
        float(graph(a, b, tf.constant(repetitions)))  # waits for the device

    return repeated


def jax_multiply(product: Product, dtype: str) -> Callable[[int], None]:
    """Returns a function that runs a product so many times on the device."""
    import jax
    from jax import numpy as jnp

    key = jax.random.key(1)
    a, b = (
        jax.random.normal(key, shape).astype(dtype)
        for shape in _operand_shapes(product)
    )

    @jax.jit
    def multiply(a: Any, b: Any) -> Any:
        a = jnp.swapaxes(a, -1, -2) if product.transpose_a else a
        b = jnp.swapaxes(b, -1, -2) if product.transpose_b else b
        return jnp.matmul(a, b)

    def run(repetitions: int) -> None:
        for _ in range(repetitions):  # dispatched without waiting
            last = multiply(a, b)
        last.block_until_ready()

    return run


def tensorflow_bandwidth() -> float:
    """Returns the bytes per second that the processor reads from memory."""
    import tensorflow as tf

    numbers = tf.ones([2**27])  # 512 MB, more than any cache holds
    add_up = tf.function(lambda: tf.reduce_sum(numbers))
    return 4 * 2**27 / min(seconds_of(lambda: float(add_up())) for _ in range(6))


class MatmulRate:
    """The rate of a step's own products, one after another, and nothing else.

    `sample` is called before, between and after the timed steps. The rate follows from
    the median time of each shape, weighted by how often it occurs in the step.
    """

    def __init__(
        self,
        products: Iterable[Product],
        dtype: str,
        multiply: Multiply = tensorflow_multiply,
    ) -> None:
        self._products = list(products)
        self._repetitions: dict[Product, int] = {}
        self._times: dict[Product, list[float]] = defaultdict(list)
        self._runs: dict[Product, Callable[[int], None]] = {}
        for product in self._products:
            shape = _once(product)
            if shape in self._runs:
                continue
            run = self._runs[shape] = multiply(shape, dtype)
            run(1)
            once = seconds_of(lambda run=run: run(1))
            self._repetitions[shape] = math.ceil(AT_LEAST / once)

    def sample(self) -> None:
        """Times every shape once more."""
        for shape, run in self._runs.items():
            repetitions = self._repetitions[shape]
            seconds = seconds_of(lambda run=run, n=repetitions: run(n))
            self._times[shape].append(seconds / repetitions)

    def gflops(self) -> float:
        """Returns 10^9 operations a second."""
        seconds = sum(
            product.count * statistics.median(self._times[_once(product)])
            for product in self._products
        )
        return total_flops(self._products) / seconds / 1e9


def _once(product: Product) -> Product:
    """Returns the product with a count of 1."""
    return dataclasses.replace(product, count=1)


def _operand_shapes(product: Product) -> tuple[list[int], list[int]]:
    """Returns how both operands are stored."""
    a, b = [product.m, product.k], [product.k, product.n]
    if product.transpose_a:
        a.reverse()
    if product.transpose_b:
        b.reverse()
    batch = [product.batch] if product.batch > 1 else []
    return batch + a, batch + b
