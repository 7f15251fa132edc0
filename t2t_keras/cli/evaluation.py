"""The command that scores outputs against references: `evaluate`."""

import argparse
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from t2t_keras import load
from t2t_keras.cli.command import (
    Command,
    add_checkpoint,
    add_decoding_flags,
    add_engine,
    add_further,
    add_run_dir,
    check_decoding,
    check_export,
    chosen_engine,
    export_command,
    given_decoding,
    not_negative,
    not_negative_number,
    require_only,
)
from t2t_keras.cli.lines import read_lines, require_directory, require_outputs
from t2t_keras.console import columns, table
from t2t_keras.errors import UserError, quantity
from t2t_keras.evaluation.bleu import bleu_scores, metrics_of, with_bleu
from t2t_keras.evaluation.tokenization import BleuTokens, has_tokenization
from t2t_keras.export.formats import converted, find_loader
from t2t_keras.files.text_files import uncompressed_suffix
from t2t_keras.metrics import LOSS_METRICS
from t2t_keras.problem import Problem, Split
from t2t_keras.run.config import require_run

if TYPE_CHECKING:
    from t2t_keras.evaluation.evaluator import LoadedExport
    from t2t_keras.run.directory import RunDirectory

_NO_LANGUAGE = (
    "Tokenised BLEU is left out, because the language of the references is unknown: "
    "give --language CODE, such as de."
)


def _evaluate_flags(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("evaluate a run's model on a split of the data")
    add_run_dir(run, required=False)
    run.add_argument(
        "--data_dir", help="data directory (default: the one used in training)"
    )
    run.add_argument(
        "--split",
        choices=get_args(Split),
        help="split (default: test if there is one, otherwise dev)",
    )
    run.add_argument(
        "--eval_sentences",
        type=not_negative,
        metavar="N",
        help="decode only the first N sentences; 0: none; the loss is computed on the "
        "whole split",
    )
    run.add_argument(
        "--output",
        metavar="PREFIX",
        help="write the texts to PREFIX.source, .reference and .hypothesis",
    )
    add_checkpoint(
        run,
        "; 'all': every checkpoint that is not evaluated yet; the metrics are shown in "
        "OUTPUT_DIR/evaluation-SPLIT, also for TensorBoard",
    )
    run.add_argument(
        "--export_dir",
        metavar="DIR",
        help="evaluate this export of the run instead of a checkpoint; the loss is not "
        "computed",
    )
    _add_file_flags(parser)
    _add_further_flags(parser)
    add_decoding_flags(parser, "n_best", "raw")
    add_engine(parser)


def _add_file_flags(parser: argparse.ArgumentParser) -> None:
    files = parser.add_argument_group("or compare two files, one sentence per line")
    files.add_argument("--hypotheses", metavar="FILE", help="the outputs")
    files.add_argument("--references", metavar="FILE", help="the correct outputs")


def _add_further_flags(parser: argparse.ArgumentParser) -> None:
    further = add_further(parser, "further options")
    further.add_argument(
        "--all",
        action="store_true",
        help="print all scores of BLEU's report, among them the paper's tokenised BLEU",
    )
    further.add_argument(
        "--wait_minutes",
        type=not_negative_number,
        metavar="M",
        help="with --checkpoint all: follow a training, even one that has not begun, "
        "until it reaches its last step or M minutes pass without a new checkpoint",
    )
    further.add_argument(
        "--tokenize",
        choices=get_args(BleuTokens),
        help="sacreBLEU tokenization for an additional score; none: the text is "
        "already tokenized (default: the run's or the problem's, else sacreBLEU's for "
        "the language: 13a, zh, ja-mecab, ko-mecab; char for Thai and the like)",
    )
    further.add_argument(
        "--language",
        metavar="CODE",
        help="language of the references, such as de, on which tokenization depends "
        "(default: the problem's; for files the suffix of --references, as in test.de)",
    )


def _check_evaluate(args: argparse.Namespace) -> None:
    if _mode(args) == "files":
        return
    if find_loader(Path(args.output_dir)):
        raise UserError(
            f"{args.output_dir} is an export; give its run, and the export as "
            "--export_dir"
        )
    if not args.wait_minutes:  # with it, the training may not have begun
        require_run(args.output_dir)
    require_directory("data_dir", args.data_dir)
    suffixes = ("source", "reference", "hypothesis")
    files = [f"{args.output}.{x}" for x in suffixes] if args.output else []
    require_outputs(args, {"output": files})
    options = check_decoding(args)
    if args.export_dir:
        check_export(options, args.export_dir, args.engine)


def _evaluate(args: argparse.Namespace) -> dict[str, Any]:
    mode = _mode(args)
    check_language(args.language)
    if mode == "files":
        hypotheses = list(read_lines(args.hypotheses))
        references = list(read_lines(args.references))
        language = args.language or suffix_language(args.references)
        return {"bleu": bleu_scores(hypotheses, references, language, args.tokenize)}
    from t2t_keras.run.evaluation import await_run, continuous_eval, evaluate

    wait_minutes = args.wait_minutes or 0.0
    run = await_run(args.output_dir, wait_minutes)
    problem = with_scoring(run.problem, args.tokenize, args.language)
    data_dir = args.data_dir or run.config.data_dir
    split = select_split(args.split, run.problem, [data_dir])
    options = {"data_dir": args.data_dir, "sentences": args.eval_sentences}
    options |= given_decoding(args)
    if mode == "split":
        export = args.export_dir and _load_export(args.export_dir, run)
        engine = None
        if not export and args.eval_sentences != 0:
            engine = load_engine(args, run, args.checkpoint)
        return evaluate(
            run,
            split,
            problem,
            checkpoint=args.checkpoint,
            write=args.output,
            export=export,
            engine=engine,
            **options,
        )
    points = continuous_eval(run, split, problem, wait_minutes=wait_minutes, **options)
    best = max(points, key=metrics_of(problem).selection_score)
    decoder = {} if args.eval_sentences == 0 else {"engine": "tensorflow"}
    return {"split": split, **decoder, "checkpoints": points, "best": best}


def load_engine(
    args: argparse.Namespace, run: "RunDirectory", checkpoint: str | None
) -> "LoadedExport | None":
    """Returns the conversion of a checkpoint with which `--engine` decodes.

    One line on standard error says which engine it is.

    Args:
        args: the flags.
        run: the run directory.
        checkpoint: see `t2t_keras.load`.

    Returns:
        None: TensorFlow decodes.
    """
    options = given_decoding(args)
    path, _ = converted(run.path, checkpoint, options, chosen_engine(args))
    return load(path) if path != run.path else None


def _load_export(path: str, run: "RunDirectory") -> tuple[str, Any]:
    """Returns the path of an export, and the loaded export.

    Raises:
        UserError: its problem is not the run's.
    """
    export: Any = load(path)
    if export.settings.problem != run.problem.name:
        raise UserError(
            f"--export_dir: {path} is an export of problem '{export.settings.problem}' "
            f"but {run.path} is a run of '{run.problem.name}'; give the run's export"
        )
    return path, export


def check_language(language: str | None) -> None:
    """Refuses a value of `--language` that has no tokenization.

    Raises:
        UserError: it is not such a code.
    """
    from t2t_keras.evaluation import moses

    if language is not None and not has_tokenization(language):
        moses.check_language(language)


def suffix_language(path: str) -> str | None:
    """Returns the language that a file's suffix names; None if it names none."""
    from t2t_keras.evaluation.moses import LANGUAGES

    code = uncompressed_suffix(path)
    return code if code in LANGUAGES or has_tokenization(code) else None


def _mode(args: argparse.Namespace) -> str:
    """Returns "files", "split", or "all" for all checkpoints of a run.

    Raises:
        UserError: the flags do not go together.
    """
    if bool(args.hypotheses) != bool(args.references):
        raise UserError("--hypotheses and --references need each other")
    if bool(args.hypotheses) == bool(args.output_dir):
        raise UserError("give either a RUN or --hypotheses and --references")
    if args.hypotheses:
        flags = ["--hypotheses", "--references", "--tokenize", "--language"]
        flags += ["--all", "--json"]
        require_only(args, flags, "--hypotheses and --references")
        return "files"
    if args.export_dir and (args.checkpoint or args.eval_sentences == 0):
        flag = "--checkpoint" if args.checkpoint else "--eval_sentences 0"
        raise UserError(f"{flag} does not go with --export_dir")
    is_all = args.checkpoint == "all"
    if is_all and args.engine == "ctranslate2":
        raise UserError("--engine ctranslate2 does not go with --checkpoint all")
    if not is_all and args.wait_minutes is not None:
        raise UserError("--wait_minutes needs --checkpoint all as well")
    for flag in ("output", "language"):
        if is_all and getattr(args, flag) is not None:
            raise UserError(f"--{flag} does not go with --checkpoint all")
    if args.output is not None and args.eval_sentences == 0:
        raise UserError("--output: with --eval_sentences 0 there is nothing to write")
    return "all" if is_all else "split"


def with_scoring(
    problem: Problem, tokenize: BleuTokens | None, language: str | None = None
) -> Problem:
    """Returns the problem with the metrics that the flags ask for.

    Args:
        problem: the problem.
        tokenize: the value of `--tokenize`, for BLEU only.
        language: the value of `--language`, for BLEU only.

    Raises:
        UserError: a flag was given, and the problem is not scored by BLEU.
    """
    if not (tokenize or language):
        return problem
    return with_bleu(
        problem, "--tokenize" if tokenize else "--language", tokenize, language
    )


def select_split(
    split: Split | None, problem: Problem, data_dirs: Iterable[str]
) -> Split:
    """Returns the split to evaluate: test if all data have it, otherwise dev.

    Args:
        split: the value of `--split`, which is returned if it was given.
        problem: the problem.
        data_dirs: the data directories.

    Raises:
        UserError: a data directory has no data of the problem, or not the split.
    """
    from t2t_keras.data.manifest import Manifest

    splits: dict[str, Collection[Split]] = {}
    for path in data_dirs:
        splits[path] = Manifest.open(Path(path), problem.data_name).examples.keys()
    if split is None:
        without = [path for path in splits if "test" not in splits[path]]
        split = "dev" if without else "test"
        reason = f": {without[0]} has no test split" if without else ""
        print(f"evaluating the {split} split{reason}", file=sys.stderr)
    if not all(split in names for names in splits.values()):
        have = [f"{path} has {', '.join(names)}" for path, names in splits.items()]
        raise UserError(f"--split: not all data have {split}: {'; '.join(have)}")
    return split


def _abridge(result: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Leaves out all but the first score and chrF of BLEU's reports."""
    if args.all:
        return result
    abridged = dict(result)
    for name, report in result.items():
        if isinstance(report, dict) and "signatures" in report:
            signatures = report["signatures"]
            main_score = next(iter(signatures))
            names = signatures.keys() & {main_score, "chrf"}
            shown = {name: signatures[name] for name in sorted(names, reverse=True)}
            hidden = len(signatures) - len(shown)
            abridged[name] = report | {"signatures": shown, "hidden": hidden}
    return abridged


def _show_evaluate(result: dict[str, Any]) -> str:
    if "checkpoints" in result:
        engine = result.get("engine")
        decoder = f"decoded with: {engine}\n" if engine else ""
        best = f"best: step {result['best']['step']}"
        return f"{columns(result['checkpoints'])}\n\n{decoder}{best}"
    rows = {}
    reports = []
    for name, value in result.items():
        if isinstance(value, dict):
            reports.append(_show_report(value))
        else:
            rows["decoded with" if name == "engine" else name] = value
    return "\n\n".join(filter(None, [*_show_numbers(rows), *reports]))


def _show_numbers(rows: dict[str, Any]) -> list[str]:
    """Formats metrics; losses have their own table if they cover more sentences."""
    total = rows.pop("loss_sentences", None)
    decoded = rows.get("sentences")
    if decoded == total or total is None:
        return [table(rows)]
    loss_rows = {name: rows.pop(name) for name in LOSS_METRICS}
    sections = [table({"sentences": total} | loss_rows)]
    if decoded:
        del rows["sentences"]
        shown = f"the first {quantity(decoded, 'sentences')}"
        sections.append(table({"decoded": shown} | rows))
    return sections


def _show_report(report: dict[str, Any]) -> str:
    """Formats metrics: scores with their signatures, or summaries in columns."""
    if signatures := report.get("signatures"):
        rows = {
            name: f"{report[name]:5.2f} {signature}"  # 80 columns
            for name, signature in signatures.items()
        }
        if report.get("hidden"):
            return f"{table(rows)}\n\n{report['hidden']} other scores: --all"
        if report.get("language"):
            return table({"language": report["language"], **rows})
        return f"{table(rows)}\n\n{_NO_LANGUAGE}"
    summaries = {
        title: summary for title, summary in report.items() if isinstance(summary, dict)
    }
    if not summaries:
        return table(report)
    summary_rows = []
    for name in next(iter(summaries.values())):
        row: dict[str, object] = {"": name}
        for title, summary in summaries.items():
            row[title] = summary[name]
        summary_rows.append(row)
    return columns(summary_rows)


COMMANDS = {
    "evaluate": Command(
        "score a model on a split, or one file against another",
        _evaluate_flags,
        _evaluate,
        _show_evaluate,
        abridge=_abridge,
        uses_tensorflow=lambda args: not args.hypotheses,
        check=_check_evaluate,
        waiting="loading the model",
        next_command=lambda args: export_command(args) if args.output_dir else "",
        decodes_files=lambda args: True,
        group="judging a model",
        words_hint="to score a file: --hypotheses FILE --references FILE",
    ),
}
