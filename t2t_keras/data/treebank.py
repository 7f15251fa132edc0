"""Treebanks as examples: sentences and the symbols of their trees."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from t2t_keras.errors import UserError
from t2t_keras.problem import Pair
from t2t_keras.text.linearise import linearise
from t2t_keras.text.tree import read_trees


@dataclasses.dataclass(frozen=True)
class TreebankSource:
    """A `Source` of pairs such as ("dogs run", "S NP NNS /NP VP VBP /VP /S").

    The trees are prepared as parsers are trained on them, see `text.tree.prepare`.

    Attributes:
        paths: one or more files (bracketed trees, plain or gzipped) or directories of
            `.mrg` files.
        on_bad: called with the error for each tree that cannot be used, which is then
            left out; without it, the first such tree raises `UserError`.
    """

    paths: str | Path | Sequence[str | Path]
    on_bad: Callable[[UserError], None] | None = None

    def __call__(self) -> Iterator[Pair]:
        """Yields the words and the symbols of every tree, separated by spaces."""
        one = isinstance(self.paths, str | Path)
        for path in [self.paths] if one else self.paths:
            for tree in read_trees(path, on_bad=self.on_bad):
                yield " ".join(tree.words()), " ".join(linearise(tree))
