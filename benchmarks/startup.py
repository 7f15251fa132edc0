"""Benchmark of start-up: `t2t --help`, the first step, a first translation.

    python benchmarks/startup.py --json

Whole commands are timed on the toy problem, from the start of the process to its end.
Then a training and a translator run in this process with batches of many shapes, to
count how often they trace their graphs.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import timing
import workload
from stopwatch import seconds_of

from t2t_keras.cli.command import positive

VOCAB_SIZE = 8000  # larger than the toy problem's
PROBLEM = "translate_ende_toy"
SENTENCES = [" ".join(["The dog barks."] * n) for n in range(1, 9)]


def main(argv: list[str] | None = None) -> dict[str, Any]:
    """Runs the benchmark; prints and returns its report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--steps", type=positive, default=40, help="steps, of many shapes"
    )
    parser.add_argument("--json", action="store_true", help="as in train.py")
    args = parser.parse_args(argv)
    report: dict[str, Any] = {"device": workload.processor()}
    with tempfile.TemporaryDirectory() as folder:
        report |= _commands(Path(folder)) | _traces(Path(folder), args.steps)
    timing.show(report, args.json)
    return report


def _commands(folder: Path) -> dict[str, float]:
    """Returns the seconds of commands."""
    run_dir, data = folder / "run", ("--data_dir", folder / "data")
    problem = ("--problem", PROBLEM)
    train = ("train", *problem, *data, "--output_dir", run_dir, "--hparams_set", "tiny")
    text = folder / "text"
    text.write_text(SENTENCES[0] + "\n", encoding="utf-8")
    _t2t("datagen", *problem, *data)
    return {
        "help_s": statistics.median(
            seconds_of(lambda: _t2t("--help")) for _ in range(5)
        ),
        "first_step_s": seconds_of(
            lambda: _t2t(*train, "--train_steps", 1, "--eval_sentences", 0)
        ),
        "first_translation_s": seconds_of(
            lambda: _t2t("translate", "--output_dir", run_dir, "--input", text)
        ),
    }


def _t2t(*words: Any) -> None:
    program = "import sys; from t2t_keras.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", program, *map(str, words)]
    subprocess.run(command, check=True, capture_output=True)


def _traces(folder: Path, steps: int) -> dict[str, int]:
    """Returns how many shapes a training met, and how often it was traced."""
    from training_work import model_and_step

    import t2t_keras
    from t2t_keras import registry
    from t2t_keras.data.batch_plan import BatchPlan
    from t2t_keras.data.pipeline import training_batches
    from t2t_keras.data.record_index import RecordIndex
    from t2t_keras.training.strategy import distribute, make_strategy

    hparams = registry.hparams("tiny")
    strategy = make_strategy()
    _, train = model_and_step(hparams, VOCAB_SIZE, strategy)
    index = RecordIndex.open(folder / "data", PROBLEM, "train")
    lengths = index.source_length, index.target_length
    plan = BatchPlan(*lengths, hparams.batch_tokens, seed=0)
    batches = training_batches(index, plan, range(steps), 1)
    shapes = set()
    for number, batch in enumerate(distribute(strategy, batches)):
        shapes.add(tuple(tuple(side.shape) for side in batch))
        train.update(batch, number, 0.0)

    translator = t2t_keras.load(folder / "run")
    for sentence in SENTENCES:
        translator.translate([sentence])
    return {
        "batch_shapes": len(shapes),
        "step_traces": train.function.experimental_get_tracing_count(),
        "sentence_lengths": len(SENTENCES),
        "search_traces": sum(
            graph.experimental_get_tracing_count()
            for graph in translator._graphs.values()
        ),
    }


if __name__ == "__main__":
    main()
