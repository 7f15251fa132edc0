"""The command line of parsing: flags of `t2t datagen`, and the command `f1`."""

import dataclasses
from typing import TYPE_CHECKING, ClassVar, Self

from t2t_keras.cli.command import REQUIRED, Command, CommandResult, FlagGroup, quoted
from t2t_keras.errors import UserError
from t2t_keras.options import option
from t2t_keras.problem import SPLITS, Problem, Source, Split

from .task import Trees

if TYPE_CHECKING:
    from .treebank import TreebankSource

# The standard division of the Wall Street Journal.
_SECTIONS: dict[Split, str] = {"train": "02-21", "dev": "22", "test": "23"}
_TREES = FlagGroup(
    "trees, for parsing",
    "bracketed trees, plain or .gz: .mrg files, or files with one tree per line; a "
    "directory stands for all .mrg files in it",
)


def _trees(split: Split) -> tuple[str, ...]:
    """Returns the field for the trees of a split."""
    return option((), f"trees of {split}", metavar="PATH ...", group=_TREES)


def _sections(split: Split) -> str | None:
    """Returns the field for the sections of a split."""
    return option(
        None,
        "sections (02-21), files (0001-0159) or a list (00,01,24) to read from "
        f"--treebank or --{split}_trees (default for --treebank: {_SECTIONS[split]})",
        metavar="LIST",
        group=_TREES,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class TreeFlags:
    """The flags of `t2t datagen` for treebanks."""

    treebank: str | None = option(
        None,
        "the Wall Street Journal as the LDC distributes it (wsj/SS/wsj_SSNN.mrg), from "
        "which all splits are taken that have no other flag",
        metavar="DIR",
        group=_TREES,
    )
    train_trees: tuple[str, ...] = _trees("train")
    dev_trees: tuple[str, ...] = _trees("dev")
    test_trees: tuple[str, ...] = _trees("test")
    train_sections: str | None = _sections("train")
    dev_sections: str | None = _sections("dev")
    test_sections: str | None = _sections("test")
    silver_trees: tuple[str, ...] = option(
        (),
        "automatically parsed trees, for semi-supervised training; any number of files",
        metavar="PATH ...",
        group=_TREES,
    )
    silver_per_gold: int | None = option(
        None,
        "silver trees for each gold tree; gold trees are repeated as necessary "
        "(default: the problem's)",
        ge=1,
        group=_TREES,
    )
    collapse_unary: bool = option(
        False,
        "collapse X over X into one constituent in training trees (default: keep both, "
        "as in the other splits, because EVALB counts both)",
        group=_TREES,
    )
    skip_bad_trees: bool = option(
        False,
        "skip and count trees that cannot be used (default: stop at the first)",
        group=_TREES,
    )
    new_labels: bool = option(
        False,
        "accept labels and tags that no known treebank has (default: stop if more than "
        "1% of the trees have one)",
        group=_TREES,
    )

    def gold(self, trees: Trees) -> "dict[Split, TreebankSource]":
        """Returns the treebank of each split that the flags name.

        Args:
            trees: the problem's text processor.

        Raises:
            UserError: sections are given without trees.
        """
        from .treebank import TreebankSource

        gold: dict[Split, TreebankSource] = {}
        for split in SPLITS:
            paths = getattr(self, f"{split}_trees")
            sections = getattr(self, f"{split}_sections") or ""
            if self.treebank and not paths:
                paths = [self.treebank]
                sections = sections or _SECTIONS[split]
            if paths:
                gold[split] = TreebankSource(
                    list(paths),
                    sections=sections,
                    pos_tags=trees.pos_tags,
                    collapse_unary=self.collapse_unary and split == "train",
                    skip_bad=self.skip_bad_trees,
                    new_labels=self.new_labels,
                )
            elif sections:
                raise UserError(
                    f"--{split}_sections needs --treebank or --{split}_trees"
                )
        return gold


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParsingProblem(Problem):
    """A problem whose examples are trees, with flags of `t2t datagen` for treebanks."""

    flags: ClassVar[type | None] = TreeFlags

    def with_flags(self, flags: TreeFlags) -> Self:
        """Returns the problem with the treebanks that the flags name.

        New symbols in the gold training trees are added to the problem's symbols.

        Raises:
            UserError: the flags cannot be used with the problem or with each other.
        """
        given = [name for name, value in vars(flags).items() if value]
        if not isinstance(self.text_processor, Trees):
            if given:
                raise UserError(
                    f"--{given[0]}: problem '{self.name}' does not yield trees; give "
                    f"--problem {self.data_name}, whose data it reads"
                )
            return self
        gold = flags.gold(self.text_processor)
        if not gold and given:
            raise UserError(
                f"--{given[0]} needs --treebank, or --train_trees, --dev_trees ..., "
                "beside it"
            )
        problem = self
        sources: dict[Split, Source] = {**self.sources, **gold}
        if train := gold.get("train"):
            silver_per_gold = _silver_per_gold(self.name, self.text_processor, flags)
            problem = self.with_symbols(train.symbols(self.symbols))
            if silver_per_gold:
                sources["train"] = _mix(
                    train, problem, silver_per_gold, flags.silver_trees
                )
        for split, source in gold.items():
            if split != "train":
                source.check()
        return problem.replace(sources=sources)


def _mix(
    train: "TreebankSource",
    problem: Problem,
    silver_per_gold: int,
    paths: tuple[str, ...],
) -> Source:
    """Returns the gold training trees mixed with those of `--silver_trees`."""
    from .treebank import SilverMix

    silver = dataclasses.replace(
        train,
        paths=list(paths),
        sections="",
        allowed_symbols=frozenset(problem.symbols),
    )
    return SilverMix(train, silver, silver_per_gold)


def _silver_per_gold(name: str, trees: Trees, flags: TreeFlags) -> int:
    """Returns the number of silver trees for each gold tree; 0: there are none."""
    ratio = flags.silver_per_gold or trees.silver_per_gold
    if flags.silver_trees and not ratio:
        raise UserError(
            f"--silver_trees: problem '{name}' has no ratio for them; give "
            "--silver_per_gold, or use a problem such as parsing_wsj_semi"
        )
    if ratio and not flags.silver_trees:
        raise UserError(
            f"problem '{name}': give --silver_trees, automatically parsed trees"
            if trees.silver_per_gold
            else "--silver_per_gold needs --silver_trees"
        )
    return ratio


@dataclasses.dataclass(kw_only=True)
class F1(Command):
    """Scores bracketed trees as EVALB does."""

    summary = "score bracketed trees as EVALB does"
    heading = "judging a model"

    gold: str = option(
        REQUIRED,
        "bracketed trees, one per line; or a treebank (a .mrg file, or a directory of "
        ".mrg files)",
        metavar="GOLD",
        positional=True,
    )
    test: str = option(
        REQUIRED, "trees to score, one per line", metavar="TEST", positional=True
    )
    prm: str | None = option(
        None, "EVALB's parameters (default: COLLINS.prm)", metavar="FILE"
    )

    def run(self) -> CommandResult:
        """Returns EVALB's scores."""
        from .evalb import COLLINS, evaluate_files, read_parameters

        parameters = read_parameters(self.prm) if self.prm else COLLINS
        return evaluate_files(self.gold, self.test, parameters).to_dict()

    def show(self, result: CommandResult) -> str:
        """Formats EVALB's report, followed by a score that EVALB lacks."""
        from .evalb_scores import evalb_report, summaries

        lines = [evalb_report(result), "-- Beyond EVALB --"]
        for title, summary in summaries(result):
            f1 = summary["f1_errors_as_zero"]
            lines.append(f"FMeasure, errors as zero  = {f1:6.2f}  ({title})")
        return "\n".join(lines)

    def next_command(self) -> str:
        """Returns the command that compares the trees with those of another model."""
        return (
            f"t2t compare {quoted(self.test)} OTHER --references {quoted(self.gold)} "
            "--input SOURCES --problem parsing_wsj"
        )


COMMAND = F1
