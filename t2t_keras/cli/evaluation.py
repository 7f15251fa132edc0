"""The verbs that compare outputs with references: `evaluate`, `f1`."""

import argparse
from pathlib import Path
from typing import Any, get_args

from t2t_keras.cli.decoding import add_decoding_flags, decoding_options
from t2t_keras.cli.lines import read_lines, write_lines
from t2t_keras.cli.verb import Verb, add_checkpoint, add_usr_dir, table
from t2t_keras.errors import UserError
from t2t_keras.problem import Split


def _evaluate_flags(parser: argparse.ArgumentParser) -> None:
    run = parser.add_argument_group("a split of the data, decoded by a run's model")
    run.add_argument("--output_dir", help="a run directory")
    run.add_argument("--data_dir", help="default: that of the training")
    run.add_argument("--split", choices=get_args(Split), default="test")
    run.add_argument(
        "--write",
        metavar="PREFIX",
        help="writes the texts as PREFIX.source, .reference and .hypothesis",
    )
    add_checkpoint(run)
    add_usr_dir(run)
    add_decoding_flags(parser)
    files = parser.add_argument_group("or two files of text, one sentence a line")
    files.add_argument("--hypotheses", metavar="FILE")
    files.add_argument("--references", metavar="FILE")
    parser.add_argument(
        "--language",
        default="de",
        metavar="CODE",
        help="of the references; for tokenized_compound_split (default: de)",
    )


def _evaluate(args: argparse.Namespace) -> dict[str, Any]:
    if bool(args.hypotheses) != bool(args.references):
        raise UserError("--hypotheses and --references need each other")
    if bool(args.hypotheses) == bool(args.output_dir):
        raise UserError("give either --output_dir or --hypotheses and --references")
    if args.hypotheses:
        from t2t_keras.evaluation.bleu import bleu_scores

        hypotheses = list(read_lines(args.hypotheses))
        references = list(read_lines(args.references))
        return {"bleu": bleu_scores(hypotheses, references, args.language)}
    return _evaluate_split(args)


def _evaluate_split(args: argparse.Namespace) -> dict[str, Any]:
    """Decodes a split and scores it; the loss comes beside, by teacher forcing."""
    from t2t_keras.data.manifest import Manifest
    from t2t_keras.data.records import RecordIndex
    from t2t_keras.evaluation.bleu import bleu_scores
    from t2t_keras.evaluation.bracket_f1 import evaluate_trees
    from t2t_keras.training.held_out import HeldOut
    from t2t_keras.training.run_dir import RunDirectory

    run = RunDirectory(args.output_dir)
    translator = run.translator(args.checkpoint)
    problem = translator.problem
    data_dir = Path(args.data_dir or run.config.data_dir)
    hashes = Manifest.open(data_dir, problem.data_name).vocab_sha256
    if hashes != run.config.vocab_sha256:
        raise UserError(
            f"--data_dir: {data_dir} was made with another vocabulary than {run.path}"
        )
    index = RecordIndex.open(data_dir, problem.data_name, args.split)
    split = HeldOut(index, translator.model, problem.reverse)
    sources, references = split.texts(translator)
    hypotheses = translator.translate(sources, **decoding_options(args))
    if args.write:
        write_lines(f"{args.write}.source", sources)
        write_lines(f"{args.write}.reference", references)
        write_lines(f"{args.write}.hypothesis", hypotheses)
    loss = split.loss()
    result = {
        "sentences": len(sources),
        "loss": loss.loss,
        "perplexity": loss.perplexity,
        "accuracy": loss.accuracy,
    }
    if problem.output == "trees":
        return {"f1": evaluate_trees(references, hypotheses).to_dict(), **result}
    return {"bleu": bleu_scores(hypotheses, references, args.language), **result}


def _show_evaluate(result: dict[str, Any]) -> str:
    rows = {k: v for k, v in result.items() if k not in ("bleu", "f1")}
    rows |= result.get("bleu") or result["f1"]["all"]
    return table(rows)


def _f1_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("gold", metavar="GOLD", help="bracketed trees, one a line")
    parser.add_argument("test", metavar="TEST", help="the trees to score")
    parser.add_argument(
        "--prm", metavar="FILE", help="EVALB's parameters (default: COLLINS.prm's)"
    )


def _f1(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.evaluation.bracket_f1 import evaluate_files
    from t2t_keras.evaluation.evalb_parameters import COLLINS, read_parameters

    parameters = read_parameters(args.prm) if args.prm else COLLINS
    return evaluate_files(args.gold, args.test, parameters).to_dict()


def _show_f1(result: dict[str, Any]) -> str:
    summaries = {k: v for k, v in result.items() if k != "per_sentence"}
    return "\n\n".join(
        f"{name}\n{table(summary)}" for name, summary in summaries.items()
    )


VERBS = {
    "evaluate": Verb(
        "score a model on a split, or one file against another",
        _evaluate_flags,
        _evaluate,
        _show_evaluate,
        uses_tensorflow=True,
    ),
    "f1": Verb(
        "score bracketed trees as EVALB does",
        _f1_flags,
        _f1,
        _show_f1,
    ),
}
