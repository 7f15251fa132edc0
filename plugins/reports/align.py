"""The command that aligns words by a model's attention: `align`."""

import argparse
from collections.abc import Sequence
from typing import Any

from t2t_keras.cli.checks import require_readable
from t2t_keras.cli.command import Command, positive, table
from t2t_keras.cli.lines import read_lines
from t2t_keras.cli.translation import add_pairs, check_pairs, read_pairs
from t2t_keras.data.files import write_lines
from t2t_keras.data.pharaoh import Reference, format_alignment, parse_reference
from t2t_keras.errors import UserError
from t2t_keras.problem import Alignment


def _align_flags(parser: argparse.ArgumentParser) -> None:
    add_pairs(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write the alignment of each line, such as `0-0 1-2`: source word 0 and "
        "target word 0, source word 1 and target word 2",
    )
    parser.add_argument(
        "--reference",
        metavar="FILE",
        help="the right alignments, to compute the alignment error rate: `0-0` is a "
        "sure link, `0p0` a possible one",
    )
    parser.add_argument(
        "--layer",
        type=positive,
        metavar="N",
        help="decoder layer whose attention to the source is read, from 1 (default: "
        "the last but one)",
    )
    parser.add_argument(
        "--head",
        type=positive,
        metavar="N",
        help="its head, from 1 (default: the one that guided alignment trained, or the "
        "mean of all)",
    )


def _check_align(args: argparse.Namespace) -> None:
    check_pairs(args)
    require_readable(args.reference)
    if not (args.output or args.reference):
        raise UserError("give --output FILE for the alignments, or --reference FILE")


def _align(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.decoding.scoring import AlignmentHead
    from t2t_keras.run.directory import RunDirectory

    sources, targets = read_pairs(args)
    lines = list(read_lines(args.reference)) if args.reference else []
    references = [
        parse_reference(line, f"{args.reference}, line {number}")
        for number, line in enumerate(lines, 1)
    ]
    if args.reference and len(references) != len(sources):
        raise UserError(
            f"{args.source} has {len(sources)} lines and {args.reference} "
            f"{len(references)}; give one line of links for each pair"
        )
    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
    head = translator.alignment_head(AlignmentHead(args.layer, args.head))
    found = translator.align(sources, targets, head)
    if args.output:
        write_lines(args.output, map(format_alignment, found))
    result: dict[str, Any] = {"sentences": len(found), "layer": head.layer}
    result["head"] = head.head or "mean"
    return result | (alignment_scores(found, references) if args.reference else {})


def alignment_scores(
    found: Sequence[Alignment], references: Sequence[Reference]
) -> dict[str, float]:
    """Returns alignment error rate, precision and recall over a corpus, in percent.

    With the found links A, the sure ones S and the possible ones P, precision is
    |A and P| / |A|, recall |A and S| / |S|, and the alignment error rate
    1 - (|A and S| + |A and P|) / (|A| + |S|).

    Args:
        found: the alignment of each pair.
        references: the links of each pair.
    """
    links = possible = sure = wanted = 0
    for alignment, reference in zip(found, references, strict=True):
        pairs = set(alignment)
        links += len(pairs)
        wanted += len(reference.sure)
        possible += len(pairs & reference.possible)
        sure += len(pairs & reference.sure)
    return {
        "aer": 100 * (1 - (sure + possible) / max(links + wanted, 1)),
        "precision": 100 * possible / max(links, 1),
        "recall": 100 * sure / max(wanted, 1),
    }


COMMAND = Command(
    "align the words of given translations by a model's attention",
    _align_flags,
    _align,
    table,
    uses_tensorflow=True,
    check=_check_align,
)
