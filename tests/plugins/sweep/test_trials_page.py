"""The page of a sweep: its content, and its looks in a browser."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.browser import needs_chromium
from helpers.page_checks import check_tab_order, check_views
from helpers.sweeps import sweep_settings

from t2t_keras.files.json_files import write_json
from t2t_keras.plugins.sweep.best_two import DevTest, best_complete
from t2t_keras.plugins.sweep.trial import SweepTrial
from t2t_keras.plugins.sweep.trials_page import trials_page

report = pytest.importorskip("t2t_keras.plugins.sweep.report", reason="needs optuna")


EVIL = '<img src=x onerror="alert(1)">'


def trial(index, state="complete", scores=None, **hparams):
    scores = {20: 1.0 + index, 40: 2.0 + index} if scores is None else scores
    values = {
        **{"dropout": 0.1 + index / 20, "learning_rate": 0.3, "adam_beta2": 0.98},
        **{"num_layers": 2, "norm": "pre"},
        **hparams,
    }
    return SweepTrial(
        index=index,
        state=state,
        hparams=values,
        scores=scores,
        best_step=sweep_settings().best(scores),
        error=EVIL if state == "failed" else "",
    )


TRIALS = [
    trial(0),
    trial(1, norm="post", learning_rate=3.0),
    trial(2, "failed", {}),
    trial(3, "pruned", {20: 0.5}),
    trial(4, scores={20: float("nan"), 40: 7.0}),
    trial(5, "running", {}),
]
TEST = DevTest(
    [4, 1],
    1014,
    {
        "bleu": {
            "signature": "x",
            "higher_is_better": True,
            "systems": [
                {"system": "1", "score": 3.0, "mean": 3.0, "ci": 1.0},
                {"system": "4", "score": 7.0, "mean": 7.0, "ci": 1.0, "difference": 4.0}
                | {"p_bootstrap": 0.03, "p_randomization": 0.04},
            ],
        }
    },
)


@pytest.fixture(scope="module")
def page():
    command = f"t2t train --hparams {EVIL}"
    return trials_page("mine", sweep_settings(), TRIALS, 10, TEST, command)


def test_the_page_has_all_trials_the_best_first(page):
    assert len(page) < 200_000 and EVIL not in page
    rows = re.findall(r'<th scope="row">(\d)</th><td>(\w+)</td><td>([\d.]*)', page)
    assert rows == [
        *[("4", "complete", "7"), ("1", "complete", "3"), ("0", "complete", "2")],
        *[("2", "failed", ""), ("3", "pruned", "0.5"), ("5", "running", "")],
    ]
    assert "trial 4 is better than trial 1 by more than chance" in page
    assert "The two were chosen from 4 trials" in page
    assert "scores of the trials are of the first 500 sentences" in page
    assert "<dd>5 <small>of 10</small>" in page
    # One chart of the trials, one of the steps, one for each hyper-parameter.
    assert page.count("<svg") == 7
    # A trial with one evaluation is a dot over the steps as well, here two.
    assert page.count('<circle class="best"') == 6 + 1
    assert page.count("<circle") == 6 * 4 + 2


def test_dots_are_where_the_scale_says(page):
    """The axis of the learning rate goes from 52 to 386, for 0.1 to 3 in log scale."""
    chart = page.split("learning_rate (log scale)</figcaption>")[1].split("</svg>")[0]
    x = [float(value) for value in re.findall(r'cx="([\d.]+)"', chart)]
    low = 52 + 334 * np.log(0.3 / 0.1) / np.log(3.0 / 0.1)
    np.testing.assert_allclose(x, [low, 386, low, low], atol=0.06)


def test_the_best_is_the_best_that_was_trained_to_the_end():
    minimized = sweep_settings(direction="minimize")
    assert [x.index for x in best_complete(TRIALS, minimized)] == [0, 1, 4]
    assert [x.index for x in best_complete(TRIALS, sweep_settings())] == [4, 1, 0]
    assert best_complete([TRIALS[3]], sweep_settings()) == []


def test_a_sweep_at_its_beginning():
    page = trials_page("mine", sweep_settings(), [], 10, None, "")
    assert "No trial has been evaluated yet" in page and "<svg" not in page


def test_only_trials_that_have_ended_are_in_the_charts():
    trials = [trial(0, "running"), trial(1, "failed")]
    page = trials_page("mine", sweep_settings(), trials, 10, None, "")
    assert "No trial has been evaluated yet" in page and "<svg" not in page


@pytest.mark.parametrize(("tested", "is_shown"), [([4, 1], True), ([1, 0], False)])
def test_a_test_of_other_trials_is_not_shown(tmp_path, tested, is_shown):
    write_json(
        tmp_path / "test.json", dataclasses.replace(TEST, trials=tested).to_json()
    )
    study = SimpleNamespace(settings=sweep_settings(), trials=lambda: TRIALS)
    report.Report(tmp_path, study, 10, print).on_end(TRIALS[4])
    page = (tmp_path / "page.html").read_text()
    assert ("sentences of dev" in page) is is_shown


@needs_chromium
def test_the_page_in_a_browser(page, tmp_path, chromium):
    path = tmp_path / "page.html"
    path.write_text(page)
    with chromium.page() as shown:
        check_views(shown, path.as_uri())
        check_tab_order(shown)
