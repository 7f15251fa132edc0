"""`--batch_tokens auto`: the largest batch that fits the device, with a reserve.

Another process tries each size, as it may run out of memory; this one must not have
taken the device's. A trial's batch has a tenth more rows than the batch that it stands
for: fragmentation, other shapes and the input need memory, too.

The other process is `python -m t2t_keras.training.fit_memory`. It reads a `Spec` as
JSON from standard input, runs two updates and prints peak memory and seconds, or exits
with `DOES_NOT_FIT`.
"""

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_keras.data.augmentation import planned_lengths
from t2t_keras.data.batch_plan import batch_plan
from t2t_keras.data.files import say
from t2t_keras.data.pipeline import training_index
from t2t_keras.hparam import HParams
from t2t_keras.model.transformer import Transformer
from t2t_keras.option import UserError
from t2t_keras.problem import Problem
from t2t_keras.training.checkpoint import model_variables, snapshot
from t2t_keras.training.device_memory import (
    is_out_of_memory,
    memory_of_shape,
    synthetic_batches,
)
from t2t_keras.training.free_memory import free_memory
from t2t_keras.training.optimizer import make_optimizer
from t2t_keras.training.run_dir import RunConfig
from t2t_keras.training.step import TrainStep
from t2t_keras.training.strategy import make_strategy

RESERVE = 0.1  # share of a batch's rows that is left as a reserve

# The exit status of a trial; Python and shells give it no meaning.
DOES_NOT_FIT = 77

_STEPS_PER_DOUBLING = 4
_SMALLEST = 1024
_POLL_SECONDS = 0.01


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """What a trial runs."""

    hparams: dict[str, Any]
    source_vocab_size: int
    target_vocab_size: int | None  # None: both languages have one vocabulary
    shape: tuple[int, int, int]  # rows, source length, target length
    simulate_devices: int
    memory_gb: float  # the limit for the process on the CPU, or for each GPU
    micro_batches: int = 1  # number into which each replica divides its rows


@dataclasses.dataclass(frozen=True)
class Trial:
    """What an update by a batch that fits takes."""

    peak_gb: float
    seconds: float


Prober = Callable[[int], Trial | None]  # tries a batch_tokens; None: it does not fit


def fit_batch_tokens(
    problem: Problem,
    config: RunConfig,
    hparams: HParams,
    simulate_devices: int = 0,
    memory_gb: float | None = None,
    micro_batches: int = 1,
) -> int:
    """Returns the largest `batch_tokens` of a run that fits, and prints the trials.

    Args:
        problem: the problem to train on.
        config: names data and vocabularies.
        hparams: the hyper-parameters; `batch_tokens` does not count.
        simulate_devices: see `make_strategy`.
        memory_gb: what the process may take on the CPU, or of each GPU; None: all that
            is free.
        micro_batches: into which each replica divides its rows.

    Raises:
        UserError: not even the smallest batch fits.
    """
    index = training_index(Path(config.data_dir), problem)
    lengths = planned_lengths(index, hparams)
    source, target = config.vocab_sizes
    memory = memory_of_shape(hparams, (source, target))
    if memory_gb is None:
        memory_gb = math.inf if _has_gpu(simulate_devices) else free_memory() / 1e9

    def probe(batch_tokens: int) -> Trial | None:
        plan = batch_plan(
            hparams.bucketing, *lengths, batch_tokens, config.seed, index.swapped
        )
        rows, source_length, target_length = plan.largest_shape(memory)
        spec = Spec(
            hparams=dataclasses.asdict(hparams.override(batch_tokens=batch_tokens)),
            source_vocab_size=source,
            target_vocab_size=target,
            shape=(math.ceil(rows * (1 + RESERVE)), source_length, target_length),
            simulate_devices=simulate_devices,
            memory_gb=memory_gb,
            micro_batches=micro_batches,
        )
        trial = _run(spec)
        result = "does not fit"
        if trial:
            result = f"{trial.peak_gb:>8.2f}  {trial.seconds:>8.2f}"
        say(f"{batch_tokens:>12}  {result}")
        return trial

    longest = max(int(side.max()) for side in lengths)
    everything = max(int(side.sum()) for side in lengths)
    say(f"{'batch_tokens':>12}  {'peak GB':>8}  {'s/update':>8}")
    sizes = _sizes(max(longest, _SMALLEST), everything)
    batch_tokens = largest_fitting(sizes, probe)
    if batch_tokens is None:
        limit = f"{memory_gb:.1f} GB" if math.isfinite(memory_gb) else "the GPU"
        raise UserError(
            f"--batch_tokens auto: not even {sizes[0]} tokens fit into {limit}; take a "
            "smaller model, or a problem with a lower max_length"
        )
    say(f"batch_tokens {batch_tokens}, the largest that fits with {RESERVE:.0%} more")
    return batch_tokens


def largest_fitting(sizes: list[int], probe: Prober) -> int | None:
    """Returns the largest of some ascending sizes that fits; None: not even the first.

    Doubles the size until one does not fit, then bisects what lies between: the large
    ones take the longest, and most of them are never tried.
    """
    fits, fails = -1, len(sizes)
    at = 0
    while at < fails:
        if probe(sizes[at]):
            fits = at
            at = min(at + _STEPS_PER_DOUBLING, len(sizes) - 1)
            if at == fits:
                break
        else:
            fails = at
    while fails - fits > 1:
        middle = (fits + fails) // 2
        if probe(sizes[middle]):
            fits = middle
        else:
            fails = middle
    return sizes[fits] if fits >= 0 else None


def _sizes(smallest: int, largest: int) -> list[int]:
    """Returns sizes from one to another, four to a doubling."""
    count = max(0, math.ceil(math.log2(largest / smallest) * _STEPS_PER_DOUBLING))
    return [round(smallest * 2 ** (i / _STEPS_PER_DOUBLING)) for i in range(count + 1)]


def _run(spec: Spec) -> Trial | None:
    """Runs a trial in another process."""
    process = subprocess.run(
        [sys.executable, "-P", "-m", "t2t_keras.training.fit_memory"],
        input=json.dumps(dataclasses.asdict(spec)),
        capture_output=True,
        text=True,
        check=False,
    )
    # -9: the system has killed it, as it does when memory runs out.
    if process.returncode in (DOES_NOT_FIT, -9):
        return None
    if process.returncode:
        raise RuntimeError(f"a trial of --batch_tokens auto failed:\n{process.stderr}")
    return Trial(**json.loads(process.stdout.splitlines()[-1]))


def _has_gpu(simulate_devices: int) -> bool:
    # Physical devices: to ask for logical ones would take the memory.
    return not simulate_devices and bool(tf.config.list_physical_devices("GPU"))


def main() -> int:
    """Runs the trial that standard input describes; returns the exit status."""
    spec = Spec(**json.load(sys.stdin))
    on_cpu = spec.simulate_devices or not tf.config.list_physical_devices("GPU")
    if on_cpu:
        watcher = threading.Thread(target=_watch, args=[spec.memory_gb], daemon=True)
        watcher.start()
    try:
        seconds = _update(spec)
    except tf.errors.OpError as error:
        if not is_out_of_memory(error):
            raise
        return DOES_NOT_FIT
    peak = _host_peak_gb() if on_cpu else _device_peak_gb()
    if peak > spec.memory_gb:
        return DOES_NOT_FIT
    print(json.dumps({"peak_gb": peak, "seconds": seconds}))
    return 0


def _update(spec: Spec) -> float:
    """Updates a fresh model twice; returns the seconds of the second update."""
    hparams = HParams.from_dict(spec.hparams)
    strategy = make_strategy(spec.simulate_devices)
    with strategy.scope():
        model = Transformer(hparams, spec.source_vocab_size, spec.target_vocab_size)
        optimizer = make_optimizer(model_variables(model), hparams)
        step = TrainStep(model, optimizer, strategy, 0, spec.micro_batches)
    (batch,) = synthetic_batches(
        strategy, spec.shape, spec.micro_batches, hparams.guided_alignment > 0
    )
    tensors = snapshot(model_variables(model) | step.variables, 0)
    for number in range(2):  # the first one also traces, while a checkpoint is held
        start = time.monotonic()
        result = step.update(batch, number, 1e-6)
        float(result.loss_sum)
        tensors.clear()
    return time.monotonic() - start


def _watch(memory_gb: float) -> None:
    """Ends the process when it takes too much, before the system has to."""
    while _host_peak_gb() <= memory_gb:
        time.sleep(_POLL_SECONDS)
    os._exit(DOES_NOT_FIT)


def _host_peak_gb() -> float:
    """Returns the most memory that this process has had, as Linux counts it."""
    status = Path("/proc/self/status").read_text()
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status)
    return int(kilobytes) * 1024 / 1e9


def _device_peak_gb() -> float:
    """Returns the most memory that was taken on any GPU."""
    gpus = [gpu.name for gpu in tf.config.list_logical_devices("GPU")]
    get = tf.config.experimental.get_memory_info
    return max(get(name.removeprefix("/device:"))["peak"] for name in gpus) / 1e9


if __name__ == "__main__":
    sys.exit(main())
