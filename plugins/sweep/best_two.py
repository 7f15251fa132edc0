"""The best two trials of a sweep: do they differ by more than chance on dev?"""

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.errors import UserError, quantity
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.files.json_files import read_json, write_json
from t2t_keras.files.text_files import read_lines
from t2t_keras.metrics import short_number
from t2t_keras.processes import T2T, end_with_parent
from t2t_keras.run.config import RunConfig

from .settings import SweepSettings
from .trial import SweepTrial, run_dir

if TYPE_CHECKING:
    from t2t_keras.evaluation.significance import MetricResult

FILE = "test.json"

_SIGNIFICANT = 0.05


@dataclasses.dataclass(frozen=True)
class DevTest:
    """Paired tests of two trials on dev.

    Attributes:
        trials: the numbers of the best trial and of the second one.
        sentences: number of sentences of dev.
        metrics: the results of each metric by its name. The second trial is the
            baseline, so it comes first.
    """

    trials: Sequence[int]
    sentences: int
    metrics: "Mapping[str, MetricResult]"

    def to_json(self) -> dict[str, object]:
        """Returns what `t2t sweep --json` prints."""
        return dataclasses.asdict(self)

    def verdict(self, metric: str, candidates: int) -> str:
        """Returns what the test by a metric, or else by the first one, tells.

        Args:
            metric: the metric by which the trials were compared.
            candidates: the number of trials from which the two were chosen.
        """
        from t2t_keras.evaluation.significance import incomparable

        name = metric if metric in self.metrics else next(iter(self.metrics))
        result = self.metrics[name]
        baseline, system = result["systems"]
        p = system["p_bootstrap"]
        better, worse = self.trials
        scores = [system["score"], baseline["score"]]
        if (scores[0] < scores[1]) == result["higher_is_better"]:
            better = self.trials[1]
            worse = self.trials[0]
            scores.reverse()
        is_better = f"trial {better} is better than trial {worse} by more than chance"
        if p >= _SIGNIFICANT:
            is_better = f"trials {better} and {worse} differ by no more than chance"
        shown = f"{name} {' and '.join(map(short_number, scores))}"
        on_dev = f"On the {self.sentences:,} sentences of dev,"
        if reason := incomparable(name, scores):
            return (
                f"{on_dev} trials {better} and {worse} {reason}. Give the trials more "
                "steps."
            )
        return (
            f"{on_dev} {is_better}: {shown}, p = {p:.3f} by the paired bootstrap. The "
            f"two were chosen from {candidates} trials on the same sentences, which p "
            "does not take into account: compare them on a test set."
        )


def best_complete(
    trials: Sequence[SweepTrial], settings: SweepSettings
) -> list[SweepTrial]:
    """Returns the trials that were trained to the end, the best first."""
    scores = {}
    for trial in trials:
        if trial.state == "complete" and trial.score is not None:
            scores[trial.index] = trial.score
    ordered = []
    while (index := settings.best(scores)) is not None:
        del scores[index]
        ordered.append(trials[index])
    return ordered


def verdict(
    test: DevTest | None, settings: SweepSettings, trials: Sequence[SweepTrial]
) -> str:
    """Returns what a test tells, and how the scores of the trials differ from its own.

    Args:
        test: the test; None: there is none, and nothing is said.
        settings: the settings of the sweep.
        trials: all trials.
    """
    if test is None:
        return ""
    candidates = sum(trial.score is not None for trial in trials)
    text = test.verdict(settings.metric, candidates)
    decoded = settings.train_options.eval_sentences
    if settings.metric != "loss" and decoded < test.sentences:
        num_decoded = quantity(decoded, "sentences")
        text += f" The scores of the trials are of the first {num_decoded}."
    return text


def best_first(
    trials: Sequence[SweepTrial], best: Sequence[SweepTrial]
) -> list[SweepTrial]:
    """Returns all trials: the best ones, and then the others in their order."""
    return [*best, *(trial for trial in trials if trial not in best)]


def indices_of_pair(best: Sequence[SweepTrial]) -> list[int]:
    """Returns the indices of the best two trials."""
    return [trial.index for trial in best[:2]]


def read_test(directory: Path) -> DevTest | None:
    """Returns the last test of a sweep, if there is one."""
    fields = read_json(directory / FILE)
    return DevTest(**fields) if fields else None


def test_on_dev(directory: Path, best: Sequence[SweepTrial]) -> DevTest | None:
    """Tests the best two trials, unless they have been tested.

    Args:
        directory: the directory of the sweep.
        best: its trials, the best first.

    Returns:
        The test; None if there is one trial only, or the problem has no metric whose
        differences can be tested.

    Raises:
        UserError: a trial cannot be evaluated.
    """
    from t2t_keras.evaluation.significance import System, compare

    pair = indices_of_pair(best)
    if len(pair) < 2:
        return None
    test = read_test(directory)
    if test and test.trials == pair:
        return test
    runs = [run_dir(directory, index) for index in pair]
    problem = RunConfig.read(runs[0]).registered_problem()
    if not metrics_of(problem).corpus_metrics():
        return None
    _decode_dev(runs)
    sources = _lines(runs[0], "source")
    references = _lines(runs[0], "reference")
    systems = []
    for run in reversed(runs):  # the baseline first
        systems.append(System(run.name, _lines(run, "hypothesis")))
    metrics = metrics_of(problem, references).corpus_metrics()
    comparison = compare(systems, sources, references, metrics)
    test = DevTest(pair, len(references), comparison.metrics)
    write_json(directory / FILE, test.to_json())
    return test


def _decode_dev(runs: Sequence[Path]) -> None:
    """Writes the outputs of the best checkpoints for dev into the run directories."""
    with contextlib.ExitStack() as stack:
        processes = []
        for run in runs:
            processes.append(stack.enter_context(_decoding(run)))
        for run, process in zip(runs, processes, strict=True):
            _, errors = process.communicate()
            if process.returncode:
                *_, message = ["", *filter(None, errors.splitlines())]
                raise UserError(f"{run} cannot be evaluated on dev: {message}")


@contextlib.contextmanager
def _decoding(run: Path) -> Iterator["subprocess.Popen[str]"]:
    """Starts the process that translates dev; it ends with the block."""
    command = [sys.executable, *T2T, "evaluate", str(run)]
    command += ["--split", "dev", "--checkpoint", "best", "--engine", "tensorflow"]
    command += ["--output", str(run / "dev"), "--json"]
    parent = os.getpid()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: end_with_parent(parent),
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _lines(run: Path, suffix: str) -> list[str]:
    return list(read_lines(str(run / f"dev.{suffix}")))
