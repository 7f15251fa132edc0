"""`t2t align`: word alignments read from a model's attention."""

import argparse
from collections.abc import Sequence
from typing import Any

from t2t_keras.cli.command import Command, positive, quoted
from t2t_keras.cli.lines import read_lines, require_readable
from t2t_keras.cli.translation import add_pairs, check_pairs, read_pairs
from t2t_keras.console import table
from t2t_keras.errors import UserError, quantity
from t2t_keras.files.atomic import write_lines
from t2t_keras.text.alignment import (
    Alignment,
    Reference,
    format_alignment,
    parse_reference,
)


def _align_flags(parser: argparse.ArgumentParser) -> None:
    add_pairs(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write the alignment of each line here; `0-0 1-2` aligns source word 0 "
        "with target word 0 and source word 1 with target word 2",
    )
    parser.add_argument(
        "--reference",
        metavar="FILE",
        help="the correct alignments, for the alignment error rate; `0-0` is a sure "
        "link, `0p0` a possible one",
    )
    parser.add_argument(
        "--layer",
        type=positive,
        metavar="N",
        help="decoder layer whose cross-attention is read, from 1 (default: the last "
        "but one)",
    )
    parser.add_argument(
        "--head",
        type=positive,
        metavar="N",
        help="head of that layer, from 1 (default: the head trained by guided "
        "alignment, otherwise the mean of all heads)",
    )


def _check_align(args: argparse.Namespace) -> None:
    check_pairs(args)
    require_readable(args.reference)
    if not (args.output or args.reference):
        raise UserError(
            "give --output FILE to write the alignments, or --reference FILE to score "
            "them"
        )


def _align(args: argparse.Namespace) -> dict[str, Any]:
    from t2t_keras.decoding.engine import AlignmentHead
    from t2t_keras.run.directory import RunDirectory

    sources, targets = read_pairs(args)
    references = []
    if args.reference:
        for line_number, line in enumerate(read_lines(args.reference), 1):
            location = f"{args.reference}, line {line_number}"
            references.append(parse_reference(line, location))
        if len(references) != len(sources):
            raise UserError(
                f"{args.source} has {quantity(len(sources), 'lines')} but "
                f"{args.reference} has {len(references):,}; give one line of links "
                "for each pair"
            )
    translator = RunDirectory(args.output_dir).translator(args.checkpoint)
    head = translator.alignment_head(AlignmentHead(args.layer, args.head))
    alignments = translator.align(sources, targets, head)
    if args.output:
        write_lines(args.output, map(format_alignment, alignments))
    result: dict[str, Any] = {"sentences": len(alignments), "layer": head.layer}
    result["head"] = head.head or "mean"
    if args.reference:
        result |= alignment_scores(alignments, references)
    return result


def alignment_scores(
    alignments: Sequence[Alignment], references: Sequence[Reference]
) -> dict[str, float]:
    """Returns alignment error rate, precision and recall over a corpus, in percent.

    For the links A of the alignments and the sure links S and possible links P of the
    references, precision is |A and P| / |A|, recall is |A and S| / |S|, and the
    alignment error rate is 1 - (|A and S| + |A and P|) / (|A| + |S|).
    """
    num_links = 0
    num_sure = 0
    possible_hits = 0
    sure_hits = 0
    for alignment, reference in zip(alignments, references, strict=True):
        links = set(alignment)
        num_links += len(links)
        num_sure += len(reference.sure)
        possible_hits += len(links & reference.possible)
        sure_hits += len(links & reference.sure)
    hits = sure_hits + possible_hits
    return {
        "aer": 100 * (1 - hits / max(num_links + num_sure, 1)),
        "precision": 100 * possible_hits / max(num_links, 1),
        "recall": 100 * sure_hits / max(num_sure, 1),
    }


COMMAND = Command(
    "align the words of given translations by a model's attention",
    _align_flags,
    _align,
    table,
    uses_tensorflow=True,
    check=_check_align,
    waiting="loading the model",
    next_command=lambda args: (
        f"t2t attention {quoted(args.output_dir)} --source TEXT --target TEXT "
        "--page FILE"
    ),
    group="using a model",
)
