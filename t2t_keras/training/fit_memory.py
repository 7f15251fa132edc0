"""`--batch_tokens auto`: the largest batch that fits the device, with a reserve.

Every size is tried by a process of its own (`fit_probe`), which may run out of memory;
so this one must not have taken the device's. A trial's batch has a tenth more rows than
the one that it stands for: fragmentation, other shapes and the input need some.
"""

import dataclasses
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from t2t_keras.data.batch_plan import batch_plan
from t2t_keras.data.records import RecordIndex
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.problem import Problem
from t2t_keras.training.fit_probe import DOES_NOT_FIT, Spec
from t2t_keras.training.largest_batch import largest_shape
from t2t_keras.training.memory import free_memory
from t2t_keras.training.run_dir import RunConfig

RESERVE = 0.1  # of the rows of a batch

_STEPS_PER_DOUBLING = 4
_SMALLEST = 1024


@dataclasses.dataclass(frozen=True)
class Trial:
    """What a batch that fits takes."""

    peak_gb: float
    seconds: float  # of an update


Prober = Callable[[int], Trial | None]  # of a batch_tokens; None: it does not fit


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
        problem: of the run.
        config: of the run; names data and vocabularies.
        hparams: all but `batch_tokens` count.
        simulate_devices: see `make_strategy`.
        memory_gb: that the process may take on the CPU, or one GPU's share; None: what
            the machine has free, or all of the GPU.
        micro_batches: of each replica.

    Raises:
        UserError: not even the smallest batch fits.
    """
    index = RecordIndex.open(Path(config.data_dir), problem.data_name, "train")
    lengths = index.source_length, index.target_length
    source, target = config.vocab_sizes
    if memory_gb is None:
        memory_gb = math.inf if _has_gpu(simulate_devices) else free_memory() / 1e9

    def probe(batch_tokens: int) -> Trial | None:
        plan = batch_plan(hparams.bucketing, *lengths, batch_tokens, config.seed)
        rows, *sides = largest_shape(plan, problem.reverse)
        spec = Spec(
            hparams=dataclasses.asdict(hparams.override(batch_tokens=batch_tokens)),
            source_vocab_size=source,
            target_vocab_size=target,
            shape=(math.ceil(rows * (1 + RESERVE)), *sides),
            simulate_devices=simulate_devices,
            memory_gb=memory_gb,
            micro_batches=micro_batches,
        )
        return _run(spec)

    longest = max(int(side.max()) for side in lengths)
    everything = max(int(side.sum()) for side in lengths)
    _say(f"{'batch_tokens':>12}  {'peak GB':>8}  {'s/update':>8}")
    sizes = _sizes(max(longest, _SMALLEST), everything)
    batch_tokens = largest_fitting(sizes, _printed(probe))
    if batch_tokens is None:
        raise UserError(
            f"--batch_tokens auto: not even {sizes[0]} tokens fit into {memory_gb:.1f} "
            "GB; take a smaller model, or a problem with a lower max_length"
        )
    _say(f"batch_tokens {batch_tokens}, the largest that fits with {RESERVE:.0%} more")
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


def _printed(probe: Prober) -> Prober:
    """Returns the prober as one that prints a table row for each trial."""

    def printed(batch_tokens: int) -> Trial | None:
        trial = probe(batch_tokens)
        if trial:
            _say(f"{batch_tokens:>12}  {trial.peak_gb:>8.2f}  {trial.seconds:>8.2f}")
        else:
            _say(f"{batch_tokens:>12}  does not fit")
        return trial

    return printed


def _run(spec: Spec) -> Trial | None:
    """Runs a trial in a process of its own."""
    process = subprocess.run(
        [sys.executable, "-m", "t2t_keras.training.fit_probe"],
        input=json.dumps(dataclasses.asdict(spec)),
        capture_output=True,
        text=True,
        check=False,
    )
    # Or the system has killed it, as it does when memory runs out.
    if process.returncode in (DOES_NOT_FIT, -9):
        return None
    if process.returncode:
        raise RuntimeError(f"a trial of --batch_tokens auto failed:\n{process.stderr}")
    return Trial(**json.loads(process.stdout.splitlines()[-1]))


def _has_gpu(simulate_devices: int) -> bool:
    # Physical devices: to ask for logical ones would take the memory.
    return not simulate_devices and bool(tf.config.list_physical_devices("GPU"))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
