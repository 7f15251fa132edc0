"""Comparison of systems: paired significance tests, and the largest differences.

Two tests tell whether a system's score differs from the baseline's by more than chance:
the paired bootstrap (Koehn, EMNLP 2004), which draws sentences with replacement, and
approximate randomization (Riezler and Maxwell, 2005), which swaps the two systems'
outputs for half of the sentences. sacreBLEU has both. Its bootstrap sums the statistics
of the drawn sentences and computes a score from the sums, so it runs here for any
`CorpusMetric`, with sacreBLEU's random numbers and seed. Randomization draws the same
random numbers as sacreBLEU, but also counts ties.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NotRequired, Protocol, TypedDict, cast

import numpy as np

from t2t_keras.console import short_number
from t2t_keras.errors import UserError
from t2t_keras.metrics import CorpusMetric, as_number

from .systems import System

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric, Score, Signature


# Below it, in percent, BLEU counts n-grams that hardly trained models share by chance.
_MIN_BLEU = 1.0


class SentenceDifference(NamedTuple):
    """A sentence on which systems differ.

    Attributes:
        sentence: index of the sentence.
        scores: the score of each system's output.
        difference: the score farthest from the baseline's, minus the baseline's.
    """

    sentence: int
    scores: list[float]
    difference: float


class Comparison(NamedTuple):
    """The result of `compare_systems`.

    Attributes:
        metrics: the results of each metric, by its name.
        differences: the sentences whose scores by the first metric differ, the largest
            difference first.
    """

    metrics: "dict[str, MetricResult]"
    differences: list[SentenceDifference]


class _Bootstrap(Protocol):
    """The result of sacreBLEU's paired bootstrap for a system and the baseline."""

    score: float
    mean: float
    ci: float
    p_value: float


class SystemResult(TypedDict):
    """The score of a system, and its difference from the baseline.

    Attributes:
        system: name of the system.
        engine: the library that decoded its outputs, if that is known.
        score: score of all sentences.
        mean: mean score of the bootstrap samples.
        ci: half of the 95% interval, which goes from mean - ci to mean + ci.
        difference: the score minus the baseline's. The baseline has neither this nor
            the p-values of the two tests.
        p_bootstrap: p-value of the paired bootstrap.
        p_randomization: p-value of approximate randomization.
    """

    system: str
    engine: NotRequired[str]
    score: float
    mean: float
    ci: float
    difference: NotRequired[float]
    p_bootstrap: NotRequired[float]
    p_randomization: NotRequired[float]


class MetricResult(TypedDict):
    """The results of all systems for one metric.

    Attributes:
        signature: the settings of the metric and of the tests, in sacreBLEU's form.
        higher_is_better: whether a better system has a higher score.
        systems: the results of the systems, the baseline first.
    """

    signature: str
    higher_is_better: bool
    systems: list[SystemResult]


def compare_systems(
    systems: Sequence[System],
    sources: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[CorpusMetric],
    bootstrap_samples: int,
    randomization_trials: int,
) -> Comparison:
    """Compares systems with the first of them.

    Args:
        systems: two systems or more; each has an output for each reference.
        sources: the source texts.
        references: the correct outputs.
        metrics: one metric or more.
        bootstrap_samples: number of samples of the paired bootstrap.
        randomization_trials: number of trials of approximate randomization.

    Raises:
        UserError: there are fewer than two sentences.
    """
    if len(references) < 2:
        raise UserError(
            f"a paired test needs at least two sentences, not {len(references)}; "
            "`t2t evaluate` computes scores without a test"
        )
    results: dict[str, MetricResult] = {}
    differences: list[SentenceDifference] = []
    for metric in metrics:
        statistics = []
        for system in systems:
            rows = metric.checked_statistics(sources, system.outputs, references)
            statistics.append(rows)
            score = metric.score(rows.sum(0))
            as_number(f"{type(metric).__name__}.score", score)
        if not results:
            differences = sentence_differences(metric, statistics)
        results[metric.name] = paired_tests(
            metric, systems, statistics, bootstrap_samples, randomization_trials
        )
    return Comparison(results, differences)


def seed() -> int | None:
    """Returns the seed that SACREBLEU_SEED gives; None: random numbers are not seeded.

    Raises:
        UserError: it is neither a positive integer nor "none".
    """
    text = os.environ.get("SACREBLEU_SEED", "12345")
    if text.lower() == "none":
        return None
    # If the seed is 0, sacreBLEU draws a random one in each call.
    if not text.isdecimal() or not int(text):
        raise UserError(
            f"SACREBLEU_SEED: '{text}' is not a seed; give a positive integer, or none"
        )
    return int(text)


def paired_tests(
    metric: CorpusMetric,
    systems: Sequence[System],
    statistics: Sequence[np.ndarray],
    bootstrap_samples: int,
    randomization_trials: int,
) -> MetricResult:
    """Tests the differences between each system and the first one.

    Both p-values are 1 if two systems have the same score. Their statistics may differ
    even so, for instance if BLEU is 0; sacreBLEU then returns its smallest p-value.

    Args:
        metric: the metric.
        systems: the systems.
        statistics: the statistics of each system, [N, n].
        bootstrap_samples: number of samples of the paired bootstrap.
        randomization_trials: number of trials of approximate randomization.
    """
    from sacrebleu.significance import PairedTest

    # sacreBLEU expects distinct names with texts, and a metric that counts n-grams.
    pairs = [(str(index), rows) for index, rows in enumerate(statistics)]
    texts = cast("list[tuple[str, Sequence[str]]]", pairs)
    adapter = cast("Metric", _StatisticsMetric(metric))
    test = PairedTest(texts, {metric.name: adapter}, None, "bs", bootstrap_samples)
    signatures, scores = test()
    signature = signatures[metric.name]
    signature.update("ar", randomization_trials)
    results: list[SystemResult] = []
    bootstraps = cast("list[_Bootstrap]", scores[metric.name])
    for system, bootstrap, rows in zip(systems, bootstraps, statistics, strict=True):
        result: SystemResult = {
            "system": system.name,
            "score": bootstrap.score,
            "mean": float(bootstrap.mean),
            "ci": float(bootstrap.ci),
        }
        if results:
            baseline = results[0]["score"]
            difference = bootstrap.score - baseline
            is_tie = abs(difference) <= _rounding_error(bootstrap.score, baseline)
            result["difference"] = difference
            result["p_bootstrap"] = 1.0 if is_tie else bootstrap.p_value
            result["p_randomization"] = randomization(
                metric, statistics[0], rows, randomization_trials
            )
        if system.engine:
            result["engine"] = system.engine
        results.append(result)
    return {
        "signature": str(signature),
        "higher_is_better": metric.higher_is_better,
        "systems": results,
    }


def incomparable(metric: str, scores: Sequence[float]) -> str:
    """Returns why scores cannot be compared, as the end of a sentence; "": they can.

    Args:
        metric: the name of the metric.
        scores: the scores of two systems.
    """
    if metric != "bleu" or max(scores) >= _MIN_BLEU:
        return ""
    shown = " and ".join(map(short_number, scores))
    return (
        f"cannot be compared: {metric} {shown}; below {_MIN_BLEU:g} BLEU, outputs have "
        "hardly any words in common with the references"
    )


def randomization(
    metric: CorpusMetric, baseline: np.ndarray, system: np.ndarray, trials: int
) -> float:
    """Returns the p-value of approximate randomization.

    It is the share of trials whose difference is at least the actual one, where the
    actual outputs count as one more trial. Ties count (Riezler and Maxwell, 2005): if
    the systems differ in one sentence only, all trials are ties and p is 1.

    Args:
        metric: the metric.
        baseline: the statistics of the first system, [N, n].
        system: the statistics of the second system, [N, n].
        trials: number of trials.
    """
    # Random numbers and sums are sacreBLEU's, so p-values without ties are the same.
    rng = np.random.default_rng(seed())
    is_kept = rng.integers(2, size=(trials, len(baseline)), dtype=bool)
    swapped_baselines = is_kept @ baseline + ~is_kept @ system
    swapped_systems = ~is_kept @ baseline + is_kept @ system
    baseline_score = metric.score(baseline.sum(0))
    system_score = metric.score(system.sum(0))
    difference = abs(baseline_score - system_score)
    difference -= _rounding_error(baseline_score, system_score)
    count = 1
    for a, b in zip(swapped_baselines, swapped_systems, strict=True):
        if abs(metric.score(a) - metric.score(b)) >= difference:
            count += 1
    return count / (trials + 1)


def _rounding_error(*scores: float) -> float:
    """Returns how far equal scores may be apart because their sums are rounded."""
    return 1e-10 * max(map(abs, scores))


def sentence_differences(
    metric: CorpusMetric, statistics: Sequence[np.ndarray]
) -> list[SentenceDifference]:
    """Returns the sentences with different scores, the largest difference first.

    Args:
        metric: the metric.
        statistics: the statistics of each system, [N, n].
    """
    differences = []
    for index, rows in enumerate(zip(*statistics, strict=True)):
        scores = [metric.sentence_score(row) for row in rows]
        largest = max((score - scores[0] for score in scores[1:]), key=abs)
        if largest:
            differences.append(SentenceDifference(index, scores, largest))
    return sorted(differences, key=lambda sentence: -abs(sentence.difference))


class _StatisticsMetric:
    """The methods of a sacreBLEU metric that sacreBLEU's tests call.

    Its inputs are statistics [N, n] instead of texts, so that both tests share them.
    """

    def __init__(self, metric: CorpusMetric) -> None:
        self._metric = metric

    def _extract_corpus_statistics(
        self, statistics: np.ndarray, references: None
    ) -> np.ndarray:
        return statistics

    def _aggregate_and_compute(self, statistics: np.ndarray) -> "Score":
        return self._compute_score_from_stats(statistics.sum(0))

    def _compute_score_from_stats(self, sums: np.ndarray) -> "Score":
        from sacrebleu.metrics.base import Score

        return Score(self._metric.name, self._metric.score(sums))

    def get_signature(self) -> "Signature":
        """Returns a signature with the metric's settings; the tests add their own."""
        from sacrebleu.metrics.base import Signature

        signature = Signature({"num_refs": 1})
        for name, value in self._metric.settings().items():
            signature.update(name, value)
        return signature
