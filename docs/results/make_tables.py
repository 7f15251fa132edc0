"""Writes the tables of README and docs from the records beside this file.

    python docs/results/make_tables.py

A record is the `metrics.jsonl` of a run. `scores.json` has what no run records: the
scores of finished models, each with the command and the signature that gave it. A table
stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`; the rest of a
document is left as it is, so that a second call changes nothing.
"""

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from t2t_keras import registry
from t2t_keras.plugins.reports.costs import flops_per_token

HERE = Path(__file__).parent
DOCUMENTS = (
    HERE.parents[1] / "README.md",
    HERE.parent / "results.md",
    HERE.parent / "data.md",
    HERE.parent / "guides" / "low-resource.md",
)

# What two cores of an AMD EPYC sustain in bfloat16 (docs/results.md), and a P100 in
# the paper: 100,000 steps of 25,000 tokens in 12 hours on eight. FLOP/s.
TWO_CORES = 430e9
P100_SECONDS = 12 * 3600 * 8

Row = dict[str, Any]  # a line of metrics.jsonl


@dataclasses.dataclass(frozen=True)
class Totals:
    """Sums over rows of a training, from which means weighted by time are computed.

    Attributes:
        steps: updates.
        seconds: of training; evaluation, saving and pauses between sittings excluded.
        target_tokens: without padding.
    """

    steps: int = 0
    seconds: float = 0.0
    target_tokens: float = 0.0

    def __add__(self, other: "Totals") -> "Totals":
        mine, theirs = dataclasses.astuple(self), dataclasses.astuple(other)
        return Totals(*(a + b for a, b in zip(mine, theirs, strict=True)))

    @property
    def target_rate(self) -> float:
        """Target tokens per second."""
        return self.target_tokens / self.seconds


def read(path: Path) -> list[Row]:
    """Returns the rows of a record."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def totals(rows: Sequence[Row]) -> Totals:
    """Returns the totals of a record.

    A row has rates, not sums: its seconds are its steps divided by its steps per
    second. A training that was stopped has a row at its last step, from which it is
    resumed. One that was killed is resumed from an earlier checkpoint: the rows after
    that checkpoint do not belong to the final model, and are left out.
    """
    kept: list[Row] = []
    for row in rows:
        if row["kind"] == "train":
            while kept and kept[-1]["step"] >= row["step"]:
                kept.pop()
            kept.append(row)
    result = Totals()
    for before, row in zip([{"step": 0}, *kept], kept, strict=False):
        steps = row["step"] - before["step"]
        seconds = steps / row["steps_per_s"]
        result += Totals(steps, seconds, seconds * row["target_tokens_per_s"])
    return result


def markdown(head: Sequence[str], body: Iterable[Sequence[str]]) -> str:
    """Returns a table."""
    lines = [f"| {' | '.join(line)} |" for line in (head, *body)]
    lines.insert(1, "|---" * len(head) + "|")
    return "\n".join(lines)


def number(value: float | str | None) -> str:
    """Formats a cell of `scores.json`; nothing for a score that was not computed."""
    if isinstance(value, float):
        return f"{value:.2f}" if value < 2 else f"{value:.1f}"
    return "" if value is None else f"{value:,}" if isinstance(value, int) else value


def summary_table(scores: dict[str, Any]) -> str:
    """The table of README: a task a line, and the score that was published for it."""
    values = {name: table["rows"] for name, table in scores["tables"].items()}
    body = []
    for row in scores["summary"]:
        trainings = [totals(read(HERE / name)) for name in row["records"]]
        minutes = sorted(round(training.seconds / 60) for training in trainings)
        time = " to ".join(
            f"{value}" for value in dict.fromkeys(minutes[:1] + minutes[-1:])
        )
        machine = f"{time} min, {row['machine']}" if trainings else row["machine"]
        score = row["score"].format(**values)
        body.append([row["task"], row["hparams"], machine, score, row["published"]])
    head = ("task", "hparam set", "time and hardware", "score", "published score")
    return markdown(head, body)


def results_table(scores: dict[str, Any]) -> str:
    """The table of docs/results.md: a run a line, with the speed of its training."""
    values = {name: table["rows"] for name, table in scores["tables"].items()}
    body = []
    for run in scores["runs"]:
        trainings = [totals(read(HERE / name)) for name in run["records"]]
        links = []
        for name, training in zip(run["records"], trainings, strict=True):
            minutes = f"{training.seconds / 60:.0f}"
            links.append(f"[{training.steps:,} steps](results/{name}), {minutes} min")
        rates = "; ".join(f"{training.target_rate:,.0f}" for training in trainings)
        cells = [f"{'; '.join(links)}, {run['machine']}", rates]
        result = run["result"].format(**values)
        body.append([run["task"], run["hparams"], run["run"], *cells, result])
    head = ("task", "hparam set", "run", "training", "target tokens/s", "result")
    return markdown(head, body)


def scores_table(table: dict[str, Any]) -> str:
    """A table of scores, with a sentence that names the command and the signature."""
    columns = table["columns"]
    body = [
        [label, *(number(row.get(column)) for column in columns)]
        for label, row in table["rows"].items()
    ]
    below = f"Computed by `{table['command']}`. Signature: {table['signature']}."
    return f"{markdown((table['of'], *columns), body)}\n\n{below}"


def work(hparams_set: str, vocab_size: int) -> float:
    """Returns the FLOPs of a training with full batches, as `t2t describe` does."""
    hparams = registry.hparams(hparams_set)
    flops = flops_per_token(hparams, vocab_size, length=32)["training"]
    return flops * hparams.batch_tokens * hparams.train_steps


def hours(seconds: float) -> str:
    """Formats a time with two digits."""
    value = seconds / 3600
    return f"{value:.1f} h" if value < 10 else f"{value:.0f} h"


def own_data_table(scores: dict[str, Any]) -> str:
    """The table of docs/data.md's "Own data: where to begin"."""
    values = {name: table["rows"] for name, table in scores["tables"].items()}
    p100 = work("base", 37_000) / P100_SECONDS
    body = []
    for row in scores["own_data"]:
        name, size = row["hparams_set"], row["vocab_size"]
        if record := row.get("record"):
            measured = totals(read(HERE / record)).seconds
            times = [f"{hours(measured)} (one core, measured)", ""]
        else:
            flops = work(name, size)
            times = [hours(flops / TWO_CORES), hours(flops / p100)]
        steps = registry.hparams(name).train_steps
        first = [row["pairs"], f"{size:,}", f"`{name}`", f"{steps:,}"]
        body.append([*first, *times, row["bleu"].format(**values)])
    head = ("pairs", "`--vocab_size`", "`--hparams_set`", "steps", "two CPU cores")
    return markdown((*head, "one P100", "BLEU"), body)


def tables() -> dict[str, str]:
    """Returns every generated table by its name."""
    scores = json.loads((HERE / "scores.json").read_text(encoding="utf-8"))
    return {
        "summary": summary_table(scores),
        "results": results_table(scores),
        "own_data": own_data_table(scores),
        **{name: scores_table(table) for name, table in scores["tables"].items()},
    }


def with_tables(text: str, made: dict[str, str]) -> str:
    """Returns a document with the tables between its markers.

    Raises:
        KeyError: a marker names no table.
    """

    def replaced(match: re.Match) -> str:
        return f"{match[1]}\n{made[match[2]]}\n{match[3]}"

    pattern = r"(<!-- generated: (\w+) -->)\n.*?(<!-- end of \2 -->)"
    return re.sub(pattern, replaced, text, flags=re.DOTALL)


def main() -> None:
    """Rewrites the documents that have another table than their records give."""
    made = tables()
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        if (new := with_tables(text, made)) != text:
            path.write_text(new, encoding="utf-8")
            print(f"{path.name}: rewritten")


if __name__ == "__main__":
    main()
