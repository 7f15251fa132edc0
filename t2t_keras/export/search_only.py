"""Engines whose graph searches, but takes no prefixes and returns no attention."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, NoReturn

import numpy as np

from t2t_keras.decoding.alignment import AlignmentHead
from t2t_keras.decoding.engine import Source
from t2t_keras.decoding.options import DecodingOptions
from t2t_keras.errors import UserError


class SearchOnlyEngine:
    """Refuses what the graph of an export cannot do; see `Engine`.

    Attributes:
        graph_name: what messages call the graph.
    """

    graph_name: ClassVar[str]

    def require_no_prefixes(self, sources: Sequence[Source]) -> None:
        """Refuses sources with prefixes."""
        if any(source.prefix for source in sources):
            self._refuse_prefixes()

    def next_tokens(
        self, sources: Sequence[Source], count: int, options: DecodingOptions
    ) -> NoReturn:
        """Refuses next tokens, because the graph takes no prefixes."""
        self._refuse_prefixes()

    def alignment_head(self, head: AlignmentHead) -> NoReturn:
        """Refuses alignments, because the graph returns no attention."""
        raise UserError(
            f"alignment: {self.graph_name} returns none; load the run directory"
        )

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        head: AlignmentHead,
        options: DecodingOptions,
    ) -> Iterator[tuple[int, np.ndarray]]:
        """Refuses alignments, because the graph returns no attention."""
        self.alignment_head(head)

    def _refuse_prefixes(self) -> NoReturn:
        raise UserError(
            f"prefixes: {self.graph_name} cannot force them; load the run directory"
        )
