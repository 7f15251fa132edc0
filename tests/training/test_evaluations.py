"""The dev split during training: the best checkpoint, patience, the averages."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf
from helpers.small_run import replace_updates, trainer, weights

from t2t_keras.metrics import Metrics
from t2t_keras.problem import Problem
from t2t_keras.run.checkpoint import (
    Checkpoint,
    CheckpointDirectory,
    average_run,
    model_variables,
)
from t2t_keras.run.directory import RunDirectory
from t2t_keras.run.evaluation import open_split
from t2t_keras.training.features import dev_hooks
from t2t_keras.training.interval import TimeLeft
from t2t_keras.training.metrics_files import MetricsFile
from t2t_keras.training.reporting import Reporter, Screen
from t2t_keras.training.settings import TrainOptions


@dataclasses.dataclass
class Dev:
    """A dev split whose loss and BLEU are given beforehand."""

    values: list[tuple[float, float]]
    problem: Problem = Problem(summary="")  # noqa: RUF009, it is frozen

    def __len__(self) -> int:
        return 1014

    def metrics(self, sentences, meter) -> dict[str, float]:
        loss, bleu = self.values.pop(0)
        return {"nll": loss, "perplexity": 2.0, "accuracy": 0.5, "bleu": bleu}


class DevEvaluations:
    """The hooks that evaluate on a dev split, as a training calls them."""

    def __init__(self, directory, dev, weights, **options):
        options = TrainOptions(**options)
        checkpoints = CheckpointDirectory(directory)
        self.hooks = dev_hooks(dev, weights, {}, checkpoints, options)
        self.hooks.append(MetricsFile(directory))
        time_left = TimeLeft(range(10), options)
        self.reporter = Reporter(time_left, self.hooks, Screen(time_left))
        self.evaluations = self.hooks[0].evaluations

    def resume(self, step):
        for hook in self.hooks:
            hook.on_restore(step)

    def evaluate(self, step):
        for hook in self.hooks:
            hook.evaluate(step, self.reporter)

    def evaluate_at_end(self, step):
        results = {}
        for hook in self.hooks:
            results |= hook.evaluate_at_end(step, self.reporter)
        return results

    @property
    def best_step(self):
        return self.evaluations.best_step

    @property
    def lost_patience(self):
        return any(hook.stop_reason() == "patience" for hook in self.hooks)


def evaluated(directory, values, steps, **options):
    """Returns hooks that have made some evaluations."""
    weight = tf.Variable([0.0])
    validation = DevEvaluations(directory, Dev(values), {"model/a": weight}, **options)
    validation.resume(steps[0] - 1)
    for step in steps:
        weight.assign([float(step)])
        validation.evaluate(step)
    validation.reporter.close()
    return validation


@pytest.mark.parametrize(
    ("decoded", "line"),
    [
        (500, "dev: nll of all 1,014 sentences, scores of the first 500"),
        (1014, None),
        (0, None),
    ],
)
def test_a_training_says_which_sentences_it_decodes(tmp_path, decoded, line):
    dev = DevEvaluations(tmp_path, Dev([]), {}, eval_sentences=decoded)
    assert dev.hooks[0].on_train_begin() == line


VALUES = [(5.0, 10.0), (3.0, 20.0), (4.0, 30.0), (3.0, 25.0)]


@pytest.mark.parametrize("best_by", ["nll", "metric"])
def test_a_loss_that_is_not_finite_is_never_the_best(best_by, tmp_path):
    values = [(float("nan"), 90.0), *VALUES[1:3]]
    validation = evaluated(tmp_path, values, [1, 2, 3], best_by=best_by, patience=2)
    assert validation.best_step == (2 if best_by == "nll" else 3)
    assert not validation.lost_patience


@pytest.mark.parametrize(
    ("best_by", "best", "at"), [("nll", 2, 4), ("metric", 3, None)]
)
def test_the_best_is_kept_and_patience_counts_from_it(best_by, best, at, tmp_path):
    for step in (1, 2, 3, 4):
        directory = tmp_path / str(step)
        directory.mkdir()
        options = {"best_by": best_by, "patience": 2}
        steps = list(range(1, step + 1))
        validation = evaluated(directory, list(VALUES), steps, **options)
        assert validation.lost_patience == (step == at)
    checkpoints = CheckpointDirectory(directory)
    assert validation.best_step == best
    assert checkpoints.steps("best.ckpt") == [best]
    assert Checkpoint(checkpoints.find("best")).tensor("model/a") == [best]


def test_evaluations_of_a_killed_process_are_recalled_up_to_its_checkpoint(tmp_path):
    evaluated(tmp_path, list(VALUES), [1, 2, 3])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "kind": "dev", "lobs": 1.0}\n')  # damaged
        file.write('{"step": 3, "ki')  # killed while it wrote
    recalled = evaluated(tmp_path, [(9.0, 1.0)], [3])  # its checkpoint was of step 2
    assert recalled.best_step == 2
    records = [line for line in (tmp_path / "metrics.jsonl").open() if '"dev"' in line]
    assert len(records) == 5
    resumed = DevEvaluations(tmp_path, Dev([]), {}, patience=1)
    resumed.resume(2)
    assert not resumed.lost_patience
    assert resumed.best_step == 2


def test_the_best_on_the_disk_is_the_best_of_the_evaluations(tmp_path):
    """With another `best_by` it is saved again, or all evaluations are forgotten."""
    evaluated(tmp_path, list(VALUES), [1, 2, 3, 4])  # the best by loss is 2
    checkpoints = CheckpointDirectory(tmp_path)
    tensors = {"model/a": tf.constant([3.0]), "step": tf.constant(3, tf.int64)}
    checkpoints.save(3, tensors, keep=9)

    def resumed(**options):
        weights = {"model/a": tf.Variable([0.0])}
        validation = DevEvaluations(tmp_path, Dev([]), weights, **options)
        validation.resume(4)
        return validation.best_step, checkpoints.steps("best.ckpt")

    assert resumed(best_by="metric") == (3, [3])
    best = Checkpoint(checkpoints.find("best"))
    assert (best.step, best.tensor("model/a")) == (3, [3.0])
    assert resumed() == (None, [3])  # the weights of step 2 are gone


class ErrorRate(Metrics):
    selection_metric = "per"
    higher_is_better = False

    def score(self, sources, hypotheses, references):
        raise NotImplementedError


def test_evaluations_without_the_metric_are_not_compared(tmp_path):
    """As when a run resumes with `best_by=metric`, and lower values are better."""
    dev = Dev([], Problem(summary="", metrics=ErrorRate()))
    validation = DevEvaluations(tmp_path, dev, {}, best_by="metric", patience=2)
    evaluations = validation.evaluations
    evaluations.by_step = {4: {"nll": 5.0}, 8: {"nll": 3.0}}
    assert validation.best_step == 8
    evaluations.by_step[12] = {"nll": 2.0, "per": 40.0}
    evaluations.by_step[16] = {"nll": 9.0, "per": 20.0}
    assert validation.best_step == 16 and not validation.lost_patience
    losses = [evaluations.selection_score({"nll": x}) for x in (2.0, 9.0)]
    assert losses == [-2.0, -9.0]  # an average is compared with the last step


def test_the_last_ten_are_of_the_last_quarter():
    for steps, interval in ((60, 25), (1200, 30), (8000, 200), (100_000, 1000)):
        assert TrainOptions().save_interval(steps) == interval
        assert interval == 25 or 10 * interval <= steps / 4
    assert TrainOptions(save_every=7).save_interval(60) == 7


def test_the_average_is_compared_and_the_weights_stay(data_dir, tmp_path, monkeypatch):
    replace_updates(monkeypatch)
    options = {"save_every": 1, "eval_every": 2, "average_last": 3}
    training = trainer(data_dir, tmp_path / "run", options=options)
    values = training.train()
    saved = weights(tmp_path / "run")
    for name, variable in model_variables(training.model).items():
        np.testing.assert_array_equal(variable, saved[name], err_msg=name)

    records = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    losses = {r["step"]: r["nll"] for r in records if r["kind"] == "dev"}
    best = min(losses, key=losses.get)
    assert values["dev_best"]["step"] == best
    assert values["dev_best"]["nll"] == losses[best]

    # The same as averaging on disk and evaluating that.
    average_run(tmp_path / "run", count=3)
    run = RunDirectory(tmp_path / "run")
    expected = open_split(run, run.translator("average"), "dev").loss()["nll"]
    assert values["dev_average"]["checkpoints"] == 3
    assert values["dev_average"]["nll"] == pytest.approx(expected, rel=1e-6)
    kinds = [r["kind"] for r in records]
    assert kinds[-2:] == ["dev_best", "dev_average"]


@pytest.mark.parametrize(
    ("loss", "is_kept", "message"),
    [
        (2.0, "average.ckpt-2", "is kept: {}/average.ckpt-2"),
        (4.0, "model.ckpt-2", "worse on dev than step 2 alone, so it is not kept"),
    ],
)
def test_an_average_is_kept_if_it_is_better(loss, is_kept, message, tmp_path, capfd):
    checkpoints = CheckpointDirectory(tmp_path)
    for step in (1, 2):
        tensors = {"model/a": tf.constant([float(step)])}
        tensors["step"] = tf.constant(step, tf.int64)
        checkpoints.save(step, tensors, keep=9)
    values = [(3.0, 0.0), (loss, 0.0)]
    validation = evaluated(tmp_path, values, [2], eval_sentences=1)
    assert validation.evaluate_at_end(2)["dev_average"]["nll"] == loss
    validation.reporter.close()
    assert message.format(tmp_path) in capfd.readouterr().err
    assert checkpoints.find() == tmp_path / is_kept
    value = Checkpoint(checkpoints.find()).tensor("model/a")
    assert value == (1.5 if loss == 2.0 else 2.0)
