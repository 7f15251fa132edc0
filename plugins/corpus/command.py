"""The command that looks for faults in data: `inspect`."""

import argparse
import functools
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from t2t_keras import registry
from t2t_keras.cli.command import Command, add_usr_dir, require_only
from t2t_keras.cli.data import (
    FILES_HINT,
    add_languages,
    add_sources,
    data_languages,
    train_command,
    with_sources,
)
from t2t_keras.cli.lines import require_outputs
from t2t_keras.console import columns, say, say_page, wrapped
from t2t_keras.errors import UserError, quantity
from t2t_keras.files.atomic import open_lines
from t2t_keras.problem import SIDES, Pair, Problem, Source, Split

from .findings import Finding

if TYPE_CHECKING:
    from t2t_keras.text.tokenizer import Tokenizer

    from .cleaned_copy import SplitRecipe
    from .inspection import Inspection


_MAX_FINDINGS = 12  # findings that are printed; the page has them all


def _flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--problem", default="translate_text", help="a name of `t2t list`"
    )
    parser.add_argument(
        "--data_dir",
        metavar="DIR",
        help="inspect the examples in a data directory, and how its vocabularies split "
        "them, instead of the problem's sources",
    )
    add_usr_dir(parser)
    parser.add_argument(
        "--page",
        metavar="FILE",
        help="also write an HTML page that shows the faulty pairs, to choose what "
        "becomes of them",
    )
    parser.add_argument(
        "--apply",
        metavar="DIR",
        help="write a cleaned copy of the files, and the recipe, to this directory: "
        "without --recipe, faulty training pairs are repaired or left out",
    )
    parser.add_argument(
        "--recipe",
        metavar="FILE",
        help="what --apply does with each fault: a file that the page saves",
    )
    add_languages(
        parser,
        "the languages that the data should have, en-de for example (default: the "
        "problem's)",
    )
    add_sources(parser)


def _sources(args: argparse.Namespace, problem: Problem) -> dict[str, Source]:
    """Returns what is inspected, by the names of splits and of corpora in them."""
    from t2t_keras.data.mixture import corpora_of

    problem = with_sources(problem, args)
    if not problem.sources:
        raise UserError(
            f"problem '{problem.name}' has no examples; give --data_dir or "
            f"{problem.text_processor.source_flags.format(split='train')}"
        )
    sources = {}
    for split, source in problem.sources.items():
        for corpus in corpora_of(source):
            sources[f"{split} {corpus.name}".strip()] = corpus.source
    return sources


def decoded_examples(
    data_dir: Path, problem: Problem
) -> tuple[dict[str, Source], tuple["Tokenizer", "Tokenizer"]]:
    """Returns the texts of all examples of a data directory, and its tokenizers.

    Args:
        data_dir: the directory.
        problem: the problem.

    Returns:
        For each split, or each corpus in it, a function that yields its pairs without
        tags; and the tokenizers of source and target.

    Raises:
        UserError: the directory has no data of the problem, or is damaged.
    """
    import numpy as np

    from t2t_keras.data.manifest import Manifest
    from t2t_keras.data.pipeline import read_pairs
    from t2t_keras.text.tokenizer import load_tokenizer

    manifest = Manifest.open(data_dir, problem.data_name)
    manifest.check_vocabularies(data_dir)
    files = [data_dir / manifest.vocab_files[side] for side in SIDES]
    if problem.reverse:
        files.reverse()
    source_tokenizer = load_tokenizer(files[0])
    target_tokenizer = load_tokenizer(files[1])

    def pairs(split: Split, corpus: int) -> Iterator[Pair]:
        index = manifest.open_index(data_dir, split, problem.reverse)
        records = np.arange(len(index))
        if index.corpus is not None:
            records = np.flatnonzero(index.corpus == corpus)
        for source_ids, target_ids in read_pairs(index, records.tolist()):
            source = source_tokenizer.decode(source_ids)
            tag, _, untagged = source.partition(" ")
            if tag in manifest.tags:
                source = untagged
            yield source, target_tokenizer.decode(target_ids)

    sources: dict[str, Source] = {}
    for split in manifest.examples:
        for corpus, name in enumerate(manifest.corpora.get(split, [""])):
            key = f"{split} {name}".strip()
            sources[key] = functools.partial(pairs, split, corpus)
    return sources, (source_tokenizer, target_tokenizer)


def _check(args: argparse.Namespace) -> None:
    require_outputs(args, {"page": [args.page] if args.page else []})
    if args.recipe and not args.apply:
        raise UserError("--recipe has no effect without --apply; give --apply DIR")
    if args.apply:
        directory = Path(args.apply)
        if directory.exists() and not (
            directory.is_dir() and not any(directory.iterdir())
        ):
            raise UserError(
                f"--apply: {directory} exists already; name a new directory"
            )
    if args.data_dir:
        flags = {"--problem", "--data_dir", "--usr_dir", "--page", "--json"}
        flags.add("--languages")
        require_only(args, flags, "--data_dir, whose examples are inspected")


def _inspect(args: argparse.Namespace) -> dict[str, Any]:
    from .cleaned_copy import read_recipes
    from .inspection import inspect

    recipes = read_recipes(args.recipe) if args.recipe else {}
    problem = registry.problem(args.problem)
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None
    if args.data_dir:
        sources, tokenizers = decoded_examples(Path(args.data_dir), problem)
    else:
        sources = _sources(args, problem)
    inspection = inspect(sources, tokenizers, data_languages(args, problem))
    result: dict[str, Any] = {**inspection.report}
    if args.page:
        from .inspection_page import inspection_page

        page = inspection_page(
            f"The data of {problem.name}",
            shlex.join(["t2t", *args.argv]),
            sources,
            inspection,
        )
        with open_lines(args.page) as file:
            file.write(page)
        say_page(args.page)
    for finding in result["findings"]:
        if finding["kind"] == "unreadable":
            say(_show(result))
            raise UserError(f"{finding['split']} {finding['message']}")
    if args.apply:
        result["applied"] = _apply(args, sources, inspection, recipes)
    return result


def _apply(
    args: argparse.Namespace,
    sources: Mapping[str, Source],
    inspection: "Inspection",
    recipes: Mapping[str, "SplitRecipe"],
) -> dict[str, Any]:
    """Writes the cleaned copy, and returns what it has by split.

    Raises:
        UserError: the recipe is of other splits.
    """
    from .cleaned_copy import default_recipe, keep_all, write_copies
    from .inspection import is_train

    for name in recipes:
        if name not in sources:
            raise UserError(
                f"--recipe: {args.recipe} has [{name}], but there are only "
                f"{', '.join(sources)}"
            )
    choices = {}
    for name in sources:
        # A page has no choices for splits without faults.
        default = keep_all() if args.recipe else default_recipe(is_train(name))
        choices[name] = recipes.get(name, default)
    copies = write_copies(Path(args.apply), sources, inspection.faults, choices)
    return {name: copy._asdict() for name, copy in copies.items()}


def _show(result: dict[str, Any]) -> str:
    rows = []
    for name, split in result["splits"].items():
        for side in ("source", "target"):
            row = {"split": name, "pairs": f"{split['pairs']:,}", "side": side}
            rows.append(row | _describe_side(split[side], max(split["pairs"], 1)))
    findings = _sentences(result)
    lines = [columns(rows), "", *map(wrapped, findings[:_MAX_FINDINGS])]
    if len(findings) > _MAX_FINDINGS:
        lines.append(f"and {len(findings) - _MAX_FINDINGS} more (--page, --json)")
    if not findings:
        lines.append("no faults were found")
    for name, copy in result.get("applied", {}).items():
        lines.append(
            f"{name}: {copy['source']} and {copy['target']} have "
            f"{quantity(copy['pairs'], 'pairs')}; {copy['dropped']:,} left out, "
            f"{copy['repaired']:,} repaired"
        )
    return "\n".join(lines)


def _describe_side(side: dict[str, Any], pairs: int) -> dict[str, object]:
    """Returns the means of a sentence, and the most frequent language or script."""
    shares = side["languages"] or side["scripts"]
    largest_share = [f"{name} {share:.0%}" for name, share in shares.items()][:1]
    return {
        "words": side["words"] / pairs,
        "characters": round(side["characters"] / pairs),
        "script" if side["languages"] is None else "language": "".join(largest_share),
    }


def _sentences(result: dict[str, Any]) -> list[str]:
    """Returns a sentence for each finding."""
    return [str(Finding(**values)) for values in result["findings"]]


def _next_command(args: argparse.Namespace) -> str:
    if args.data_dir:
        return train_command(args)
    words = ["t2t", "datagen", "--problem", args.problem, "--data_dir", "DIR"]
    if args.languages:
        words += ["--languages", args.languages]
    for split in get_args(Split):
        for side in SIDES:
            path = getattr(args, f"{split}_{side}")
            if args.apply:
                copy = Path(args.apply, f"{split}.{side}")
                path = str(copy) if copy.exists() else None
            if path:
                words += [f"--{split}_{side}", path]
    return shlex.join(words)


COMMAND = Command(
    "look for faults in a corpus or a data directory, and describe it",
    _flags,
    _inspect,
    _show,
    uses_tensorflow=lambda args: bool(args.data_dir),
    check=_check,
    waiting="reading the pairs",
    next_command=_next_command,
    has_problem_flags=True,
    group="data and training",
    words_hint=FILES_HINT,
)
