"""`t2t compare`: do systems differ by more than chance?"""

import argparse
import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from t2t_keras import registry
from t2t_keras.cli.command import (
    FLAGS,
    Command,
    add_checkpoint,
    add_decoding_flags,
    add_engine,
    add_further,
    check_decoding,
    positive,
)
from t2t_keras.cli.evaluation import check_language, suffix_language, with_scoring
from t2t_keras.console import columns, folded, say_page, wrapped
from t2t_keras.definitions import Registry
from t2t_keras.errors import UserError, did_you_mean, quantity
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.evaluation.tokenization import BleuTokens
from t2t_keras.files.atomic import open_lines
from t2t_keras.metrics import CorpusMetric
from t2t_keras.pages import templates
from t2t_keras.problem import Problem, Split
from t2t_keras.run.config import is_run

from .systems import Texts, check_files, needs_model, open_runs, read_texts
from .text_differences import mark_differences

if TYPE_CHECKING:
    import numpy as np

    from t2t_keras.run.directory import RunDirectory

    from .significance import Comparison, SentenceDifference, SystemResult


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


def scorer(name: str) -> Scorer:
    """Returns the scorer with this name.

    Raises:
        UserError: no scorer has it; the message suggests the nearest name.
    """
    return dataclasses.replace(_scorers.get(name), name=name)


def scorer_names() -> list[str]:
    """Returns the names of all scorers."""
    return list(_scorers.definitions())


_PAGE_SENTENCES = 50
_RUN_FLAGS = (
    *("data_dir", "split", "eval_sentences", "checkpoint", "engine"),
    *(name for name in FLAGS if name != "n_best"),
    "decode_hparams",
)
_FILE_FLAGS = ("references", "input", "problem")
_NOT_TESTED = (
    "Only scores are shown: a paired test needs statistics of each sentence, which "
    "these metrics do not have."
)


def _compare_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "systems",
        nargs="+",
        metavar="SYSTEM",
        help="two or more run directories, checkpoints (RUN/model.ckpt-1000), files "
        "of outputs, or exports beside a run; each is compared with the first",
    )
    _add_metric_flags(parser)
    parser.add_argument(
        "--page",
        metavar="FILE",
        help=f"write an HTML page with the {_PAGE_SENTENCES} sentences whose scores by "
        "the first metric differ most",
    )
    _add_file_flags(parser.add_argument_group("if all systems are files"))
    _add_run_flags(parser.add_argument_group("if a system is a run"))
    _add_further_flags(parser)
    add_decoding_flags(parser, "n_best", "raw")


def _add_metric_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="a metric of the problem (bleu, chrf) or a registered scorer; may be "
        "repeated (default: the problem's)",
    )


def _add_further_flags(parser: argparse.ArgumentParser) -> None:
    further = add_further(parser, "further options")
    further.add_argument(
        "--tokenize",
        choices=get_args(BleuTokens),
        help="sacreBLEU tokenization for BLEU; none: the text is tokenized already "
        "(default: that of the run or problem, otherwise sacreBLEU's for the language)",
    )
    further.add_argument(
        "--language",
        metavar="CODE",
        help="language of the references, such as de (default: the problem's; for "
        "files the suffix of --references, as in test.de)",
    )
    further.add_argument(
        "--bootstrap_samples",
        type=positive,
        metavar="N",
        default=1000,
        help="samples of the paired bootstrap (default: 1000)",
    )
    further.add_argument(
        "--randomization_trials",
        type=positive,
        metavar="N",
        default=10_000,
        help="trials of approximate randomization (default: 10000); like sacreBLEU, "
        "both tests take their seed from SACREBLEU_SEED (default: 12345)",
    )


def _add_file_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--references", metavar="FILE", help="the correct outputs")
    group.add_argument(
        "--input", metavar="FILE", help="the sources, for the page and for scorers"
    )
    group.add_argument(
        "--problem",
        metavar="NAME",
        help="the problem whose metrics are computed (default: BLEU and chrF)",
    )


def _add_run_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--data_dir", help="data directory (default: the one used in training)"
    )
    group.add_argument(
        "--split",
        choices=get_args(Split),
        help="split (default: test if there is one, otherwise dev)",
    )
    group.add_argument(
        "--eval_sentences",
        type=positive,
        metavar="N",
        help="decode only the first N sentences",
    )
    add_checkpoint(group)
    add_engine(group)


def _check_compare(args: argparse.Namespace) -> None:
    if len(args.systems) < 2:
        raise UserError(
            "give two or more systems; `t2t evaluate` computes the scores of one"
        )
    has_runs = any(map(needs_model, args.systems))
    for flag in _FILE_FLAGS if has_runs else _RUN_FLAGS:
        if getattr(args, flag) is None:
            continue
        if has_runs:
            raise UserError(
                f"--{flag} does not go with a run, which has its own problem and data"
            )
        raise UserError(f"--{flag} needs a run, and all systems are files")
    if not has_runs and args.references is None:
        raise UserError(
            "give --references FILE, the correct outputs: all systems are files"
        )
    check_language(args.language)
    check_files(args)
    check_decoding(args)


def _problem(args: argparse.Namespace, runs: "Mapping[str, RunDirectory]") -> Problem:
    """Returns the problem whose metrics compare the systems."""
    language = args.language
    if runs:
        problem = next(iter(runs.values())).problem
    elif args.problem:
        problem = registry.problem(args.problem)
    else:
        problem = Problem(summary="files")
        language = language or suffix_language(args.references)
    return with_scoring(problem, args.tokenize, language)


def _compare(args: argparse.Namespace) -> dict[str, Any]:
    from .significance import compare_systems, seed

    runs = open_runs(args.systems)
    problem = _problem(args, runs)
    metrics = _metrics(problem, args.metric)
    _check_metrics(args, problem, metrics, bool(runs))
    # A seed that cannot be used is refused before anything is decoded.
    seed()
    texts = read_texts(args, runs)
    result = {
        "problem": problem.name or None,
        "sentences": len(texts.references),
        "baseline": args.systems[0],
    }
    sources = texts.sources or [""] * len(texts.references)
    if not metrics:
        scores = []
        has_engines = any(system.engine for system in texts.systems)
        for system in texts.systems:
            metric = metrics_of(problem)
            score = metric.score(sources, system.outputs, texts.references)
            engine = {"engine": system.engine} if has_engines else {}
            scores.append({"system": system.name} | engine | score)
        return {**result, "scores": scores, "note": _NOT_TESTED}
    metrics = _resolve_language(problem, metrics, texts.references)
    comparison = compare_systems(
        texts.systems,
        sources,
        texts.references,
        metrics,
        args.bootstrap_samples,
        args.randomization_trials,
    )
    result |= {
        "bootstrap_samples": args.bootstrap_samples,
        "randomization_trials": args.randomization_trials,
        "seed": seed(),
        "page": args.page,
    }
    if args.page:
        with open_lines(args.page) as file:
            file.write(difference_page(texts, comparison, _tests(result)))
        say_page(args.page)
    return {**result, "metrics": comparison.metrics}


def _metrics(problem: Problem, names: Sequence[str] | None) -> Sequence[CorpusMetric]:
    """Returns the metrics that `--metric` names, by default all of the problem's.

    Raises:
        UserError: there is no metric with one of the names.
    """
    problem_metrics = {
        metric.name: metric for metric in metrics_of(problem).corpus_metrics()
    }
    if names is None:
        return tuple(problem_metrics.values())
    known_names = [*problem_metrics, *scorer_names()]
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
            metrics.append(scorer(name))
    return tuple(metrics)


def _check_metrics(
    args: argparse.Namespace,
    problem: Problem,
    metrics: Sequence[CorpusMetric],
    has_runs: bool,
) -> None:
    """Raises UserError if the metrics need sources, or cannot order the page."""
    if not has_runs and args.input is None:
        names = [metric.name for metric in metrics if metric.uses_sources]
        if names or not metrics:
            prefix = f"--metric {', '.join(names)}: " if names else ""
            raise UserError(
                f"{prefix}the metrics may read the sources; give --input FILE"
            )
    if args.page and not metrics:
        raise UserError(
            f"--page: the metrics of problem '{problem.name}' have no scores of "
            "sentences to order the page by; leave it out"
        )


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


def difference_page(texts: Texts, comparison: "Comparison", tests: str) -> str:
    """Returns the HTML page of the sentences on which systems differ most.

    Args:
        texts: the outputs.
        comparison: the scores.
        tests: what the columns of p-values are.
    """
    names = _short_names([system.name for system in texts.systems])
    shown = comparison.differences[:_PAGE_SENTENCES]
    differing = len(comparison.differences)
    count = "all" if len(shown) == differing else f"the first {len(shown)}"
    remarks = [f"{tests}."]
    tables = {}
    for name, result in comparison.metrics.items():
        remarks.extend(_incomparable(name, result["systems"]))
        tables[f"{name} {result['signature']}"] = _rows(name, result["systems"])
    return (
        templates(Path(__file__).parent)
        .get_template("compare.html")
        .render(
            title=f"{', '.join(names[1:])} against {names[0]}",
            baseline=names[0],
            tables=tables,
            remarks=" ".join(remarks),
            metric=next(iter(comparison.metrics)),
            differing=differing,
            total=len(texts.references),
            count=count,
            sentences=[(x, _sentence_texts(names, texts, x)) for x in shown],
        )
    )


def _sentence_texts(
    names: Sequence[str], texts: Texts, difference: "SentenceDifference"
) -> list[tuple[str, str]]:
    """Returns the source, the reference and the marked outputs of a sentence."""
    index = difference.sentence
    rows = [("source", texts.sources[index])] if texts.sources else []
    rows.append(("reference", texts.references[index]))
    baseline, *others = [system.outputs[index] for system in texts.systems]
    outputs = [baseline, *(mark_differences(baseline, other) for other in others)]
    for name, output, score in zip(names, outputs, difference.scores, strict=True):
        rows.append((f"{name}: {score:.4g}", output))
    return rows


def _rows(metric: str, results: "Sequence[SystemResult]") -> list[dict[str, str]]:
    """Formats the rows of a metric's table, without tests of what is incomparable."""
    from .significance import incomparable

    baseline = results[0]["score"]
    is_tested = []
    for result in results:
        is_tested.append(not incomparable(metric, [baseline, result["score"]]))
    is_tested[0] = any(is_tested[1:])
    digits = 2 if max(abs(result["score"]) for result in results) > 2 else 4
    has_engines = any("engine" in result for result in results)
    names = _short_names([result["system"] for result in results])
    rows = []
    for name, result, has_tests in zip(names, results, is_tested, strict=True):
        row = {"system": name}
        if has_engines:
            row["engine"] = result.get("engine", "")
        row["score"] = f"{result['score']:.{digits}f}"
        rows.append(row)
        if not any(is_tested):
            continue
        low = result["mean"] - result["ci"]
        high = result["mean"] + result["ci"]
        interval = f"{low:.{digits}f} to {high:.{digits}f}"
        row["95% interval"] = interval if has_tests else ""
        row |= dict.fromkeys(("difference", "p (bs)", "p (ar)"), "")
        if has_tests and "difference" in result:
            row["difference"] = f"{result['difference']:+.{digits}f}"
            row["p (bs)"] = f"{result['p_bootstrap']:.4f}"
            row["p (ar)"] = f"{result['p_randomization']:.4f}"
    return rows


def _incomparable(metric: str, results: "Sequence[SystemResult]") -> list[str]:
    """Returns a sentence for each system that cannot be compared with the first."""
    from .significance import incomparable

    names = _short_names([result["system"] for result in results])
    sentences = []
    for name, result in zip(names[1:], results[1:], strict=True):
        if reason := incomparable(metric, [results[0]["score"], result["score"]]):
            sentences.append(f"{names[0]} and {name} {reason}.")
    return sentences


def _short_names(systems: Sequence[str]) -> list[str]:
    """Returns the paths without their common directories."""
    common = os.path.commonpath([Path(system).absolute().parent for system in systems])
    return [os.path.relpath(system, common) for system in systems]


def _show_compare(result: dict[str, Any]) -> str:
    if "scores" in result:
        return f"{columns(result['scores'])}\n\n{result['note']}"
    parts = [wrapped(_tests(result), indent=2)]
    for name, metric in result["metrics"].items():
        direction = "" if metric["higher_is_better"] else "  (lower is better)"
        fields = f"{name}  {metric['signature']}{direction}".split("|")
        heading = folded(fields, "|", line_end="|", indent=2, file=sys.stdout)
        lines = [heading, columns(_rows(name, metric["systems"]))]
        for sentence in _incomparable(name, metric["systems"]):
            lines.append(wrapped(sentence, indent=2))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _tests(result: Mapping[str, Any]) -> str:
    """Returns the sentence that says what the columns of p-values are."""
    return (
        f"{quantity(result['sentences'], 'sentences')}; p (bs): paired bootstrap with "
        f"{quantity(result['bootstrap_samples'], 'samples')}, p (ar): approximate "
        f"randomization with {quantity(result['randomization_trials'], 'trials')}, "
        f"both with seed {result['seed']}"
    )


def _next_command(args: argparse.Namespace) -> str:
    if not args.page and args.metric is None:
        return f"{shlex.join(['t2t', *args.argv])} --page FILE"
    runs = [system for system in args.systems if is_run(Path(system))]
    return f"t2t export {runs[0] if len(runs) == 1 else 'RUN'} DIR" if runs else ""


COMMAND = Command(
    "test whether systems differ by more than chance",
    _compare_flags,
    _compare,
    _show_compare,
    uses_tensorflow=lambda args: any(map(needs_model, args.systems)),
    check=_check_compare,
    waiting="comparing the systems",
    next_command=_next_command,
    decodes_files=lambda args: True,
    group="judging a model",
)
