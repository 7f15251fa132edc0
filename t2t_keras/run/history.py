"""What a run directory records: its events, and samples of its translations.

`history.jsonl` has a line for every session (from a start or a resume of the training
to its end), average, evaluation and import; `samples.jsonl` the same dev sentences at
each evaluation of a training, and those with the worst and the best scores.
"""

import datetime
import importlib.metadata
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from t2t_keras.console import say
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.files.json_files import open_log, read_log, without_repeated_steps
from t2t_keras.metrics import as_number
from t2t_keras.problem import Problem

if TYPE_CHECKING:
    from t2t_keras.evaluation.evaluator import Decoded


HISTORY_FILE = "history.jsonl"


def record_event(run_dir: Path, event: str, **facts: object) -> None:
    """Adds a line to the history, or prints a warning if that is impossible.

    Args:
        run_dir: the run directory.
        event: "training", "average", "evaluation" or "import".
        **facts: what to record of it; a value that JSON lacks becomes its type's name.
    """
    line = {
        "kind": event,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "version": importlib.metadata.version("t2t_keras"),
        **facts,
    }
    text = json.dumps(
        line, ensure_ascii=False, default=lambda value: type(value).__name__
    )
    path = run_dir / HISTORY_FILE
    try:
        with open_log(path) as file:
            file.write(f"{text}\n")
    except OSError as error:
        say(f"warning: {path}: {error.strerror}; this {event} is not recorded there")


def read_history(run_dir: Path, warns: bool = True) -> list[dict[str, Any]]:
    """Returns the events of a run, the oldest first.

    Damaged lines are left out, with a warning if `warns`.
    """
    return read_log(run_dir / HISTORY_FILE, warns=warns)


def sessions(history: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the events of sessions of the training."""
    return [event for event in history if event.get("kind") == "training"]


SAMPLES_FILE = "samples.jsonl"


_SAMPLES = 10
_EXTREMES = 5


class Sample(NamedTuple):
    """A dev sentence and what the model makes of it.

    Attributes:
        line: number of the sentence in the split, from 1.
        source: the source text.
        reference: its target in the data.
        output: the model's output.
        score: the metric of this sentence alone; None: there is no metric.
    """

    line: int
    source: str
    reference: str
    output: str
    score: float | None


class DevSamples(NamedTuple):
    """The sentences of one evaluation.

    Attributes:
        step: the number of updates.
        metric: the name of the metric of `Sample.score`; "": there is none.
        samples: the same sentences at every evaluation.
        worst: those with the worst scores of all decoded ones, the worst first.
        best: those with the best scores, the best first.
    """

    step: int
    metric: str
    samples: list[Sample]
    worst: list[Sample]
    best: list[Sample]


def samples_of(step: int, problem: Problem, decoded: "Decoded") -> DevSamples:
    """Returns what to record of the decoded sentences of an evaluation, at least one.

    The problem's first corpus metric scores them.
    """
    sources, references, outputs, _ = decoded
    metrics = metrics_of(problem, references).corpus_metrics()
    scores: list[float | None] = [None] * len(outputs)
    name = ""
    sign = 1
    if metrics:
        metric = metrics[0]
        name = metric.name
        sign = 1 if metric.higher_is_better else -1
        rows = metric.checked_statistics(sources, outputs, references)  # [N, n]
        method = f"{type(metric).__name__}.sentence_score"
        scores = [as_number(method, metric.sentence_score(row)) for row in rows]
    columns = zip(sources, references, outputs, scores, strict=True)
    sentences = [Sample(line, *texts) for line, texts in enumerate(columns, 1)]
    # At equal distances, because neighbours may belong to one document.
    count = min(_SAMPLES, len(sentences))
    samples = [sentences[i * len(sentences) // count] for i in range(count)]
    worst_first = [sentence for sentence in sentences if sentence.score is not None]
    worst_first.sort(key=lambda sentence: sign * (sentence.score or 0.0))
    extremes = min(_EXTREMES, len(worst_first) // 2)
    best = worst_first[len(worst_first) - extremes :]
    return DevSamples(step, name, samples, worst_first[:extremes], best[::-1])


def write_samples(file: TextIO, record: DevSamples) -> None:
    """Writes the line of an evaluation."""
    fields = record._asdict()
    for name in ("samples", "worst", "best"):
        fields[name] = [sample._asdict() for sample in fields[name]]
    file.write(json.dumps(fields, ensure_ascii=False) + "\n")


def read_samples(run_dir: Path, warns: bool = True) -> list[DevSamples]:
    """Returns the recorded evaluations; see `without_repeated_steps`.

    Damaged lines are left out, with a warning if `warns`.
    """
    from pydantic import TypeAdapter, ValidationError

    adapter = TypeAdapter(DevSamples)

    def is_record(fields: dict[str, Any]) -> bool:
        try:
            adapter.validate_python(fields, strict=True)
        except ValidationError:
            return False
        return True

    lines = read_log(run_dir / SAMPLES_FILE, is_record, warns)
    return [adapter.validate_python(fields) for fields in without_repeated_steps(lines)]
