"""`t2t compare`: do systems differ by more than chance?"""

import dataclasses
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from t2t_keras import registry
from t2t_keras.cli.command import (
    FURTHER,
    REQUIRED,
    CheckpointFlags,
    Command,
    CommandResult,
    EngineName,
    FlagGroup,
    check_decoding,
    decoding_flags,
    engine_flag,
)
from t2t_keras.cli.evaluation import check_language, suffix_language, with_scoring
from t2t_keras.console import columns, folded, say_page, wrapped
from t2t_keras.definitions import Registry
from t2t_keras.errors import UserError, did_you_mean, quantity
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.evaluation.tokenization import BleuTokens
from t2t_keras.files.atomic import open_lines
from t2t_keras.metrics import CorpusMetric
from t2t_keras.options import OptionValues, option
from t2t_keras.problem import Problem, Split
from t2t_keras.run.config import is_run

from .compare_page import (
    PAGE_SENTENCES,
    difference_page,
    incomparable_sentences,
    score_rows,
)
from .systems import Texts, check_files, needs_model, open_runs, read_texts

if TYPE_CHECKING:
    import numpy as np

    from t2t_keras.run.directory import RunDirectory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scorer(CorpusMetric):
    """An external metric that scores each sentence; a corpus gets the mean.

    Attributes:
        name: the registered name.
        score_sentences: a function of sources, outputs and references that returns one
            number for each sentence.
        higher_is_better: whether a better sentence has a higher score.
        uses_sources: whether the function reads the sources.
        model: name and version of the scoring model, for the signature.
    """

    score_sentences: Callable[
        [Sequence[str], Sequence[str], Sequence[str]], Sequence[float]
    ]
    name: str = ""
    higher_is_better: bool = True
    uses_sources: bool = True
    model: str = ""

    def statistics(
        self, sources: Sequence[str], outputs: Sequence[str], references: Sequence[str]
    ) -> "np.ndarray":
        """Returns [N, 2]: the score of each sentence, and 1 to count it.

        Raises:
            UserError: the function did not return one finite number for each sentence.
        """
        import numpy as np

        returned = self.score_sentences(sources, outputs, references)
        scores = np.asarray(returned, np.float64)
        if scores.shape != (len(outputs),) or not np.isfinite(scores).all():
            raise UserError(
                f"scorer '{self.name}': score_sentences must return one finite number "
                f"for each of the {len(outputs)} sentences, but returned "
                f"{returned!r:.80}"
            )
        return np.stack([scores, np.ones_like(scores)], axis=1)

    def score(self, statistics: "np.ndarray") -> float:
        """Returns the mean score of the sentences."""
        total, count = map(float, statistics)
        return total / count

    def settings(self) -> dict[str, str]:
        """Returns the scoring model."""
        return {"model": self.model} if self.model else {}


_scorers: Registry[Scorer] = Registry("scorers")


def register_scorer(definition: Callable[[], Scorer]) -> Callable[[], Scorer]:
    """Decorator that registers a function returning a `Scorer` under its own name.

    The function is only called when the scorer is used, so it may load a model.

    Raises:
        UserError: the name is taken.
    """
    _scorers.register(definition, Scorer)
    return definition


_RUN_FLAGS = (
    *("data_dir", "split", "eval_sentences", "checkpoint", "engine"),
    *("beam_size", "alpha", "decode_hparams"),
)
_FILE_FLAGS = ("references", "input", "problem")
_OF_FILES = FlagGroup("if all systems are files")
_OF_RUNS = FlagGroup("if a system is a run")
_NOT_TESTED = (
    "Only scores are shown: a paired test needs statistics of each sentence, which "
    "these metrics do not have."
)


@dataclasses.dataclass(kw_only=True)
class Compare(CheckpointFlags, Command):
    """Tests whether systems differ by more than chance."""

    summary = "test whether systems differ by more than chance"
    heading = "judging a model"
    waiting = "comparing the systems"
    flag_hints: ClassVar[Mapping[str, str]] = {
        "seed": "set the environment variable SACREBLEU_SEED, as for sacreBLEU"
    }

    systems: tuple[str, ...] = option(
        REQUIRED,
        "two or more run directories, checkpoints (RUN/model.ckpt-1000), files of "
        "outputs, or exports beside a run; each is compared with the first",
        metavar="SYSTEM",
        positional=True,
    )
    metric: tuple[str, ...] = option(
        (),
        "metrics of the problem (bleu, chrf) or registered scorers (default: the "
        "problem's)",
        metavar="NAME ...",
    )
    page: str | None = option(
        None,
        f"write an HTML page with the {PAGE_SENTENCES} sentences whose scores by the "
        "first metric differ most",
        metavar="FILE",
    )
    references: str | None = option(
        None, "the correct outputs", metavar="FILE", group=_OF_FILES
    )
    input: str | None = option(
        None,
        "the sources, for the page and for scorers",
        metavar="FILE",
        group=_OF_FILES,
    )
    problem: str | None = option(
        None,
        "the problem whose metrics are computed (default: BLEU and chrF)",
        metavar="NAME",
        group=_OF_FILES,
    )
    data_dir: str | None = option(
        None,
        "data directory (default: the one used in training)",
        metavar="DIR",
        group=_OF_RUNS,
    )
    split: Split | None = option(
        None, "split (default: test if there is one, otherwise dev)", group=_OF_RUNS
    )
    eval_sentences: int | None = option(
        None, "decode only the first N sentences", ge=1, group=_OF_RUNS
    )
    engine: EngineName = engine_flag(FURTHER)
    tokenize: BleuTokens | None = option(
        None,
        "sacreBLEU tokenization for BLEU; none: the text is tokenized already "
        "(default: the run's or problem's, otherwise sacreBLEU's for the language)",
        group=FURTHER,
    )
    language: str | None = option(
        None,
        "language of the references, such as de (default: the problem's; for files the "
        "suffix of --references, as in test.de)",
        metavar="CODE",
        group=FURTHER,
    )
    bootstrap_samples: int = option(
        1000, "samples of the paired bootstrap", ge=1, group=FURTHER
    )
    randomization_trials: int = option(
        10_000,
        "trials of approximate randomization (default: 10000); like sacreBLEU, both "
        "tests take their seed from SACREBLEU_SEED (default: 12345)",
        ge=1,
        group=FURTHER,
    )
    decoding: OptionValues = decoding_flags("n_best", "raw")

    def needs_tensorflow(self) -> bool:
        """Returns whether a system is a model."""
        return any(map(needs_model, self.systems))

    def decodes_files(self) -> bool:
        """Decodes a whole split."""
        return True

    def check(self) -> None:
        """Refuses systems and flags that do not go together."""
        if len(self.systems) < 2:
            raise UserError(
                "give two or more systems; `t2t evaluate` computes the scores of one"
            )
        has_runs = self.needs_tensorflow()
        for flag in _FILE_FLAGS if has_runs else _RUN_FLAGS:
            if flag not in self.given_flags:
                continue
            if has_runs:
                raise UserError(
                    f"--{flag} does not go with a run, which has its own problem and "
                    "data"
                )
            raise UserError(f"--{flag} needs a run, and all systems are files")
        if not has_runs and self.references is None:
            raise UserError(
                "give --references FILE, the correct outputs: all systems are files"
            )
        check_language(self.language)
        check_files(self)
        check_decoding(self.decoding)

    def run(self) -> CommandResult:
        """Returns the scores and p-values; writes the page."""
        from .significance import compare_systems, seed

        runs = open_runs(self.systems)
        problem = self._scored_problem(runs)
        metrics = _metrics(problem, self.metric)
        self._check_metrics(problem, metrics, bool(runs))
        # A seed that cannot be used is refused before anything is decoded.
        seed()
        texts = read_texts(self, runs)
        result = {
            "problem": problem.name or None,
            "sentences": len(texts.references),
            "baseline": self.systems[0],
        }
        if not metrics:
            return {**result, "scores": _scores(problem, texts), "note": _NOT_TESTED}
        metrics = _resolve_language(problem, metrics, texts.references)
        comparison = compare_systems(
            texts.systems,
            texts.sources or [""] * len(texts.references),
            texts.references,
            metrics,
            self.bootstrap_samples,
            self.randomization_trials,
        )
        result |= {
            "bootstrap_samples": self.bootstrap_samples,
            "randomization_trials": self.randomization_trials,
            "seed": seed(),
            "page": self.page,
        }
        if self.page:
            with open_lines(self.page) as file:
                file.write(difference_page(texts, comparison, _tests(result)))
            say_page(self.page)
        return {**result, "metrics": comparison.metrics}

    def _scored_problem(self, runs: "Mapping[str, RunDirectory]") -> Problem:
        """Returns the problem whose metrics compare the systems."""
        language = self.language
        if runs:
            problem = next(iter(runs.values())).problem
        elif self.problem:
            problem = registry.problem(self.problem)
        else:
            problem = Problem(summary="files")
            language = language or suffix_language(self.references or "")
        return with_scoring(problem, self.tokenize, language)

    def _check_metrics(
        self, problem: Problem, metrics: Sequence[CorpusMetric], has_runs: bool
    ) -> None:
        """Raises UserError if the metrics need sources, or cannot order the page."""
        if not has_runs and self.input is None:
            names = [metric.name for metric in metrics if metric.uses_sources]
            if names or not metrics:
                prefix = f"--metric {', '.join(names)}: " if names else ""
                raise UserError(
                    f"{prefix}the metrics may read the sources; give --input FILE"
                )
        if self.page and not metrics:
            raise UserError(
                f"--page: the metrics of problem '{problem.name}' have no scores of "
                "sentences to order the page by; leave it out"
            )

    def show(self, result: CommandResult) -> str:
        """Formats a table for each metric."""
        if "scores" in result:
            return f"{columns(result['scores'])}\n\n{result['note']}"
        parts = [wrapped(_tests(result), indent=2)]
        for name, metric in result["metrics"].items():
            direction = "" if metric["higher_is_better"] else "  (lower is better)"
            fields = f"{name}  {metric['signature']}{direction}".split("|")
            heading = folded(fields, "|", line_end="|", indent=2, file=sys.stdout)
            lines = [heading, columns(score_rows(name, metric["systems"]))]
            for sentence in incomparable_sentences(name, metric["systems"]):
                lines.append(wrapped(sentence, indent=2))
            parts.append("\n".join(lines))
        return "\n\n".join(parts)

    def next_command(self) -> str:
        """Returns the command that writes the page, or exports the only run."""
        if not self.page and not self.metric:
            return f"{shlex.join(['t2t', *self.words])} --page FILE"
        runs = [system for system in self.systems if is_run(Path(system))]
        return f"t2t export {runs[0] if len(runs) == 1 else 'RUN'} DIR" if runs else ""


def _scores(problem: Problem, texts: Texts) -> list[dict[str, Any]]:
    """Returns the scores of each system, by metrics that have no tests."""
    metric = metrics_of(problem)
    sources = texts.sources or [""] * len(texts.references)
    has_engines = any(system.engine for system in texts.systems)
    scores = []
    for system in texts.systems:
        engine = {"engine": system.engine} if has_engines else {}
        score = metric.score(sources, system.outputs, texts.references)
        scores.append({"system": system.name} | engine | score)
    return scores


def _metrics(problem: Problem, names: Sequence[str]) -> Sequence[CorpusMetric]:
    """Returns the metrics that `--metric` names, by default all of the problem's.

    Raises:
        UserError: there is no metric with one of the names.
    """
    problem_metrics = {
        metric.name: metric for metric in metrics_of(problem).corpus_metrics()
    }
    if not names:
        return tuple(problem_metrics.values())
    known_names = [*problem_metrics, *_scorers.definitions()]
    metrics = []
    for name in dict.fromkeys(names):
        if name not in known_names:
            raise UserError(
                f"--metric: there is no '{name}'{did_you_mean(name, known_names)} "
                f"(there are: {', '.join(known_names) or 'none'})"
            )
        if name in problem_metrics:
            metrics.append(problem_metrics[name])
        else:
            metrics.append(dataclasses.replace(_scorers.get(name), name=name))
    return tuple(metrics)


def _resolve_language(
    problem: Problem, metrics: Sequence[CorpusMetric], references: Sequence[str]
) -> list[CorpusMetric]:
    """Returns the metrics with the language that the references show.

    The tokens of BLEU depend on the language, which is guessed if it is not known.
    """
    resolved = {}
    for metric in metrics_of(problem, references).corpus_metrics():
        resolved[metric.name] = metric
    return [resolved.get(metric.name, metric) for metric in metrics]


def _tests(result: Mapping[str, Any]) -> str:
    """Returns the sentence that says what the columns of p-values are."""
    return (
        f"{quantity(result['sentences'], 'sentences')}; p (bs): paired bootstrap with "
        f"{quantity(result['bootstrap_samples'], 'samples')}, p (ar): approximate "
        f"randomization with {quantity(result['randomization_trials'], 'trials')}, "
        f"both with seed {result['seed']}"
    )


COMMAND = Compare
