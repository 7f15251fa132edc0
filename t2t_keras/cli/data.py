"""The command that writes data: `datagen`."""

import argparse
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from t2t_keras import registry
from t2t_keras.cli.command import (
    Command,
    add_further,
    add_usr_dir,
    given_options,
    positive,
    quoted,
    seed,
)
from t2t_keras.console import say, table
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem, Source, Split, TextProcessor
from t2t_keras.run.config import RunConfig, require_run

if TYPE_CHECKING:
    from t2t_keras.data.datagen import Stages
    from t2t_keras.data.manifest import Manifest


# What to do with files that are given without flags.
FILES_HINT = "name the files: --train_source FILE --train_target FILE"
# The hparam set for each maximum of training pairs, as `t2t list` describes the sets.
_SETS = {
    150_000: "small_data",
    500_000: "pairs_300k",
    1_500_000: "pairs_1m",
    4_000_000: "pairs_3m",
}
_LARGEST_SET = "base"
# `tiny` is for at most this many pairs, if their mean number of target tokens is low.
_TOY_PAIRS = 10_000
_SHORT = 15  # tokens


def _datagen_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--problem", required=True, metavar="NAME", help="a name of `t2t list`"
    )
    parser.add_argument(
        "--data_dir", required=True, metavar="DIR", help="data directory to write"
    )
    add_usr_dir(parser)
    parser.add_argument(
        "--vocab_size",
        type=positive,
        metavar="N",
        help="tokens in the vocabulary (default: the problem's, or one that suits the "
        "number of pairs)",
    )
    parser.add_argument(
        "--clean",
        metavar="RULES",
        help="rules by which noisy training pairs are dropped: 'none', or some of "
        "identical, control, entities, letters=0.5, word=100, ratio=1.5, duplicates, "
        "separated by commas (default: the problem's)",
    )
    add_languages(
        parser,
        "languages, such as en-de, on which scores depend (default: the problem's, "
        "or found in the texts)",
    )
    for split in ("dev", "test"):
        parser.add_argument(
            f"--{split}_size",
            type=positive,
            metavar="N",
            help=f"take N pairs for {split} out of the training pairs",
        )
    add_sources(parser)
    _add_further_flags(parser)


def _add_further_flags(parser: argparse.ArgumentParser) -> None:
    further = add_further(parser, "further options")
    further.add_argument(
        "--max_length",
        type=positive,
        metavar="N",
        help="drop training pairs with more tokens on a side (default: the problem's)",
    )
    further.add_argument(
        "--workers",
        type=positive,
        metavar="N",
        help="number of processes (default: one per core, on a cluster of all nodes)",
    )
    further.add_argument("--seed", type=seed, default=0, help="seed of the shuffle")
    further.add_argument(
        "--vocab",
        nargs="+",
        default=(),
        metavar="FILE",
        help="use this vocabulary, these of source and target, or those of a run "
        "directory, instead of training one",
    )


def add_languages(parser: argparse.ArgumentParser, help: str) -> None:
    """Adds `--languages`, which `data_languages` reads."""
    parser.add_argument("--languages", metavar="SOURCE-TARGET", help=help)


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say where the pairs of a problem come from."""
    files = parser.add_argument_group(
        "files that replace the problem's sources",
        "one sentence per line, UTF-8, plain or compressed (gzip, xz, zstd, bzip2); "
        "line i of the target translates line i of the source; or one file of pairs "
        "as both (.tsv, .tmx, ...; most need --languages)",
    )
    for split in get_args(Split):
        for side in ("source", "target"):
            flag = f"--{split}_{side}"
            files.add_argument(flag, metavar="FILE", help=f"{side} texts of {split}")
    files.add_argument(
        "--mixture",
        metavar="FILE",
        help="a TOML file that names the files of all splits, also files of pairs, "
        "several corpora with weights and tags, word alignments (see docs/data.md)",
    )


def _uses_tensorflow(args: argparse.Namespace) -> bool:
    """Returns whether the data come from tensorflow-datasets."""
    from t2t_keras.data.sources import TfdsPairs

    if args.usr_dir:  # its problems are not yet known
        return False
    sources = registry.problem(args.problem).sources.values()
    return any(isinstance(source, TfdsPairs) for source in sources)


def _check_datagen(args: argparse.Namespace) -> None:
    if len(args.vocab) > 2:
        raise UserError(f"--vocab takes at most 2, not {len(args.vocab)} files")
    if args.vocab and args.vocab_size:
        raise UserError("--vocab_size has no effect with --vocab; leave it out")
    for path in args.vocab:
        if not Path(path).exists():
            raise UserError(f"--vocab: there is no {path}")


def run_datagen(
    args: argparse.Namespace,
    make_stages: "Callable[[], Stages] | None" = None,
) -> dict[str, object]:
    """Generates the data that the flags ask for; returns what `--json` prints.

    Args:
        args: the flags.
        make_stages: returns the `stages` of `data.datagen.generate`, once the flags are
            known to name a problem.
    """
    from t2t_keras.data.datagen import generate

    start = time.monotonic()
    problem = _problem(args)
    manifest = generate(
        problem,
        args.data_dir,
        args.workers,
        args.seed,
        args.dev_size or 0,
        args.test_size or 0,
        make_stages() if make_stages else None,
    )
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


def with_sources(problem: Problem, args: argparse.Namespace) -> Problem:
    """Returns the problem with the sources that the flags of `add_sources` name."""
    sources = {**problem.sources, **_files(args, problem)}
    return problem.replace(sources=sources).with_flags(args)


def _problem(args: argparse.Namespace) -> Problem:
    """Returns the problem with the changes that the flags ask for."""
    from t2t_keras.data.cleaning import parse_cleaning

    problem = with_sources(registry.problem(args.problem), args)
    changes = given_options(args, Problem)
    changes.pop("languages", None)
    problem = problem.replace(**changes)
    if args.clean:
        problem = problem.replace(cleaning=parse_cleaning(args.clean))
    if args.languages:
        problem = problem.replace(languages=data_languages(args, problem))
    if args.vocab:
        from t2t_keras.data.manifest import use_vocabularies

        files = _vocabularies(args.vocab)
        problem = use_vocabularies(problem, files, Path(args.data_dir))
    return problem


def data_languages(
    args: argparse.Namespace, problem: Problem
) -> tuple[str, str] | None:
    """Returns the languages of the flags or the problem, in the data's direction."""
    languages = problem.languages
    if text := getattr(args, "languages", None):
        from t2t_keras.data.sources import parse_languages

        languages = parse_languages(text)
    # The data of `x_rev` are those of `x`.
    return languages[::-1] if languages and problem.reverse else languages


def _vocabularies(paths: Sequence[str]) -> tuple[Path, Path]:
    """Returns the files of source and target that --vocab names."""
    source = Path(paths[0])
    if not source.is_dir():
        return source, Path(paths[-1])
    require_run(source)
    config = RunConfig.read(source)
    return source / config.source_vocab, source / config.target_vocab


def _files(args: argparse.Namespace, problem: Problem) -> dict[Split, Source]:
    """Returns the sources that the command line names."""
    from t2t_keras.data.mixture import read_mixture

    sources = read_mixture(args.mixture) if args.mixture else {}
    if sources and problem.reverse:
        raise UserError(
            f"the data of '{problem.name}' are those of '{problem.data_name}'; "
            f"generate them with --problem {problem.data_name} and a mixture in its "
            "direction"
        )
    for split in get_args(Split):
        source = getattr(args, f"{split}_source")
        target = getattr(args, f"{split}_target")
        if source and not target:
            raise UserError(f"--{split}_source needs --{split}_target; give both")
        if target and not source:
            raise UserError(f"--{split}_target needs --{split}_source; give both")
        if source:
            if split in sources:
                raise UserError(
                    f"{args.mixture} has {split} examples; leave out --{split}_source "
                    f"and --{split}_target, or its [[{split}]]"
                )
            sources[split] = _pairs(source, target, args, problem)
    return sources


def _pairs(
    source: str, target: str, args: argparse.Namespace, problem: Problem
) -> Source:
    """Returns the source that reads two text files, or one file of pairs.

    Args:
        source: the file of source texts.
        target: the file of target texts. If it is the same file, and one of pairs, both
            sides are read from it.
        args: the flags, which may name the languages.
        problem: the problem of the data.
    """
    from t2t_keras.data.sources import PairFile, ParallelFiles, format_of
    from t2t_keras.files.text_files import require_text_file

    exist = os.path.exists(source) and os.path.exists(target)
    is_one_file = exist and os.path.samefile(source, target)
    format = format_of(source) if is_one_file else None
    if format is not None:
        languages = data_languages(args, problem)
        tells_direction = format.needs_languages and languages
        if problem.reverse and not tells_direction:
            raise UserError(
                f"{source} is {format.title}, in the direction of "
                f"'{problem.data_name}'; generate the data with --problem "
                f"{problem.data_name}"
            )
        if languages is None and (languages := format.languages(source)):
            say(
                f"{source}: the source is {languages[0]} and the target {languages[1]} "
                "(--languages changes this)"
            )
        return PairFile(source, languages)
    for path in (source, target):
        require_text_file(path)
    # The data of `x_rev` are those of `x`: in its direction.
    pair = (target, source) if problem.reverse else (source, target)
    return ParallelFiles(*pair)


def train_command(args: argparse.Namespace) -> str:
    """Returns the command that trains on the data of `--problem` and `--data_dir`."""
    from t2t_keras.data.manifest import Manifest

    problem = registry.problem(args.problem)
    manifest = Manifest.load(Manifest.path(Path(args.data_dir), problem.data_name))
    words = [f"t2t train --problem {args.problem} --data_dir {quoted(args.data_dir)}"]
    if args.usr_dir:
        words.append(f"--usr_dir {quoted(args.usr_dir)}")
    words.append(f"--hparams_set {_fitting_set(problem, manifest)} --output_dir RUN")
    return " ".join(words)


def _fitting_set(problem: Problem, manifest: "Manifest | None") -> str:
    """Returns the hparam set for the number of training pairs, or else "SET".

    The sets are for translation; other tasks have another text processor.
    """
    is_translation = type(problem.text_processor) is TextProcessor
    pairs = manifest.examples.get("train") if manifest else None
    if manifest is None or not pairs or not is_translation:
        return "SET"
    is_short = manifest.tokens["train"]["target"] <= _SHORT * pairs
    if is_short and pairs <= _TOY_PAIRS:
        return "tiny"
    fitting = (name for limit, name in _SETS.items() if pairs <= limit)
    return next(fitting, _LARGEST_SET)


def _show_datagen(result: dict[str, Any]) -> str:
    rows = {f"{split} examples": n for split, n in result["examples"].items()}
    for reason, count in result["dropped"].items():
        rows[f"dropped, {reason}"] = count
    rows["vocabulary"] = result["vocab_size"]
    rows["seconds"] = result["seconds"]
    return table(rows)


COMMANDS = {
    "datagen": Command(
        "write a problem's vocabulary and examples into a data directory",
        _datagen_flags,
        run_datagen,
        _show_datagen,
        _uses_tensorflow,
        _check_datagen,
        waiting="reading the sources",
        resumes=True,
        next_command=train_command,
        has_problem_flags=True,
        group="data and training",
        words_hint=FILES_HINT,
    ),
}
