"""The test of the best two trials on dev."""

import signal
import subprocess

import pytest
from helpers.command_line import write
from helpers.sweeps import sweep_settings

from t2t_keras import UserError, registry
from t2t_keras.plugins.sweep import best_two
from t2t_keras.plugins.sweep.best_two import DevTest, read_test
from t2t_keras.plugins.sweep.best_two import test_on_dev as on_dev
from t2t_keras.plugins.sweep.trial import SweepTrial, run_dir
from t2t_keras.run.config import config_for

REFERENCES = ["a red dog runs fast today", "two cats sleep in the sun", "a bird sings"]
OUTPUTS = {7: REFERENCES, 3: ["a red dog runs", "two cats sleep", "a bird sings"]}


def trial(index):
    return SweepTrial(
        index=index, state="complete", hparams={}, scores={}, best_step=None, error=""
    )


@pytest.fixture
def decoded(monkeypatch, data_dir, tmp_path):
    """The directory of a sweep whose trials need not be decoded."""
    calls = []
    config = config_for(registry.problem("translate_text"), "tiny", data_dir, 1)
    for index in OUTPUTS:
        run_dir(tmp_path, index).mkdir()
        config.write(run_dir(tmp_path, index))

    def decode(runs):
        calls.append([run.name for run in runs])
        for run in runs:
            outputs = OUTPUTS[int(run.name.rpartition("-")[2])]
            write(run / "dev.hypothesis", *outputs)
            write(run / "dev.source", *REFERENCES)
            write(run / "dev.reference", *REFERENCES)

    monkeypatch.setattr(best_two, "_decode_dev", decode)
    return tmp_path, calls


def test_the_best_is_compared_with_the_second(decoded):
    directory, calls = decoded
    test = on_dev(directory, [trial(7), trial(3)])
    assert (test.trials, test.sentences) == ([7, 3], 3)
    second, best = test.metrics["bleu"]["systems"]
    assert best["score"] == pytest.approx(100) and best["difference"] > 0
    assert (second["system"], best["system"]) == ("trial-0003", "trial-0007")
    # The same two are not decoded again, and the file has the whole test.
    assert on_dev(directory, [trial(7), trial(3), trial(1)]) == read_test(directory)
    assert calls == [["trial-0007", "trial-0003"]]
    p = best["p_bootstrap"]
    assert test.verdict("bleu", 9) == test.verdict("loss", 9)
    scores = f"bleu 100 and {second['score']:.4g}, p = {p:.3f} by the paired bootstrap."
    caution = "The two were chosen from 9 trials on the same sentences"
    assert f"{scores} {caution}" in test.verdict("bleu", 9)


@pytest.mark.parametrize(
    ("scores", "p", "text"),
    [
        (
            (7.0, 3.0),
            0.03,
            "trial 4 is better than trial 1 by more than chance",
        ),
        # The loss may say something else than the metric.
        (
            (3.0, 7.0),
            0.03,
            "trial 1 is better than trial 4 by more than chance",
        ),
        ((7.0, 6.9), 0.3, "trials 4 and 1 differ by no more than chance"),
    ],
)
def test_verdicts(scores, p, text):
    best, second = ({"score": score, "p_bootstrap": p} for score in scores)
    metrics = {"bleu": {"higher_is_better": True, "systems": [second, best]}}
    verdict = DevTest([4, 1], 1014, metrics).verdict("loss", 9)
    assert f"On the 1,014 sentences of dev, {text}: bleu 7 and " in verdict


@pytest.mark.parametrize("scores", [(0.9, 0.3), (0.3, 0.9)])
def test_hardly_trained_models_are_not_compared(scores):
    best, second = ({"score": score, "p_bootstrap": 0.01} for score in scores)
    metrics = {"bleu": {"higher_is_better": True, "systems": [second, best]}}
    verdict = DevTest([4, 1], 1014, metrics).verdict("bleu", 9)
    assert "cannot be compared: bleu 0.9 and 0.3" in verdict
    assert "chance" not in verdict and "p = " not in verdict


@pytest.mark.parametrize(
    ("metric", "decoded", "is_said"),
    [("bleu", 500, True), ("bleu", 1014, False), ("loss", 500, False)],
)
def test_scores_of_fewer_sentences_are_marked(metric, decoded, is_said):
    best, second = ({"score": score, "p_bootstrap": 0.01} for score in (7.0, 3.0))
    metrics = {"bleu": {"higher_is_better": True, "systems": [second, best]}}
    test = DevTest([4, 1], 1014, metrics)
    settings = sweep_settings(metric=metric, options={"eval_sentences": decoded})
    text = best_two.verdict(test, settings, [trial(4), trial(1)])
    assert text.endswith("of the first 500 sentences.") is is_said
    assert best_two.verdict(None, settings, []) == ""


def test_no_process_is_left_when_one_fails(tmp_path, monkeypatch):
    program = """
import sys, time
if sys.argv[2].endswith("0"):
    sys.exit("no checkpoint")
time.sleep(600)
"""
    monkeypatch.setattr(best_two, "T2T", ("-P", "-c", program))
    processes = []
    popen = subprocess.Popen

    def start(*args, **kwargs):
        processes.append(popen(*args, **kwargs))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(UserError, match="0 cannot be evaluated on dev: no checkpoint"):
        best_two._decode_dev([run_dir(tmp_path, index) for index in (0, 1)])
    assert [process.poll() for process in processes] == [1, -signal.SIGKILL]


def test_nothing_to_compare(decoded):
    assert on_dev(decoded[0], [trial(7)]) is None
