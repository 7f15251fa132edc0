"""The flags and reports of the benchmarks, and the models and ids they run on."""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Mapping

import numpy as np

from t2t_keras import HParams, registry

# Before TensorFlow is imported: it would warn about this machine's CPU.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "true")  # as the program does

PAD = 0
EOS = 1
FIRST_TOKEN = 2

LEARNING_RATE = 1e-4  # of training steps


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model and the size of its batches.

    Attributes:
        hparams: the model's hyper-parameters.
        vocab_size: size V of the vocabulary that both sides share.
        batch: batch size B, in sentences or pairs.
        length: number of ids on each side, S and T.
    """

    hparams: HParams
    vocab_size: int
    batch: int
    length: int

    @property
    def padded_vocab_size(self) -> int:
        """V as this project pads it for fast products; other toolkits leave it."""
        return -(-self.vocab_size // 64) * 64

    def ids(self, seed: int = 0) -> np.ndarray:
        """Returns random ids [B, length] without padding, int32."""
        shape = (self.batch, self.length)
        rng = np.random.default_rng(seed)
        return rng.integers(FIRST_TOKEN, self.vocab_size, shape, dtype=np.int32)


# Name -> hparam set, vocabulary, sentences of a batch, their length. "compare" is for
# comparing toolkits; the others have batches of 4,096 tokens a side, or of the 2,048
# that tiny is trained with.
CONFIGS = {
    "compare": ("base", 8_000, 64, 32),
    "tiny": ("tiny", 1_000, 128, 16),
    "multi30k": ("multi30k", 10_000, 256, 16),
    "base": ("base", 37_000, 128, 32),
    "big": ("big", 37_000, 128, 32),
}


def add_flags(parser: argparse.ArgumentParser, config: str = "compare") -> None:
    """Declares the flags that choose a workload, by default `config`, and `--json`."""
    parser.add_argument("--config", choices=CONFIGS, default=config)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--hparams_set", help="in place of the config's")
    parser.add_argument("--hparams", default="", help='such as "num_layers=2"')
    parser.add_argument("--vocab_size", type=int, help="in place of the config's")
    parser.add_argument("--batch", type=int, help="sentences, in place of the config's")
    parser.add_argument("--length", type=int, help="ids of each sentence, likewise")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object as the last line"
    )


def flags(args: argparse.Namespace) -> list[str]:
    """Returns the command line that gives another program the same workload."""
    model = ("config", "dtype", "hparams_set", "hparams", "vocab_size")
    values = {name: getattr(args, name) for name in (*model, "batch", "length")}
    return [f"--{name}={value}" for name, value in values.items() if value]


def from_flags(args: argparse.Namespace) -> Workload:
    """Returns the workload that the flags describe.

    Raises:
        UserError: there is no such hparam set or field.
    """
    name, vocab_size, batch, length = CONFIGS[args.config]
    hparams = registry.hparams(args.hparams_set or name).parse(args.hparams)
    return Workload(
        hparams.override(compute_dtype=args.dtype),
        args.vocab_size or vocab_size,
        args.batch or batch,
        args.length or length,
    )


def description(args: argparse.Namespace, work: Workload) -> dict[str, object]:
    """Returns the workload and the machine, the beginning of a report."""
    return {
        "config": args.config,
        "dtype": args.dtype,
        "batch": work.batch,
        "length": work.length,
        "device": processor(),
        "threads": len(os.sched_getaffinity(0)),
    }


def print_report(report: Mapping[str, object], as_json: bool) -> None:
    """Prints a table; with `as_json` on standard error, before the JSON line."""
    from t2t_keras.console import table

    print(table(_flat(report)), file=sys.stderr if as_json else sys.stdout)
    if as_json:
        print(json.dumps(report))


def _flat(report: Mapping[str, object]) -> dict[str, object]:
    """Returns one row for each value, also for those in dicts and lists."""
    rows: dict[str, object] = {}
    for name, value in report.items():
        if isinstance(value, list):
            value = dict(enumerate(value))
        if isinstance(value, dict):
            rows |= {f"{name}[{key}]": item for key, item in value.items()}
        else:
            rows[name] = value
    return rows


def processor() -> str:
    """Returns the processor's name."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return "unknown"
