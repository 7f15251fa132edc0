"""Counts unknown labels and lines in treebanks, and refuses too many."""

import dataclasses

from t2t_keras.errors import UserError, quantity

from .labels import unknown_label
from .tree import Tree

_MAX_SHARE = 0.01  # of trees


@dataclasses.dataclass
class Survey:
    """Counts of unknown labels and lines.

    Attributes:
        accepts_labels: whether labels that no published treebank has are taken.
        trees: number of trees.
        labels: number of trees with an unknown label.
        lines: number of unknown lines between trees, which are left out.
        first_label: location and bracket of the first unknown label.
        first_line: location and text of the first unknown line.
    """

    accepts_labels: bool = False
    trees: int = 0
    labels: int = 0
    lines: int = 0
    first_label: str = ""
    first_line: str = ""

    def add_tree(self, location: str, tree: Tree) -> None:
        """Counts a prepared tree; `location` is its file:line."""
        self.trees += 1
        if not self.accepts_labels and (bracket := unknown_label(tree)):
            self.labels += 1
            self.first_label = self.first_label or f"{location}: {bracket}"

    def add_line(self, location: str, line: str) -> None:
        """Counts an unknown line between trees."""
        self.lines += 1
        self.first_line = self.first_line or f"{location}: '{line.strip():.60}'"

    def sentences(self) -> list[str]:
        """Returns a sentence about the unknown labels and one about the lines."""
        sentences = []
        if self.labels:
            has = "has" if self.labels == 1 else "have"
            sentences.append(
                f"{self.labels:,} of {_trees(self.trees)} {has} a label that no known "
                f"treebank has, the first at {self.first_label}"
            )
        if self.lines:
            stands = "line stands" if self.lines == 1 else "lines stand"
            sentences.append(
                f"{self.lines:,} unknown {stands} between {_trees(self.trees)}, the "
                f"first at {self.first_line}"
            )
        return sentences

    def check(self) -> None:
        """Refuses a treebank with many unknown labels or lines.

        Raises:
            UserError: more than 1% of the trees have an unknown label, or there are as
                many unknown lines.
        """
        limit = self.trees * _MAX_SHARE
        if self.lines > limit:
            raise UserError(f"{self.sentences()[-1]}; remove lines that are not trees")
        if self.labels > limit:
            raise UserError(
                f"{self.sentences()[0]}; give --new_labels if all labels are "
                "constituents or tags, else remove the brackets that are not"
            )


def _trees(count: int) -> str:
    return quantity(count, "trees")
