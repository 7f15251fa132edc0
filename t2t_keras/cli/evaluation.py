"""The verbs that compare outputs with references: `evaluate`, `f1`."""

import argparse
from typing import Any, get_args

from t2t_keras.cli.decoding import add_decoding_flags, decoding_options
from t2t_keras.cli.lines import read_lines, write_lines
from t2t_keras.cli.verb import (
    Verb,
    add_checkpoint,
    add_usr_dir,
    columns,
    not_negative,
    table,
)
from t2t_keras.errors import UserError
from t2t_keras.problem import BleuTokens, Problem, Split


def _evaluate_flags(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("a split of the data, decoded by a run's model")
    run.add_argument("--output_dir", help="a run directory")
    run.add_argument("--data_dir", help="default: that of the training")
    run.add_argument("--split", choices=get_args(Split), default="test")
    run.add_argument(
        "--sentences",
        type=not_negative,
        metavar="N",
        help="decode the first N only; 0: none; the loss is of the whole split",
    )
    run.add_argument(
        "--write",
        metavar="PREFIX",
        help="writes the texts as PREFIX.source, .reference and .hypothesis",
    )
    add_checkpoint(run)
    run.add_argument(
        "--all_checkpoints",
        action="store_true",
        help="evaluate every checkpoint that is not evaluated yet; the curve is kept "
        "in OUTPUT_DIR/evaluation-SPLIT, for TensorBoard, too",
    )
    run.add_argument(
        "--wait_minutes",
        type=float,
        metavar="M",
        help="of --all_checkpoints: follow the training until it has reached its last "
        "step, or M minutes have passed without a new checkpoint; it may not even have "
        "begun",
    )
    add_usr_dir(run)
    add_decoding_flags(parser)
    files = parser.add_argument_group("or two files of text, one sentence a line")
    files.add_argument("--hypotheses", metavar="FILE")
    files.add_argument("--references", metavar="FILE")
    scoring = parser.add_argument_group("scoring of text")
    scoring.add_argument(
        "--tokenize",
        choices=get_args(BleuTokens),
        help="one more of sacreBLEU's tokenisations to score with; none: the text is "
        "tokenised already (default: the problem's, 13a for files)",
    )
    scoring.add_argument(
        "--language",
        metavar="CODE",
        help="of the references; for tokenized_compound_split (default: the "
        "problem's, de for files)",
    )


def _evaluate(args: argparse.Namespace) -> dict[str, Any]:
    _check(args)
    if args.hypotheses:
        from t2t_keras.evaluation.bleu import bleu_scores

        texts = (list(read_lines(path)) for path in (args.hypotheses, args.references))
        scoring = args.language or "de", args.tokenize or "13a"
        return {"bleu": bleu_scores(*texts, *scoring)}
    if args.all_checkpoints:
        return _evaluate_all(args)
    return _evaluate_split(args)


def _check(args: argparse.Namespace) -> None:
    """Refuses flags that do not go together."""
    if bool(args.hypotheses) != bool(args.references):
        raise UserError("--hypotheses and --references need each other")
    if bool(args.hypotheses) == bool(args.output_dir):
        raise UserError("give either --output_dir or --hypotheses and --references")
    if args.hypotheses and args.all_checkpoints:
        raise UserError("--all_checkpoints needs --output_dir")
    if args.wait_minutes is not None and not args.all_checkpoints:
        raise UserError("--wait_minutes needs --all_checkpoints beside it")
    if args.write is not None and args.sentences == 0:
        raise UserError("--write: with --sentences 0 there is nothing to write")
    for flag in ("checkpoint", "write", "language"):
        if args.all_checkpoints and getattr(args, flag) is not None:
            raise UserError(f"--{flag} does not go with --all_checkpoints")


def _scored(problem: Problem, args: argparse.Namespace) -> Problem:
    """Returns the problem with the conventions that the flags ask for."""
    if problem.output == "trees" and (args.tokenize or args.language):
        flag = "tokenize" if args.tokenize else "language"
        raise UserError(f"--{flag}: problem '{problem.name}' yields trees, not text")
    source, target = problem.languages
    return problem.replace(
        bleu_tokens=args.tokenize or problem.bleu_tokens,
        languages=(source, args.language or target),
    )


def _evaluate_split(args: argparse.Namespace) -> dict[str, Any]:
    """Decodes a split and scores it; the loss comes beside, by teacher forcing."""
    from t2t_keras.evaluation.bleu import bleu_scores
    from t2t_keras.evaluation.bracket_f1 import evaluate_trees
    from t2t_keras.training.held_out import HeldOut
    from t2t_keras.training.run_dir import RunDirectory

    run = RunDirectory(args.output_dir)
    problem = _scored(run.problem, args)
    translator = run.translator(args.checkpoint)
    split = HeldOut.of_run(run, translator.model, args.split, args.data_dir)
    result: dict[str, Any] = {"sentences": 0}
    if args.sentences != 0:
        sources, references = split.texts(translator, args.sentences)
        outputs = translator.n_best(sources, **decoding_options(args))
        best = [hypotheses[0] for hypotheses in outputs]
        hypotheses = [output.text for output in best]
        if args.write:
            write_lines(f"{args.write}.source", sources)
            write_lines(f"{args.write}.reference", references)
            write_lines(f"{args.write}.hypothesis", hypotheses)
        result["sentences"] = len(sources)
        if problem.output == "trees":
            result["f1"] = evaluate_trees(references, hypotheses).to_dict()
            result["repaired"] = sum(output.is_repaired for output in best) / len(best)
        else:
            conventions = problem.languages[1], problem.bleu_tokens
            result["bleu"] = bleu_scores(hypotheses, references, *conventions)
    return result | split.loss().to_dict()


def _evaluate_all(args: argparse.Namespace) -> dict[str, Any]:
    """Evaluates the checkpoints of a run, and those that are still to come."""
    from t2t_keras.evaluation.metrics import goodness
    from t2t_keras.training.follow import await_run, follow

    wait_minutes = args.wait_minutes or 0.0
    run = await_run(args.output_dir, wait_minutes)
    points = follow(
        run,
        args.split,
        _scored(run.problem, args),
        data_dir=args.data_dir,
        sentences=args.sentences,
        wait_minutes=wait_minutes,
        **decoding_options(args),
    )
    return {
        "split": args.split,
        "checkpoints": points,
        "best": max(points, key=goodness),
    }


def _show_evaluate(result: dict[str, Any]) -> str:
    if "checkpoints" in result:
        best = f"best: step {result['best']['step']}"
        return f"{columns(result['checkpoints'])}\n\n{best}"
    rows = {k: v for k, v in result.items() if k not in ("bleu", "f1")}
    if "f1" in result:
        return f"{table(rows)}\n\n{_show_summaries(result['f1'])}"
    scores = dict(result.get("bleu", {}))
    signatures = scores.pop("signatures", {})
    scores.pop("signature", None)
    signed = {k: f"{v:6.2f}  {signatures[k]}" for k, v in scores.items()}
    return table(rows | signed)


def _f1_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "gold",
        metavar="GOLD",
        help="bracketed trees, one a line; or a treebank, a .mrg file or a directory "
        "of such",
    )
    parser.add_argument("test", metavar="TEST", help="the trees to score, one a line")
    parser.add_argument(
        "--prm", metavar="FILE", help="EVALB's parameters (default: COLLINS.prm's)"
    )


def _f1(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.evaluation.bracket_f1 import evaluate_files
    from t2t_keras.evaluation.evalb_parameters import COLLINS, read_parameters

    parameters = read_parameters(args.prm) if args.prm else COLLINS
    return evaluate_files(args.gold, args.test, parameters).to_dict()


def _show_f1(result: dict[str, Any]) -> str:
    """What EVALB prints, and below it the figure that EVALB does not have."""
    from t2t_keras.evaluation.evalb_report import evalb_report, summaries

    beyond = (
        f"FMeasure, errors as zero  = {summary['f1_errors_as_zero']:6.2f}  ({title})"
        for title, summary in summaries(result)
    )
    return "\n".join([evalb_report(result), "-- Beyond EVALB --", *beyond])


def _show_summaries(result: dict[str, Any]) -> str:
    """The summaries side by side, a name a line."""
    from t2t_keras.evaluation.evalb_report import summaries

    (_, every), (title, short) = summaries(result)
    rows = [{"": name, "All": every[name], title: short[name]} for name in every]
    return columns(rows)


VERBS = {
    "evaluate": Verb(
        "score a model on a split, or one file against another",
        _evaluate_flags,
        _evaluate,
        _show_evaluate,
        uses_tensorflow=lambda args: not args.hypotheses,
    ),
    "f1": Verb(
        "score bracketed trees as EVALB does",
        _f1_flags,
        _f1,
        _show_f1,
    ),
}
