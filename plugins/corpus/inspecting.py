"""The command that looks for faults in data: `inspect`."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from t2t_keras import registry
from t2t_keras.cli.checks import require_outputs
from t2t_keras.cli.command import Command, add_usr_dir, columns, require_only
from t2t_keras.cli.data import add_sources, with_sources
from t2t_keras.data.atomic_files import open_lines
from t2t_keras.data.console import say
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem, Source

if TYPE_CHECKING:
    from t2t_keras.text.tokenizer import Tokenizer

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
        "--page", metavar="FILE", help="also write the result as an HTML page"
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


def _check(args: argparse.Namespace) -> None:
    require_outputs(args, {"page": [args.page] if args.page else []})
    if args.data_dir:
        flags = {"--problem", "--data_dir", "--usr_dir", "--page", "--json"}
        require_only(args, flags, "--data_dir, whose examples are inspected")


def _inspect(args: argparse.Namespace) -> dict[str, Any]:
    from .decoded_examples import decoded_examples
    from .inspection import inspect

    problem = registry.problem(args.problem)
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None
    if args.data_dir:
        sources, tokenizers = decoded_examples(Path(args.data_dir), problem)
    else:
        sources = _sources(args, problem)
    result: dict[str, Any] = {**inspect(sources, tokenizers)}
    if args.page:
        from .inspection_page import inspection_page

        title = f"The data of {problem.name}"
        page = inspection_page(title, _sentences(result), result["splits"])
        with open_lines(args.page) as file:
            file.write(page)
    for finding in result["findings"]:
        if finding["kind"] == "unreadable":
            say(_show(result))
            raise UserError(f"{finding['split']} {finding['message']}")
    return result


def _show(result: dict[str, Any]) -> str:
    rows = []
    for name, split in result["splits"].items():
        row = {"split": name, "pairs": f"{split['pairs']:,}"}
        for side in ("source", "target"):
            row[side] = _describe_side(split[side], max(split["pairs"], 1))
        rows.append(row)
    findings = _sentences(result)
    lines = [columns(rows), "", *findings[:_MAX_FINDINGS]]
    if len(findings) > _MAX_FINDINGS:
        lines.append(f"and {len(findings) - _MAX_FINDINGS} more (--page, --json)")
    if not findings:
        lines.append("no faults were found")
    return "\n".join(lines)


def _describe_side(side: dict[str, Any], pairs: int) -> str:
    words = side["words"] / pairs
    characters = side["characters"] / pairs
    description = f"{words:.1f} words, {characters:.0f} characters"
    for name, share in (side["languages"] or side["scripts"]).items():
        return f"{description}, {name} {share:.0%}"  # the largest share is the first
    return description


def _sentences(result: dict[str, Any]) -> list[str]:
    """Returns a sentence for each finding."""
    from .findings import Finding

    return [str(Finding(**values)) for values in result["findings"]]


COMMAND = Command(
    "look for faults in a corpus or a data directory, and describe it",
    _flags,
    _inspect,
    _show,
    uses_tensorflow=lambda args: bool(args.data_dir),
    check=_check,
    has_problem_flags=True,
    group="data and training",
)
