"""The command that tests the differences between systems: `compare`."""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from t2t_keras import registry
from t2t_keras.cli.command import Command, add_checkpoint, columns, positive
from t2t_keras.cli.decoding import (
    FLAGS,
    add_decoding_flags,
    check_decoding,
)
from t2t_keras.cli.evaluation import check_language, scored, suffix_language
from t2t_keras.data.files import open_lines
from t2t_keras.errors import UserError, did_you_mean
from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.evaluation.tokenization import BleuTokens
from t2t_keras.problem import CorpusMetric, Problem, Split

from .scorers import scorer, scorer_names
from .systems import Texts, check_files, needs_model, open_runs, read_texts

if TYPE_CHECKING:
    from t2t_keras.run.directory import RunDirectory

    from .significance import Comparison

_PAGE_SENTENCES = 50
_OF_RUNS = (
    *("data_dir", "split", "eval_sentences", "checkpoint"),
    *(name for name in FLAGS if name != "n_best"),
    "decode_hparams",
)
_OF_FILES = ("references", "sources", "problem")
_NOT_TESTED = (
    "Only scores are shown: these metrics have no statistics of sentences, which a "
    "paired test needs."
)


def _compare_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "systems",
        nargs="+",
        metavar="SYSTEM",
        help="two or more run directories, checkpoints (RUN/model.ckpt-1000), files "
        "with one output per line, or exports, if one of the systems is a run; all are "
        "compared with the first",
    )
    parser.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="a metric of the problem (bleu, chrf) or a registered scorer; may be "
        "given several times (default: all of the problem's)",
    )
    parser.add_argument(
        "--bootstrap_samples",
        type=positive,
        metavar="N",
        default=1000,
        help="samples of the paired bootstrap (default: 1000)",
    )
    parser.add_argument(
        "--randomization_trials",
        type=positive,
        metavar="N",
        default=10_000,
        help="trials of approximate randomization (default: 10000); both tests take "
        "their seed from SACREBLEU_SEED, as sacreBLEU does (default: 12345)",
    )
    parser.add_argument(
        "--page",
        metavar="FILE",
        help=f"write an HTML page with the {_PAGE_SENTENCES} sentences whose scores by "
        "the first metric differ most",
    )
    parser.add_argument(
        "--tokenize",
        choices=get_args(BleuTokens),
        help="sacreBLEU tokenization for BLEU; none: the text is tokenized already "
        "(default: the run's or the problem's, else sacreBLEU's for the language)",
    )
    parser.add_argument(
        "--language",
        metavar="CODE",
        help="language of the references, such as de (default: the problem's; for "
        "files the suffix of --references, as in test.de)",
    )
    files = parser.add_argument_group("if all systems are files")
    files.add_argument("--references", metavar="FILE", help="the correct outputs")
    files.add_argument("--sources", metavar="FILE", help="for the page and for scorers")
    files.add_argument(
        "--problem",
        metavar="NAME",
        help="the problem whose metrics are computed (default: BLEU and chrF)",
    )
    runs = parser.add_argument_group("if there is a run")
    runs.add_argument(
        "--data_dir", help="data directory (default: the one used in training)"
    )
    runs.add_argument(
        "--split",
        choices=get_args(Split),
        help="split (default: test if the data have one, otherwise dev)",
    )
    runs.add_argument(
        "--eval_sentences",
        type=positive,
        metavar="N",
        help="decode only the first N sentences",
    )
    add_checkpoint(runs)
    add_decoding_flags(parser, "n_best", "raw")


def _check_compare(args: argparse.Namespace) -> None:
    if len(args.systems) < 2:
        raise UserError(
            "give two systems or more; `t2t evaluate` computes the scores of one"
        )
    has_runs = any(map(needs_model, args.systems))
    for flag in _OF_FILES if has_runs else _OF_RUNS:
        if getattr(args, flag) is None:
            continue
        if has_runs:
            raise UserError(
                f"--{flag} does not go with a run, whose problem and data are used"
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
    """Returns the problem by whose metrics the systems are compared."""
    language = args.language
    if runs:
        problem = next(iter(runs.values())).problem
    elif args.problem:
        problem = registry.problem(args.problem)
    else:
        problem = Problem(summary="files")
        language = language or suffix_language(args.references)
    return scored(problem, args.tokenize, language)


def _compare(args: argparse.Namespace) -> dict[str, Any]:
    runs = open_runs(args.systems)
    problem = _problem(args, runs)
    metrics = _metrics(problem, args.metric)
    reads_sources = not metrics or any(metric.uses_sources for metric in metrics)
    if not runs and args.sources is None and reads_sources:
        names = ", ".join(metric.name for metric in metrics if metric.uses_sources)
        raise UserError(
            f"{names and f'--metric {names}: '}the metrics may read the sources; give "
            "--sources FILE"
        )
    if args.page and not metrics:
        raise UserError(
            f"--page: the metrics of problem '{problem.name}' have no scores of "
            "sentences, which order the page; leave it out"
        )
    from .significance import compare, seed

    number = seed()
    texts = read_texts(args, runs)
    # An unknown language is guessed by the references, on which tokens then depend.
    own = metrics_of(problem, texts.references).corpus_metrics()
    by_name = {metric.name: metric for metric in own}
    metrics = [by_name.get(metric.name, metric) for metric in metrics]
    sources = texts.sources or [""] * len(texts.references)
    result = {
        "problem": problem.name or None,
        "sentences": len(texts.references),
        "baseline": args.systems[0],
    }
    if not metrics:
        scores = [
            {"system": name}
            | metrics_of(problem).score(sources, outputs, texts.references)
            for name, outputs in texts.systems
        ]
        return {**result, "scores": scores, "note": _NOT_TESTED}
    samples, trials = args.bootstrap_samples, args.randomization_trials
    found = compare(texts.systems, sources, texts.references, metrics, samples, trials)
    if args.page:
        with open_lines(args.page) as file:
            file.write(_page(metrics[0].name, texts, found))
    return {
        **result,
        "bootstrap_samples": samples,
        "randomization_trials": trials,
        "seed": number,
        "page": args.page,
        "metrics": found.metrics,
    }


def _metrics(problem: Problem, names: Sequence[str] | None) -> Sequence[CorpusMetric]:
    """Returns the metrics that `--metric` names, or all of the problem's.

    Raises:
        UserError: there is no such metric.
    """
    own = {metric.name: metric for metric in metrics_of(problem).corpus_metrics()}
    if names is None:
        return tuple(own.values())
    there = [*own, *scorer_names()]
    for name in names:
        if name not in there:
            raise UserError(
                f"--metric: there is no '{name}'{did_you_mean(name, there)} "
                f"(there are: "
                f"{', '.join(there) or 'none'})"
            )
    return tuple(
        own[name] if name in own else scorer(name) for name in dict.fromkeys(names)
    )


def _page(metric: str, texts: Texts, found: "Comparison") -> str:
    """Returns the page of the largest differences."""
    from .difference_page import SentencePair, difference_page

    shown = [
        SentencePair(
            it.sentence + 1,
            texts.sources[it.sentence] if texts.sources else None,
            texts.references[it.sentence],
            [system.outputs[it.sentence] for system in texts.systems],
            it.scores,
            it.difference,
        )
        for it in found.differences[:_PAGE_SENTENCES]
    ]
    total, differing = len(texts.references), len(found.differences)
    part = "all" if len(shown) == differing else f"the first {len(shown)}"
    summary = (
        f"{differing:,} of {total:,} sentences have different {metric}; {part} are "
        "here, the largest difference first."
    )
    tables = {
        f"{name} {result['signature']}": _rows(result["systems"])
        for name, result in found.metrics.items()
    }
    names = _short_names([system.name for system in texts.systems])
    return difference_page(names, tables, summary, shown)


def _rows(systems: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Returns the rows of a metric's table, as texts."""
    digits = 2 if max(abs(row["score"]) for row in systems) > 2 else 4
    names = _short_names([row["system"] for row in systems])
    rows = []
    for name, row in zip(names, systems, strict=True):
        low, high = row["mean"] - row["ci"], row["mean"] + row["ci"]
        is_baseline = "difference" not in row
        rows.append(
            {
                "system": name,
                "score": f"{row['score']:.{digits}f}",
                "95% interval": f"{low:.{digits}f} to {high:.{digits}f}",
                "difference": "" if is_baseline else f"{row['difference']:+.{digits}f}",
                "p, bootstrap": "" if is_baseline else f"{row['p_bootstrap']:.4f}",
                "p, randomization": ""
                if is_baseline
                else f"{row['p_randomization']:.4f}",
            }
        )
    return rows


def _short_names(systems: Sequence[str]) -> list[str]:
    """Returns the paths without their common directories."""
    common = os.path.commonpath([Path(system).absolute().parent for system in systems])
    return [os.path.relpath(system, common) for system in systems]


def _show_compare(result: dict[str, Any]) -> str:
    if "scores" in result:
        return f"{columns(result['scores'])}\n\n{result['note']}"
    head = (
        f"{result['sentences']:,} sentences; {result['bootstrap_samples']:,} samples "
        f"of the bootstrap, {result['randomization_trials']:,} trials of "
        f"randomization, seed {result['seed']}"
    )
    parts = [
        f"{name}  {metric['signature']}"
        f"{'' if metric['higher_is_better'] else '  (lower is better)'}\n"
        f"{columns(_rows(metric['systems']))}"
        for name, metric in result["metrics"].items()
    ]
    return "\n\n".join([head, *parts])


COMMAND = Command(
    "test whether systems differ by more than chance",
    _compare_flags,
    _compare,
    _show_compare,
    uses_tensorflow=lambda args: any(map(needs_model, args.systems)),
    check=_check_compare,
    decodes_files=lambda args: True,
)
