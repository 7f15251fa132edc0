"""The history of a run: events are recorded and read again."""

import numpy as np

from t2t_keras.evaluation.evaluator import Decoded
from t2t_keras.metrics import CorpusMetric, Metrics
from t2t_keras.problem import Problem
from t2t_keras.run.history import (
    read_history,
    read_samples,
    record_event,
    samples_of,
    sessions,
    write_samples,
)


def test_events_are_read_in_their_order(tmp_path):
    assert read_history(tmp_path) == []
    record_event(tmp_path, "training", last_step=4, devices=["é"])
    record_event(tmp_path, "evaluation", of=tmp_path)
    record_event(tmp_path, "training", last_step=6)
    history = read_history(tmp_path)
    kinds = [event["kind"] for event in history]
    assert kinds == ["training", "evaluation", "training"]
    assert history[0]["devices"] == ["é"]
    assert history[1]["of"] == type(tmp_path).__name__
    assert [event["last_step"] for event in sessions(history)] == [4, 6]


def test_a_failed_record_is_reported(tmp_path, capfd):
    (tmp_path / "history.jsonl").mkdir()
    record_event(tmp_path, "evaluation")
    warning = "Is a directory; this evaluation is not recorded there"
    assert f"warning: {tmp_path}/history.jsonl: {warning}" in capfd.readouterr().err


class Errors(CorpusMetric):
    """The number in an output, of which a smaller one is better."""

    name = "errors"
    higher_is_better = False

    def statistics(self, sources, outputs, references):
        return np.array([[float(output)] for output in outputs])

    def score(self, statistics):
        return float(statistics[0])


class ErrorMetrics(Metrics):
    selection_metric = "errors"

    def score(self, sources, outputs, references):
        return {"errors": 0.0}

    def corpus_metrics(self):
        return (Errors(),)


def decoded(outputs):
    texts = [f"ü {i}" for i in range(len(outputs))]
    return Decoded(texts, [f"ref {text}" for text in texts], outputs, {})


def test_samples_are_spread_and_the_worst_come_first(tmp_path):
    problem = Problem(summary="", metrics=ErrorMetrics())
    outputs = [str((7 * i) % 25) for i in range(25)]  # each number once
    record = samples_of(3, problem, decoded(outputs))
    assert [sample.line for sample in record.samples] == [
        *(1, 3, 6, 8, 11, 13, 16, 18, 21, 23)
    ]
    assert [sample.output for sample in record.worst] == ["24", "23", "22", "21", "20"]
    assert [sample.output for sample in record.best] == ["0", "1", "2", "3", "4"]
    assert record.worst[0].score == 24 and record.metric == "errors"
    with (tmp_path / "samples.jsonl").open("w", encoding="utf-8") as file:
        write_samples(file, record)
    assert read_samples(tmp_path) == [record]


def test_three_sentences_are_three_samples():
    record = samples_of(1, Problem(summary=""), decoded(["ref ü 0", "x", "y"]))
    assert [sample.line for sample in record.samples] == [1, 2, 3]
    assert [sample.line for sample in record.best] == [1]
    # BLEU of a sentence that is its reference.
    assert round(record.best[0].score) == 100 and record.metric == "bleu"


def test_repeated_steps_replace_the_earlier_ones(tmp_path):
    """As after a kill, which may also have cut a line."""
    problem = Problem(summary="")
    with (tmp_path / "samples.jsonl").open("w", encoding="utf-8") as file:
        for step, output in ((1, "a"), (2, "b"), (3, "c"), (2, "d")):
            write_samples(file, samples_of(step, problem, decoded([output])))
        file.write('{"step": 4, "metric": "bl')
    records = read_samples(tmp_path)
    shown = [(record.step, record.samples[0].output) for record in records]
    assert shown == [(1, "a"), (2, "d")]
    assert read_samples(tmp_path / "absent") == []


LINE = """\
{"step": 6, "metric": "", "samples": [{"line": 1, "source": "a", "reference": "b",
"output": "c", "score": null}], "worst": [], "best": [{"line": 2, "source": "d",
"reference": "e", "output": "f", "score": 50.0}]}
"""


def test_a_line_as_it_is_on_disk(tmp_path):
    (tmp_path / "samples.jsonl").write_text(LINE.replace("\n", " ") + "\n{}\n")
    (record,) = read_samples(tmp_path)
    assert record == (6, "", [(1, "a", "b", "c", None)], [], [(2, "d", "e", "f", 50.0)])
