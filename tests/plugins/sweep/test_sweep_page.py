"""The page of a sweep: its content, and its looks in a browser."""

import html
import re

import numpy as np
import pytest
from helpers.browser import needs_chromium
from helpers.page_checks import check_tab_order, check_views
from helpers.sweeps import sweep_settings

pytest.importorskip("optuna", reason="optuna is not installed")

from t2t_keras.plugins.sweep.page import best_complete, sweep_page
from t2t_keras.plugins.sweep.study import SweepTrial

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
COMMANDS = {
    "train with the best values": ["t2t", "train", "--hparams", EVIL],
    "compare the best two": ["t2t", "compare", "a b", "c"],
}


@pytest.fixture(scope="module")
def page():
    settings = sweep_settings(hparams=EVIL, hparams_set="transformer_base_of_our_own")
    return sweep_page(EVIL, settings, TRIALS, 10, COMMANDS)


def test_the_page_has_all_trials_the_best_first(page):
    assert len(page) < 200_000 and EVIL not in page
    rows = re.findall(r'<th scope="row">(\d)</th><td>(\w+)</td><td>([\d.]*)', page)
    assert rows == [
        *[("4", "complete", "7"), ("1", "complete", "3"), ("0", "complete", "2")],
        *[("2", "failed", ""), ("3", "pruned", "0.5"), ("5", "running", "")],
    ]
    assert page.count('<tr class="best">') == 1
    assert "<dd>5 <small>of 10</small>" in page
    assert "<dd>7 <small>trial 4, step 40</small>" in page
    # The title, the heading, the error, the changed hparams, the command.
    assert html.unescape(page.replace("<wbr>", "")).count(EVIL) == 5
    # One chart of the trials, one of the steps, one for each hyper-parameter.
    assert page.count("<svg") == 7
    # A trial with one evaluation is a dot over the steps as well, here two.
    assert page.count('<circle class="best"') == 6 + 1
    assert page.count("<circle") == 6 * 4 + 2
    assert page.count('<path class="complete"') == 2


def test_the_page_has_all_settings(page):
    table = page.partition("<h2>Settings</h2>")[2].partition("</table>")[0]
    rows = re.findall(r'<th scope="row">(.*)</th><td class="text">(.*)</td>', table)
    shown = {name: html.unescape(re.sub("<wbr>", "", value)) for name, value in rows}
    assert shown == {
        **{"hparam set": "transformer_base_of_our_own", "hparams": EVIL},
        "steps of a trial": "40",
        **{"evaluated every": "20 steps", "seed": "3", "random trials at first": "2"},
        **{"pruning": "at evaluations", "parallel trials on a machine": "2"},
        **{"data": "d", "range of dropout": "0.05 to 0.5"},
        "range of learning_rate": "0.1 to 3, log scale",
        "range of adam_beta2": "0.9 to 0.999, reverse_log scale",
        **{"range of num_layers": "1 to 4, log scale", "range of norm": "pre, post"},
    }


def test_dots_are_where_the_scale_says(page):
    """The axis of the learning rate goes from 52 to 386, for 0.1 to 3 in log scale."""
    chart = page.split("learning_rate (log scale)</figcaption>")[1].split("</svg>")[0]
    x = [float(value) for value in re.findall(r'cx="([\d.]+)"', chart)]
    low = 52 + 334 * np.log(0.3 / 0.1) / np.log(3.0 / 0.1)
    np.testing.assert_allclose(x, [low, 386, low, low], atol=0.06)


def test_scores_are_where_the_axis_says(page):
    """The axis of scores goes from 192 at 0 to 12 at 8."""
    chart = page.split("Trials in their order</figcaption>")[1].split("</svg>")[0]
    y = [float(value) for value in re.findall(r'cy="([\d.]+)"', chart)]
    expected = [192 - 180 * score / 8 for score in (2.0, 3.0, 0.5, 7.0)]
    np.testing.assert_allclose(y, expected, atol=0.06)
    assert re.findall(r'class="y"[^>]*>([^<]*)<', chart) == ["0", "2", "4", "6", "8"]


def test_the_best_is_the_best_that_was_trained_to_the_end():
    minimized = sweep_settings(direction="minimize")
    assert [x.index for x in best_complete(minimized, TRIALS)] == [0, 1, 4]
    assert [x.index for x in best_complete(sweep_settings(), TRIALS)] == [4, 1, 0]
    assert best_complete(sweep_settings(), [TRIALS[3]]) == []


@pytest.mark.parametrize("states", [[], ["running", "failed"]])
def test_only_trials_that_have_ended_are_in_the_charts(states):
    trials = [trial(index, state) for index, state in enumerate(states)]
    page = sweep_page("mine", sweep_settings(), trials, 10, {})
    assert "No trial has been evaluated yet" in page and "<svg" not in page


@needs_chromium
def test_the_page_in_a_browser(page, tmp_path, chromium):
    path = tmp_path / "page.html"
    path.write_text(page)
    with chromium.page() as shown:
        check_views(shown, path.as_uri())
        check_tab_order(shown)
        # The command for the best values is above the charts, and is copied as it is.
        shown.run("navigator.clipboard.writeText = text => { window.copied = text; }")
        shown.run("document.querySelector('.command button').click()")
        shown.wait("window.copied")
        assert shown.run("window.copied") == f"t2t train \\\n    --hparams '{EVIL}'"
        shown.wait("document.querySelector('.command button').textContent === 'Copied'")
        heading = shown.run("document.querySelector('h2').textContent")
        assert heading == "Train with the best values"
