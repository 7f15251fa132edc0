"""Comparison of systems: paired significance tests, and the largest differences.

Two tests tell whether a system's score differs from the baseline's by more than chance:
the paired bootstrap (Koehn, EMNLP 2004), which draws sentences with replacement, and
approximate randomization (Riezler and Maxwell, 2005), which swaps the two systems'
outputs of half of the sentences. sacreBLEU does both. It sums the statistics of the
drawn sentences and computes a score from the sums, so its bootstrap runs here on any
`CorpusMetric`, with its random numbers and its seed. Randomization draws the same
numbers, but counts ties, which sacreBLEU does not.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.problem import CorpusMetric

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric, Score, Signature

BOOTSTRAP_SAMPLES, RANDOMIZATION_TRIALS = 1000, 10_000  # sacreBLEU's defaults


class System(NamedTuple):
    """A system and its outputs, one for each sentence."""

    name: str
    outputs: Sequence[str]


class SentenceDifference(NamedTuple):
    """A sentence on which systems differ.

    Attributes:
        sentence: index of the sentence.
        scores: its score by each system.
        difference: the score farthest from the first one, minus the first one.
    """

    sentence: int
    scores: list[float]
    difference: float


class Comparison(NamedTuple):
    """The result of `compare`.

    Attributes:
        metrics: for each metric by name: "signature"; "higher_is_better"; and
            "systems", a list with "system", "score", and "mean" and "ci" of the
            bootstrap samples, where mean - ci to mean + ci is a 95% interval. Each
            system but the first also has "difference", its score minus the first
            system's, and "p_bootstrap" and "p_randomization".
        differences: the sentences whose scores by the first metric differ, the largest
            difference first.
    """

    metrics: dict[str, dict[str, Any]]
    differences: list[SentenceDifference]


def compare(
    systems: Sequence[System],
    sources: Sequence[str],
    references: Sequence[str],
    metrics: Sequence[CorpusMetric],
    bootstrap_samples: int = BOOTSTRAP_SAMPLES,
    randomization_trials: int = RANDOMIZATION_TRIALS,
) -> Comparison:
    """Compares systems with the first of them.

    Args:
        systems: two systems or more.
        sources: the source texts.
        references: the correct outputs.
        metrics: one metric or more.
        bootstrap_samples: number of samples of the paired bootstrap.
        randomization_trials: number of trials of approximate randomization.

    Raises:
        UserError: the lists have other lengths than the references, or there are fewer
            than two sentences, or the environment's seed is impossible.
    """
    for name, texts in (("the sources", sources), *systems):
        if len(texts) != len(references):
            raise UserError(
                f"{name} and the references differ in their number, {len(texts)} and "
                f"{len(references)}; text n of one must belong to text n of the other"
            )
    if len(references) < 2:
        raise UserError(
            f"a paired test needs at least two sentences, not {len(references)}; "
            "`t2t evaluate` computes scores without a test"
        )
    seed()
    results: dict[str, dict[str, Any]] = {}
    differences: list[SentenceDifference] = []
    for metric in metrics:
        statistics = [
            metric.statistics(sources, system.outputs, references) for system in systems
        ]
        tests = paired_tests(
            metric, statistics, bootstrap_samples, randomization_trials
        )
        for row, system in zip(tests["systems"], systems, strict=True):
            row["system"] = system.name
        if not results:
            differences = sentence_differences(metric, statistics)
        results[metric.name] = tests
    return Comparison(results, differences)


def seed() -> int | None:
    """Returns sacreBLEU's seed, from SACREBLEU_SEED; None: there is none.

    Raises:
        UserError: it is neither a positive integer nor "none".
    """
    text = os.environ.get("SACREBLEU_SEED", "12345")
    if text.lower() == "none":
        return None
    # sacreBLEU draws another seed at every call if it is 0.
    if not text.isdecimal() or not int(text):
        raise UserError(
            f"SACREBLEU_SEED: '{text}' is not a seed; give a positive integer, or none"
        )
    return int(text)


def paired_tests(
    metric: CorpusMetric,
    statistics: Sequence[np.ndarray],
    bootstrap_samples: int = BOOTSTRAP_SAMPLES,
    randomization_trials: int = RANDOMIZATION_TRIALS,
) -> dict[str, Any]:
    """Tests the differences between systems and the first of them.

    Systems with the same score have the p-value 1 in both tests. Their statistics may
    differ, as with a BLEU of 0; sacreBLEU then gives its smallest p-value.

    Args:
        metric: the metric.
        statistics: the statistics of each system, [N, n].
        bootstrap_samples: number of samples of the paired bootstrap.
        randomization_trials: number of trials of approximate randomization.

    Returns:
        An entry of `Comparison.metrics`, without the names of systems.
    """
    from sacrebleu.significance import PairedTest

    named = [(str(i), rows) for i, rows in enumerate(statistics)]
    # In place of texts and of a metric that counts their n-grams.
    systems = cast("list[tuple[str, Sequence[str]]]", named)
    stand_in = cast("Metric", _OnStatistics(metric))
    test = PairedTest(systems, {metric.name: stand_in}, None, "bs", bootstrap_samples)
    signatures, scores = test()
    signature = signatures[metric.name]
    signature.update("ar", randomization_trials)
    rows: list[dict[str, Any]] = []
    found = cast("list[Any]", scores[metric.name])
    for bootstrap, of_system in zip(found, statistics, strict=True):
        row = {
            "score": bootstrap.score,
            "mean": float(bootstrap.mean),
            "ci": float(bootstrap.ci),
        }
        if rows:
            difference = bootstrap.score - rows[0]["score"]
            is_zero = abs(difference) <= _rounding(bootstrap.score, rows[0]["score"])
            row |= {
                "difference": difference,
                "p_bootstrap": 1.0 if is_zero else bootstrap.p_value,
                "p_randomization": randomization(
                    metric, statistics[0], of_system, randomization_trials
                ),
            }
        rows.append(row)
    return {
        "signature": str(signature),
        "higher_is_better": metric.higher_is_better,
        "systems": rows,
    }


def randomization(
    metric: CorpusMetric, baseline: np.ndarray, system: np.ndarray, trials: int
) -> float:
    """Returns the p-value of approximate randomization.

    It is the share of the trials, and of the systems as they are, whose difference is
    at least that of the systems as they are. A trial in which it is equal counts
    (Riezler and Maxwell, 2005): if one sentence differs, all trials are ties, and p
    is 1.

    Args:
        metric: the metric.
        baseline: the statistics of a system, [N, n].
        system: those of another one, [N, n].
        trials: number of trials.
    """
    # sacreBLEU's random numbers and sums, so that p-values without ties are the same.
    rng = np.random.default_rng(seed())
    is_own = rng.integers(2, size=(trials, len(baseline)), dtype=bool)
    first = is_own @ baseline + ~is_own @ system
    second = ~is_own @ baseline + is_own @ system
    scores = metric.score(baseline.sum(0)), metric.score(system.sum(0))
    least = abs(scores[0] - scores[1]) - _rounding(*scores)
    count = sum(
        abs(metric.score(a) - metric.score(b)) >= least
        for a, b in zip(first, second, strict=True)
    )
    return (count + 1) / (trials + 1)


def _rounding(*scores: float) -> float:
    """Returns how much scores may differ because sums are rounded."""
    return 1e-10 * max(map(abs, scores))


def sentence_differences(
    metric: CorpusMetric, statistics: Sequence[np.ndarray]
) -> list[SentenceDifference]:
    """Returns the sentences with different scores, the largest difference first.

    Args:
        metric: the metric.
        statistics: the statistics of each system, [N, n].
    """
    found = []
    for index, rows in enumerate(zip(*statistics, strict=True)):
        scores = [metric.sentence_score(row) for row in rows]
        largest = max((score - scores[0] for score in scores[1:]), key=abs)
        if largest:
            found.append(SentenceDifference(index, scores, largest))
    return sorted(found, key=lambda it: -abs(it.difference))


class _OnStatistics:
    """What sacreBLEU's tests use of a metric of sacreBLEU.

    In place of texts they get statistics [N, n], computed once for both tests.
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
        """Returns a signature with the metric's settings, to which tests add theirs."""
        from sacrebleu.metrics.base import Signature

        signature = Signature({"num_refs": 1})
        for name, value in self._metric.settings().items():
            signature.update(name, value)
        return signature
