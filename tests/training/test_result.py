"""The results of a training that has ended, in its history."""

import json

import pytest

from t2t_keras.training.result import evaluation_lines, recorded_results, results
from t2t_keras.training.settings import TrainOptions

METRICS = {"loss": 1.5, "dev_best": {"step": 2, "nll": 0.1}, "minutes_left": 0.0}
END = {"kind": "training", "last_step": 4, "stopped_by": "train_steps"}


def write(path, *records):
    lines = "".join(f"{json.dumps(record)}\n" for record in records)
    (path / "history.jsonl").write_text(lines)


def test_the_results_of_the_last_training_are_found(tmp_path):
    options = TrainOptions(eval_sentences=7)
    assert recorded_results(tmp_path, 4, "train_steps", options) is None
    end_record = END | results(METRICS, options)
    write(tmp_path, END | {"last_step": 2}, end_record, {"kind": "evaluation"})
    expected = {"loss": 1.5, "dev_best": {"step": 2, "nll": 0.1}}
    assert recorded_results(tmp_path, 4, "train_steps", options) == expected
    often = TrainOptions(eval_sentences=7, log_every=1)  # the results are the same
    assert recorded_results(tmp_path, 4, "train_steps", often) == expected


@pytest.mark.parametrize(
    ("record", "step", "changes"),
    [
        ({}, 5, {}),
        ({"stopped_by": "max_minutes"}, 4, {}),
        ({}, 4, {"average_last": 5}),
        ({}, 4, {"eval_sentences": 8}),
        ({}, 4, {"best_by": "metric"}),
    ],
)
def test_another_end_is_evaluated(record, step, changes, tmp_path):
    write(tmp_path, END | results(METRICS, TrainOptions()) | record)
    options = TrainOptions(**changes)
    assert recorded_results(tmp_path, step, "train_steps", options) is None


def test_the_evaluations_of_the_end_are_shown_again():
    metrics = {"dev_nll": 0.5, "dev_metrics": {"bleu": 20.0}, "dev_ema": None}
    average = {"checkpoints": 2, "nll": 0.25}
    shown = evaluation_lines(4, METRICS | metrics | {"dev_average": average})
    assert shown == [
        "step 4 dev | nll 0.5 | bleu 20",
        "step 2 dev_best | nll 0.1",
        "step 4 dev_average | checkpoints 2 | nll 0.25",
    ]
    assert evaluation_lines(4, {"loss": 1.5}) == []
