"""What `t2t doctor` runs in another process: imports, devices and the matmul rate.

    python -m t2t_keras.plugins.reports.probe

It prints a JSON object for the beginning and for the result of each stage, so that
what was found is known even if a library ends the process.
"""

import functools
import importlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from t2t_keras.option import first_line

if TYPE_CHECKING:
    import tensorflow as tf

_SECONDS = 1.0  # of each timing
_LIBRARIES = (
    *("numpy", "regex", "rich", "yaml", "google_crc32c", "sacremoses", "sacrebleu"),
    "sentencepiece",
)


def main() -> None:
    """Runs all stages."""
    # Libraries print to standard output, too.
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    for stage, run in _stages():
        print(json.dumps({"begins": stage}), file=results)
        try:
            said = run()
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {first_line(error)}"}
        print(json.dumps(said), file=results)


def _stages() -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    for library in (*_LIBRARIES, "tensorflow"):
        yield library, functools.partial(_import, library)
    yield "the list of TensorFlow's devices", _devices
    yield "a product of matrices", _matmul
    yield "keras", functools.partial(_import, "keras")
    yield "tensorflow_text", functools.partial(_import, "tensorflow_text")


def _import(library: str) -> dict[str, Any]:
    importlib.import_module(library)
    return {}


def _devices() -> dict[str, Any]:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    details = map(tf.config.experimental.get_device_details, gpus)
    build = tf.sysconfig.get_build_info()
    return {
        "devices": {
            "gpus": [
                {
                    "name": it.get("device_name", "unknown"),
                    "compute_capability": ".".join(
                        map(str, it.get("compute_capability", ["unknown"]))
                    ),
                }
                for it in details
            ],
            "tensorflow_built_for_cuda": build.get("cuda_version"),
            "tensorflow_built_for_cudnn": build.get("cudnn_version"),
            "tf32": tf.config.experimental.tensor_float_32_execution_enabled(),
        }
    }


def _matmul() -> dict[str, Any]:
    import tensorflow as tf

    size = 8192 if tf.config.list_physical_devices("GPU") else 1024
    rates = {}
    for dtype in ("float32", "bfloat16"):
        a, b = (tf.cast(tf.random.normal([size, size]), dtype) for _ in range(2))
        run = repeated_matmul(a, b)
        run(1)  # traces
        repetitions = max(1, math.ceil(_SECONDS / _seconds(run, 1)))
        seconds = _seconds(run, repetitions) / repetitions
        rates[dtype] = round(2 * size**3 / seconds / 1e9, 1)
    return {"matmul": rates}


def _seconds(run: Callable[[int], None], repetitions: int) -> float:
    start = time.perf_counter()
    run(repetitions)
    return time.perf_counter() - start


def repeated_matmul(
    a: "tf.Tensor", b: "tf.Tensor", transpose_a: bool = False, transpose_b: bool = False
) -> Callable[[int], None]:
    """Returns a function that runs a product so many times in one graph.

    Args:
        a: the first operand, a matrix or a batch of matrices.
        b: the second operand.
        transpose_a: whether the first is stored transposed.
        transpose_b: whether the second is.
    """
    import tensorflow as tf

    def run(a: "tf.Tensor", b: "tf.Tensor", repetitions: "tf.Tensor") -> "tf.Tensor":
        def multiply(
            i: "tf.Tensor", last: "tf.Tensor"
        ) -> tuple["tf.Tensor", "tf.Tensor"]:
            del last
            return i + 1, tf.matmul(a, b, transpose_a, transpose_b)

        # The last result is returned, or the graph would be pruned to nothing.
        rows, columns = (
            a.shape[-1 if transpose_a else -2],
            b.shape[-2 if transpose_b else -1],
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


if __name__ == "__main__":
    main()
