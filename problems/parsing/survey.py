"""Counts what the reader of treebanks does not know, and stops if that is much."""

import dataclasses

from t2t_keras.errors import UserError

from .labels import unknown_label
from .tree import Tree

_LARGEST_SHARE = 0.01  # of trees


@dataclasses.dataclass
class Survey:
    """What is unknown in the trees that are read.

    Attributes:
        accepts_labels: whether labels that no published treebank has are taken.
        trees: number of trees.
        labels: number of trees with an unknown label.
        lines: number of unknown lines between trees, which are left out.
        first_label: the first tree with an unknown label: its place and the bracket.
        first_line: the first unknown line: its place and text.
    """

    accepts_labels: bool = False
    trees: int = 0
    labels: int = 0
    lines: int = 0
    first_label: str = ""
    first_line: str = ""

    def add_tree(self, place: str, tree: Tree) -> None:
        """Counts a prepared tree."""
        self.trees += 1
        if not self.accepts_labels and (bracket := unknown_label(tree)):
            self.labels += 1
            self.first_label = self.first_label or f"{place}: {bracket}"

    def add_line(self, place: str, line: str) -> None:
        """Counts an unknown line between trees."""
        self.lines += 1
        self.first_line = self.first_line or f"{place}: '{line.strip():.60}'"

    def sentences(self) -> list[str]:
        """Returns a sentence about the unknown labels and one about the lines."""
        found = []
        if self.labels:
            has = "has" if self.labels == 1 else "have"
            found.append(
                f"{self.labels:,} of {_trees(self.trees)} {has} a label that no known "
                f"treebank has, the first at {self.first_label}"
            )
        if self.lines:
            stands = "line stands" if self.lines == 1 else "lines stand"
            found.append(
                f"{self.lines:,} unknown {stands} between {_trees(self.trees)}, the "
                f"first at {self.first_line}"
            )
        return found

    def check(self) -> None:
        """Refuses a treebank of which too much is unknown.

        Raises:
            UserError: more than 1% of the trees have an unknown label, or there are as
                many unknown lines.
        """
        largest = self.trees * _LARGEST_SHARE
        if self.lines > largest:
            raise UserError(f"{self.sentences()[-1]}; remove lines that are not trees")
        if self.labels > largest:
            raise UserError(
                f"{self.sentences()[0]}; give --new_labels if all labels are "
                "constituents or tags, else remove the brackets that are not"
            )


def _trees(count: int) -> str:
    return "1 tree" if count == 1 else f"{count:,} trees"
