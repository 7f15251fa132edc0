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

_MOST = 12  # findings that are printed; the page has them all


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
    return {
        f"{split} {corpus.name}".strip(): corpus.source
        for split, source in problem.sources.items()
        for corpus in corpora_of(source)
    }


def _check(args: argparse.Namespace) -> None:
    require_outputs(args, {"page": [args.page] if args.page else []})
    if args.data_dir:
        own = {"--problem", "--data_dir", "--usr_dir", "--page", "--json"}
        require_only(args, own, "--data_dir, whose examples are inspected")


def _inspect(args: argparse.Namespace) -> dict[str, Any]:
    from .inspection import decoded_examples, inspect

    problem = registry.problem(args.problem)
    tokenizers: tuple[Tokenizer, Tokenizer] | None = None
    if args.data_dir:
        sources, tokenizers = decoded_examples(Path(args.data_dir), problem)
    else:
        sources = _sources(args, problem)
    result = inspect(sources, tokenizers)
    if args.page:
        from .inspection_page import inspection_page

        title = f"The data of {problem.name}"
        page = inspection_page(title, _sentences(result), result["splits"])
        with open_lines(args.page) as file:
            file.write(page)
    unreadable = [f for f in result["findings"] if f["kind"] == "unreadable"]
    if unreadable:
        say(_show(result))
        raise UserError(f"{unreadable[0]['split']} {unreadable[0]['message']}")
    return result


def _show(result: dict[str, Any]) -> str:
    rows = []
    for name, split in result["splits"].items():
        row = {"split": name, "pairs": f"{split['pairs']:,}"}
        for side in ("source", "target"):
            found, count = split[side], max(split["pairs"], 1)
            words, characters = found["words"] / count, found["characters"] / count
            most = _most(found["languages"] or found["scripts"])
            row[side] = f"{words:.1f} words, {characters:.0f} characters{most}"
        rows.append(row)
    findings = _sentences(result)
    lines = [columns(rows), "", *findings[:_MOST]]
    if len(findings) > _MOST:
        lines.append(f"and {len(findings) - _MOST} more (--page, --json)")
    if not findings:
        lines.append("no faults were found")
    return "\n".join(lines)


def _sentences(result: dict[str, Any]) -> list[str]:
    """Returns a sentence for each finding."""
    from .inspection import Finding

    return [str(Finding(**values)) for values in result["findings"]]


def _most(shares: dict[str, float]) -> str:
    """Returns the language or the script of most texts."""
    if not shares:
        return ""
    name, share = next(iter(shares.items()))
    return f", {name} {share:.0%}"


COMMAND = Command(
    "look for faults in a corpus or a data directory, and describe it",
    _flags,
    _inspect,
    _show,
    uses_tensorflow=lambda args: bool(args.data_dir),
    check=_check,
    has_problem_flags=True,
)
