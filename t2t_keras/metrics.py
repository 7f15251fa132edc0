"""Metrics: how the outputs of a problem are scored, and how scores are printed."""

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from t2t_keras.console import short_number
from t2t_keras.errors import UserError, quantity, short_repr

if TYPE_CHECKING:
    import numpy as np


def as_number(name: str, value: object) -> float:
    """Returns a number of NumPy or a tensor as Python's, which JSON has.

    Raises:
        UserError: it is not a number; the message names the method that returned it.
    """
    if isinstance(value, int | float):
        return value
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UserError(f"{name} must be a number, not {short_repr(value)}") from None


class CorpusMetric(abc.ABC):
    """A metric that is computed from statistics of sentences, summed over a corpus.

    It can be computed for any sample of the sentences: the tests of `t2t compare` do
    so thousands of times.

    Attributes:
        name: the name in tables and for `--metric`.
        higher_is_better: whether a better model has a higher score.
        uses_sources: whether the statistics depend on the sources.
    """

    name: str
    higher_is_better: bool = True
    uses_sources: bool = False

    @abc.abstractmethod
    def statistics(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> "np.ndarray":
        """Returns the statistics of N sentences, an array [N, n] of numbers."""

    def checked_statistics(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> "np.ndarray":
        """Returns what `statistics` returns as int64 or float64 [N, n].

        Sums of smaller types would overflow, and two booleans have the sum one.

        Raises:
            UserError: it is not such an array.
        """
        import numpy as np

        statistics: object = self.statistics(sources, outputs, references)
        method = f"{type(self).__name__}.statistics"
        try:
            array = np.asarray(statistics)
        except ValueError:  # rows of different lengths
            array = np.asarray(None)
        code = array.dtype.kind
        if array.shape[:1] != (len(outputs),) or array.ndim != 2 or code not in "biuf":
            raise UserError(
                f"{method} must return an array of numbers with a row for each of the "
                f"{len(outputs)} sentences, not {short_repr(statistics)}"
            )
        return array.astype(np.float64 if code == "f" else np.int64, copy=False)

    @abc.abstractmethod
    def score(self, statistics: "np.ndarray") -> float:
        """Returns the score of a corpus.

        Args:
            statistics: the sums [n] of the statistics of its sentences.
        """

    def sentence_score(self, statistics: "np.ndarray") -> float:
        """Returns the score of one sentence, whose statistics are given."""
        return self.score(statistics)

    def settings(self) -> dict[str, str]:
        """Returns the settings on which the score depends, for its signature."""
        return {}


class Metrics(abc.ABC):
    """The metrics of a problem, computed from sources, outputs and references.

    Training calls `score` on dev; `t2t evaluate` prints `report`.

    Attributes:
        selection_metric: the metric from `score` by which checkpoints are compared.
        higher_is_better: whether a better model has a higher selection metric.
    """

    selection_metric: str
    higher_is_better: bool = True

    @abc.abstractmethod
    def score(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> dict[str, float]:
        """Scores outputs; the three lists have equal length.

        Args:
            sources: the source texts.
            outputs: the model's outputs, one line each.
            references: the correct outputs.

        Returns:
            Metrics by name, `selection_metric` among them.
        """

    def numbers(self, scores: object) -> dict[str, float]:
        """Returns what `score` returned, with Python's numbers.

        Raises:
            UserError: it is not numbers by name, with `selection_metric` among them.
        """
        method = f"{type(self).__name__}.score"
        if not isinstance(scores, Mapping):
            raise UserError(
                f"{method} must return a dict of numbers by name, not "
                f"{short_repr(scores)}"
            )
        name = getattr(self, "selection_metric", None)
        if name not in scores:
            raise UserError(
                f"{method} must return the selection_metric {short_repr(name)}; it "
                f"returns {', '.join(map(str, scores)) or 'nothing'}"
            )
        return {key: as_number(f"{method}: {key}", scores[key]) for key in scores}

    def report(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> Mapping[str, object]:
        """Scores outputs by all available metrics; by default, calls `score`."""
        return self.score(sources, outputs, references)

    def corpus_metrics(self) -> Sequence[CorpusMetric]:
        """Returns the metrics by which `t2t compare` tests differences, if any."""
        return ()

    def settings(self) -> dict[str, object]:
        """Returns the settings on which `score` depends."""
        return {}

    def reversed(self) -> "Metrics | None":
        """Returns the metrics of the reversed problem; None: its default, BLEU."""
        return None

    def selection_score(self, values: Mapping[str, float]) -> float:
        """Returns the selection score, which is higher for a better model.

        Args:
            values: the metrics from `score`, if sentences were decoded, and "nll",
                which is used otherwise.
        """
        if self.selection_metric not in values:
            return -values["nll"]
        value = values[self.selection_metric]
        return value if self.higher_is_better else -value


# The metrics that `Evaluator.loss` returns, of all sentences of a split.
LOSS_METRICS: Final = ("nll", "perplexity", "accuracy")


def counts_line(split: str, sentences: int, decoded: int | None) -> str:
    """Formats how many sentences of a split the loss and the scores cover.

    Args:
        split: the name of the split.
        sentences: the number of its sentences, all of which the loss covers.
        decoded: the number of sentences to decode; None: all; 0: only the loss.

    Returns:
        A line; "": every metric is of all sentences.
    """
    if not decoded or decoded >= sentences:
        return ""
    return (
        f"{split}: nll of all {quantity(sentences, 'sentences')}, scores of the first "
        f"{decoded:,}"
    )


def evaluation_line(step: int, label: str, metrics: dict[str, float]) -> str:
    """Formats an evaluation with its step and label."""
    return " | ".join([f"step {step} {label}", *shown_metrics(metrics)])


def shown_metrics(metrics: Mapping[str, float]) -> list[str]:
    """Formats metrics."""
    return [f"{name} {short_number(value)}" for name, value in metrics.items()]
