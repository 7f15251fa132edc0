"""The verbs about data: `list`, `datagen`."""

import argparse
import time
from collections import Counter
from typing import Any, get_args

from t2t_keras import registry
from t2t_keras.cli.verb import Verb, add_usr_dir, positive, seed, table
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem, Source, Split


def _list_flags(parser: argparse.ArgumentParser) -> None:
    add_usr_dir(parser)


def _list(args: argparse.Namespace) -> dict[str, Any]:
    del args
    return {
        "problems": registry.list_problems(),
        "hparams_sets": registry.list_hparams(),
    }


def _show_list(result: dict[str, Any]) -> str:
    return (
        f"Problems (each also as NAME_rev, in the other direction)\n\n"
        f"{table(result['problems'])}\n\n"
        f"Hparam sets\n\n{table(result['hparams_sets'])}"
    )


def _datagen_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problem", required=True, help="a name of `t2t list`")
    parser.add_argument("--data_dir", required=True, help="where the data go")
    add_usr_dir(parser)
    parser.add_argument(
        "--workers", type=positive, help="processes (default: one for each core)"
    )
    parser.add_argument("--seed", type=seed, default=0, help="of the shuffle")
    parser.add_argument(
        "--vocab_size", type=positive, help="pieces (default: the problem's)"
    )
    files = parser.add_argument_group(
        "files in place of the problem's own examples",
        "one sentence a line, UTF-8, perhaps .gz; or bracketed trees",
    )
    for split in get_args(Split):
        for kind in ("source", "target", "trees"):
            files.add_argument(f"--{split}_{kind}", metavar="FILE")


def _datagen(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.data.datagen import generate

    start = time.monotonic()
    problem = registry.problem(args.problem)
    problem = problem.replace(sources={**problem.sources, **_files(args, problem)})
    if args.vocab_size:
        problem = problem.replace(vocab_size=args.vocab_size)
    manifest = generate(problem, args.data_dir, workers=args.workers, seed=args.seed)
    dropped = Counter[str]()
    for reasons in manifest.dropped.values():
        dropped.update(reasons)
    return {
        "examples": dict(manifest.examples),
        "dropped": dict(dropped),
        "vocab_size": manifest.vocab_sizes["target"],
        "vocab_sizes": dict(manifest.vocab_sizes),
        "seconds": round(time.monotonic() - start, 2),
    }


def _files(args: argparse.Namespace, problem: Problem) -> dict[Split, Source]:
    """Returns the sources that were named on the command line."""
    from t2t_keras.data.sources import ParallelFiles

    sources: dict[Split, Source] = {}
    for split in get_args(Split):
        source, target, trees = (
            getattr(args, f"{split}_{kind}") for kind in ("source", "target", "trees")
        )
        if trees and problem.output != "trees":
            raise UserError(
                f"--{split}_trees: problem '{problem.name}' does not yield trees; give "
                f"--{split}_source and --{split}_target"
            )
        if (source or target) and problem.output == "trees":
            raise UserError(
                f"--{split}_source, --{split}_target: problem '{problem.name}' yields "
                f"trees; give --{split}_trees"
            )
        if bool(source) != bool(target):
            have, lack = ("source", "target") if source else ("target", "source")
            raise UserError(f"--{split}_{have} needs --{split}_{lack} beside it")
        if trees:
            from t2t_keras.data.treebank import TreebankSource

            sources[split] = TreebankSource(trees)
        elif source:
            # The files of `x_rev` are written in the direction of `x`.
            pair = (target, source) if problem.reverse else (source, target)
            sources[split] = ParallelFiles(*pair)
    return sources


def _show_datagen(result: dict[str, Any]) -> str:
    rows = {
        **{f"{split} examples": n for split, n in result["examples"].items()},
        **{f"dropped, {reason}": n for reason, n in result["dropped"].items()},
        "vocabulary": result["vocab_size"],
        "seconds": result["seconds"],
    }
    return table(rows)


VERBS = {
    "list": Verb("print every problem and hparam set", _list_flags, _list, _show_list),
    "datagen": Verb(
        "write a problem's vocabulary and examples into a data directory",
        _datagen_flags,
        _datagen,
        _show_datagen,
        uses_tensorflow=True,
    ),
}
