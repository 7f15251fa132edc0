"""The command line of parsing: flags of `t2t datagen`, and the command `f1`."""

import argparse
import dataclasses
from typing import TYPE_CHECKING, Any, Self, get_args

from t2t_keras.cli.command import Command, positive
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem, Source, Split

from .task import Trees

if TYPE_CHECKING:
    from .treebank import TreebankSource

# The standard division of the Wall Street Journal.
_SECTIONS: dict[Split, str] = {"train": "02-21", "dev": "22", "test": "23"}
_FLAGS = (
    "treebank",
    *("train_trees", "dev_trees", "test_trees"),
    *("train_sections", "dev_sections", "test_sections"),
    *("silver_trees", "silver_per_gold", "collapse_unary", "skip_bad_trees"),
    "new_labels",
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParsingProblem(Problem):
    """A problem whose examples are trees, with flags of `t2t datagen` for treebanks."""

    def add_flags(self, parser: argparse._ActionsContainer) -> None:
        """Adds the flags for treebanks."""
        trees = parser.add_argument_group(
            "trees, for parsing",
            "bracketed trees, plain or .gz: .mrg files, or files with one tree per "
            "line; a directory stands for all .mrg files in it",
        )
        trees.add_argument(
            "--treebank",
            metavar="DIR",
            help="the Wall Street Journal as the LDC distributes it "
            "(wsj/SS/wsj_SSNN.mrg), from which all splits are taken that have no "
            "other flag",
        )
        for split in get_args(Split):
            trees.add_argument(f"--{split}_trees", metavar="PATH", nargs="+")
        for split in get_args(Split):
            trees.add_argument(
                f"--{split}_sections",
                metavar="LIST",
                help="sections (02-21), files (0001-0159) or a list (00,01,24) to read "
                f"from --treebank or --{split}_trees (default for --treebank: "
                f"{_SECTIONS[split]})",
            )
        _add_silver_flags(trees)
        _add_label_flags(trees)

    def with_flags(self, args: argparse.Namespace) -> Self:
        """Returns the problem with the treebanks that the flags name.

        New symbols in the gold training trees are added to the problem's symbols.

        Raises:
            UserError: the flags cannot be used with the problem or with each other.
        """
        flags = [name for name in _FLAGS if getattr(args, name)]
        if not isinstance(self.text_processor, Trees):
            if flags:
                raise UserError(
                    f"--{flags[0]}: problem '{self.name}' does not yield trees; give "
                    f"--problem {self.data_name}, whose data it reads"
                )
            return self
        self._refuse_text_flags(args)
        gold = _gold(self.text_processor, args)
        if not gold and flags:
            raise UserError(
                f"--{flags[0]} needs --treebank, or --train_trees, --dev_trees ..., "
                "beside it"
            )
        problem = self
        sources: dict[Split, Source] = {**self.sources, **gold}
        if train := gold.get("train"):
            silver_per_gold = _silver_per_gold(self.name, self.text_processor, args)
            problem = self.with_symbols(train.symbols(self.symbols))
            if silver_per_gold:
                sources["train"] = _mix(train, problem, silver_per_gold, args)
        for split, source in gold.items():
            if split != "train":
                source.check()
        return problem.replace(sources=sources)

    def _refuse_text_flags(self, args: argparse.Namespace) -> None:
        """Refuses the flags of `t2t datagen` that name files of texts."""
        for split in get_args(Split):
            for flag in (f"{split}_source", f"{split}_target"):
                if getattr(args, flag, None):
                    raise UserError(
                        f"--{flag}: problem '{self.name}' yields trees; give "
                        f"--{split}_trees"
                    )
        if args.mixture:
            raise UserError(
                f"--mixture: problem '{self.name}' yields trees; give --train_trees "
                "and --silver_trees"
            )


def _add_silver_flags(trees: argparse._ArgumentGroup) -> None:
    trees.add_argument(
        "--silver_trees",
        metavar="PATH",
        nargs="+",
        help="automatically parsed trees, for semi-supervised training; any "
        "number of files",
    )
    trees.add_argument(
        "--silver_per_gold",
        type=positive,
        metavar="N",
        help="silver trees for each gold tree; gold trees are repeated as "
        "necessary (default: the problem's)",
    )


def _add_label_flags(trees: argparse._ArgumentGroup) -> None:
    trees.add_argument(
        "--collapse_unary",
        action="store_true",
        help="collapse X over X into one constituent in training trees (default: "
        "keep both, as in the other splits, because EVALB counts both)",
    )
    trees.add_argument(
        "--skip_bad_trees",
        action="store_true",
        help="skip and count trees that cannot be used (default: stop at the first)",
    )
    trees.add_argument(
        "--new_labels",
        action="store_true",
        help="accept labels and tags that no known treebank has (default: stop if "
        "more than 1%% of the trees have one)",
    )


def _gold(trees: Trees, args: argparse.Namespace) -> "dict[Split, TreebankSource]":
    """Returns the treebank of each split that the flags name."""
    from .treebank import TreebankSource

    gold: dict[Split, TreebankSource] = {}
    for split in get_args(Split):
        paths = getattr(args, f"{split}_trees")
        sections = getattr(args, f"{split}_sections") or ""
        if args.treebank and not paths:
            paths = [args.treebank]
            sections = sections or _SECTIONS[split]
        if paths:
            gold[split] = TreebankSource(
                paths,
                sections=sections,
                pos_tags=trees.pos_tags,
                collapse_unary=args.collapse_unary and split == "train",
                skip_bad=args.skip_bad_trees,
                new_labels=args.new_labels,
            )
        elif sections:
            raise UserError(f"--{split}_sections needs --treebank or --{split}_trees")
    return gold


def _mix(
    train: "TreebankSource",
    problem: Problem,
    silver_per_gold: int,
    args: argparse.Namespace,
) -> Source:
    """Returns the gold training trees mixed with those of `--silver_trees`."""
    from .treebank import SilverMix

    silver = dataclasses.replace(
        train,
        paths=args.silver_trees,
        sections="",
        allowed_symbols=frozenset(problem.symbols),
    )
    return SilverMix(train, silver, silver_per_gold)


def _silver_per_gold(name: str, trees: Trees, args: argparse.Namespace) -> int:
    """Returns the number of silver trees for each gold tree; 0: there are none."""
    ratio = args.silver_per_gold or trees.silver_per_gold
    if args.silver_trees and not ratio:
        raise UserError(
            f"--silver_trees: problem '{name}' has no ratio for them; give "
            "--silver_per_gold, or use a problem such as parsing_wsj_semi"
        )
    if ratio and not args.silver_trees:
        raise UserError(
            f"problem '{name}': give --silver_trees, automatically parsed trees"
            if trees.silver_per_gold
            else "--silver_per_gold needs --silver_trees"
        )
    return ratio


def _f1_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "gold",
        metavar="GOLD",
        help="bracketed trees, one per line; or a treebank (a .mrg file, or a "
        "directory of .mrg files)",
    )
    parser.add_argument("test", metavar="TEST", help="trees to score, one per line")
    parser.add_argument(
        "--prm", metavar="FILE", help="EVALB's parameters (default: COLLINS.prm)"
    )


def _f1(args: argparse.Namespace) -> dict[str, Any]:
    from .evalb import COLLINS, evaluate_files, read_parameters

    parameters = read_parameters(args.prm) if args.prm else COLLINS
    return evaluate_files(args.gold, args.test, parameters).to_dict()


def _show_f1(result: dict[str, Any]) -> str:
    """Formats EVALB's report, followed by a score that EVALB lacks."""
    from .evalb_scores import evalb_report, summaries

    lines = [evalb_report(result), "-- Beyond EVALB --"]
    for title, summary in summaries(result):
        f1 = summary["f1_errors_as_zero"]
        lines.append(f"FMeasure, errors as zero  = {f1:6.2f}  ({title})")
    return "\n".join(lines)


COMMAND = Command(
    "score bracketed trees as EVALB does",
    _f1_flags,
    _f1,
    _show_f1,
    next_command=lambda args: (
        f"t2t compare {args.test} OTHER --references {args.gold} --input SOURCES "
        "--problem parsing_wsj"
    ),
    group="judging a model",
)
