"""Benchmark of start-up: `t2t --help`, the first step, a first translation.

    python benchmarks/startup.py --json

Whole commands are timed on the toy problem, from the start of the process to its end.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import workload
from rates import median_seconds, seconds_of

from t2t_keras.processes import T2T

PROBLEM = "translate_ende_toy"


def main() -> None:
    """Runs the benchmark and prints its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="as in train.py")
    args = parser.parse_args()
    report: dict[str, object] = {"device": workload.processor()}
    with tempfile.TemporaryDirectory() as folder:
        report |= _seconds_of_commands(Path(folder))
    workload.print_report(report, args.json)


def _seconds_of_commands(folder: Path) -> dict[str, float]:
    """Returns how long some commands take, in seconds."""
    run_dir = folder / "run"
    data = ("--problem", PROBLEM, "--data_dir", folder / "data")
    train = ("train", *data, "--output_dir", run_dir, "--hparams_set", "tiny")
    text = folder / "text"
    text.write_text("The dog barks.\n", encoding="utf-8")
    _t2t("datagen", *data)
    return {
        "help_s": median_seconds(lambda: _t2t("--help"), 5),
        "first_step_s": seconds_of(
            lambda: _t2t(*train, "--train_steps", 1, "--eval_sentences", 0)
        ),
        "first_translation_s": seconds_of(
            lambda: _t2t("translate", "--output_dir", run_dir, "--input", text)
        ),
    }


def _t2t(*words: object) -> None:
    command = [sys.executable, *T2T, *map(str, words)]
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()
