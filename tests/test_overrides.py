"""Methods of a user's class that cannot be called as those that they override."""

import numpy as np
import pytest
from helpers.errors import refused

from t2t_keras.evaluation.significance import System, compare
from t2t_keras.metrics import CorpusMetric, Metrics
from t2t_keras.text_processor import TextProcessor
from t2t_keras.usr_dir import load_usr_dir


@pytest.mark.parametrize(
    "base, name, method",
    [
        (TextProcessor, "preprocess", lambda self, text: text),
        (TextProcessor, "postprocess", lambda self, source, target, x: target),
        (TextProcessor, "preprocess_graph", lambda texts, raw: texts),
        (Metrics, "score", lambda self, outputs, references: {}),
        (CorpusMetric, "statistics", lambda self, *, sources: 0),
    ],
)
def test_missing_and_surplus_arguments_are_refused(base, name, method):
    message = rf"X\.{name}\(.* must take the arguments of {base.__name__}\.{name}\(self"
    refused(message, type, "X", (base,), {name: method})


def test_other_names_and_more_arguments_are_not_refused():
    class Form(TextProcessor):
        def preprocess(self, line, is_raw, strict=True):
            return line

        def postprocess(self, *texts):
            return texts[1], False

        def _helper(self):
            return 3

    assert Form().preprocess("a", False) == "a"


def test_the_line_of_the_class_is_named(tmp_path):
    (tmp_path / "lower_form.py").write_text(
        "from t2t_keras.text_processor import TextProcessor\n"
        "class Lower(TextProcessor):\n"
        "    def preprocess(self, text):\n"
        "        return text.lower()\n"
    )
    refused(r"lower_form\.py:2: Lower\.preprocess", load_usr_dir, tmp_path)


class Share(Metrics):
    selection_metric = "share"

    def score(self, *texts):
        return {}


def test_scores_are_numbers_of_python():
    scores = {"share": np.float32(0.5), "lines": 3}
    converted = Share().numbers(scores)
    assert converted == {"share": 0.5, "lines": 3}
    assert [type(x) for x in converted.values()] == [float, int]


@pytest.mark.parametrize(
    "scores, message",
    [
        (0.5, r"Share\.score must return a dict of numbers by name, not 0\.5"),
        ({"shares": 1.0}, r"the selection_metric 'share'; it returns shares"),
        ({"share": "high"}, r"Share\.score: share must be a number, not 'high'"),
    ],
)
def test_scores_must_be_numbers(scores, message):
    refused(message, Share().numbers, scores)


class Correct(CorpusMetric):
    """The share of outputs that are their references."""

    name = "correct"

    def __init__(self, returned=None):
        self.returned = returned

    def statistics(self, sources, outputs, references):
        if self.returned is not None:
            return self.returned
        return [[x == y] for x, y in zip(outputs, references, strict=True)]

    def score(self, statistics):
        return statistics[0]


def p_value(metric):
    systems = [System("a", ["y", "y", "x", "x"] * 3), System("b", ["x"] * 12)]
    comparison = compare(systems, [""] * 12, ["x"] * 12, [metric])
    return comparison.metrics["correct"]["systems"][1]["p_randomization"]


def test_statistics_may_be_lists_of_booleans():
    class Numbers(Correct):
        def statistics(self, sources, outputs, references):
            rows = super().statistics(sources, outputs, references)
            return np.array(rows, np.int64)

    # A sum of booleans would be True: then all differences are 0, and p is 1.
    assert p_value(Correct()) == p_value(Numbers()) < 0.1


def test_statistics_of_small_integers_do_not_overflow():
    metric = Correct(np.full([300, 1], 200, np.uint8))
    rows = metric.checked_statistics([""] * 300, ["x"] * 300, ["x"] * 300)
    assert (np.ones(300, bool) @ rows).tolist() == [60_000]


@pytest.mark.parametrize(
    "statistics",
    [[1.0] * 12, [[1.0]] * 11, [["high"]] * 12, [[1.0], [1.0, 2.0]] * 6, 0.5],
)
def test_statistics_that_are_not_rows_of_numbers_are_refused(statistics):
    message = (
        r"Correct\.statistics must return an array of numbers with a row for each of "
        r"the 12 sentences, not "
    )
    refused(message, p_value, Correct(statistics))


def test_a_score_that_is_not_a_number_is_refused():
    class Label(Correct):
        def score(self, statistics):
            return "high"

    refused(r"Label\.score must be a number, not 'high'", p_value, Label())
