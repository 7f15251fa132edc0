"""One trial of `fit_memory`, in a process of its own: does a batch fit?

`python -m t2t_keras.training.fit_probe` reads a `Spec` as JSON from standard input,
runs two updates and prints peak memory and seconds, or exits with `DOES_NOT_FIT`.
"""

import dataclasses
import json
import os
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

# What the process exits with; no code that Python or a shell gives a meaning.
DOES_NOT_FIT = 77

_POLL_SECONDS = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """What to try."""

    hparams: dict[str, Any]
    source_vocab_size: int
    target_vocab_size: int | None  # None: both languages have one vocabulary
    shape: tuple[int, int, int]  # rows, source length, target length
    simulate_devices: int
    memory_gb: float  # of this process on the CPU, of one device's memory on GPUs
    micro_batches: int = 1  # of each replica


def main() -> int:
    """Runs the trial."""
    spec = Spec(**json.load(sys.stdin))
    import tensorflow as tf

    on_cpu = spec.simulate_devices or not tf.config.list_physical_devices("GPU")
    if on_cpu:
        watcher = threading.Thread(target=_watch, args=[spec.memory_gb], daemon=True)
        watcher.start()
    try:
        seconds = _update(spec)
    except tf.errors.ResourceExhaustedError:
        return DOES_NOT_FIT
    peak = _host_peak_gb() if on_cpu else _device_peak_gb()
    if peak > spec.memory_gb:
        return DOES_NOT_FIT
    print(json.dumps({"peak_gb": peak, "seconds": seconds}))
    return 0


def _update(spec: Spec) -> float:
    """Updates a fresh model twice by the batch; returns the second one's seconds."""
    import tensorflow as tf

    from t2t_keras.hparam import HParams
    from t2t_keras.model.transformer import Transformer
    from t2t_keras.training.checkpoint import model_variables
    from t2t_keras.training.ema import make_optimizer
    from t2t_keras.training.largest_batch import synthetic_batch
    from t2t_keras.training.step import TrainStep
    from t2t_keras.training.strategy import make_strategy

    hparams = HParams.from_dict(spec.hparams)
    strategy = make_strategy(spec.simulate_devices)
    with strategy.scope():
        model = Transformer(hparams, spec.source_vocab_size, spec.target_vocab_size)
        optimizer = make_optimizer(list(model_variables(model).values()), hparams)
        step = TrainStep(model, optimizer, strategy, 0, spec.micro_batches)
    batch = synthetic_batch(strategy, spec.shape, spec.micro_batches)
    for number in range(2):  # the first one also traces
        start = time.monotonic()
        result = step.update(batch, tf.constant(number, tf.int64), tf.constant(1e-6))
        float(result.loss_sum)
    return time.monotonic() - start


def _watch(memory_gb: float) -> None:
    """Ends the process when it takes too much, before the system has to."""
    while _host_peak_gb() <= memory_gb:
        time.sleep(_POLL_SECONDS)
    os._exit(DOES_NOT_FIT)


def _host_peak_gb() -> float:
    """Returns the most memory that this process has had, as Linux counts it."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024 / 1e9


def _device_peak_gb() -> float:
    """Returns the most memory that was taken on any GPU."""
    import tensorflow as tf

    gpus = [gpu.name for gpu in tf.config.list_logical_devices("GPU")]
    get = tf.config.experimental.get_memory_info
    return max(get(name.removeprefix("/device:"))["peak"] for name in gpus) / 1e9


if __name__ == "__main__":
    sys.exit(main())
