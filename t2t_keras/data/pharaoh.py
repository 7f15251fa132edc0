"""Word alignments in Pharaoh's format: `0-0 1-2`."""

import re
from typing import NamedTuple

from t2t_keras.errors import UserError
from t2t_keras.problem import Alignment


class Reference(NamedTuple):
    """The links that people gave to a pair (Och and Ney, 2003).

    Attributes:
        sure: the links that an alignment has to have.
        possible: the links that it may have; the sure ones are among them.
    """

    sure: frozenset[tuple[int, int]]
    possible: frozenset[tuple[int, int]]


def format_alignment(alignment: Alignment) -> str:
    """Returns an alignment in Pharaoh's format: `0-0 1-2`."""
    return " ".join(f"{i}-{j}" for i, j in alignment)


def parse_reference(line: str, location: str) -> Reference:
    """Reads a line of links: `0-0 1p2`, where `-` stands for sure, `p` for possible.

    Args:
        line: the line.
        location: the file and the number of the line, for the error message.

    Raises:
        UserError: it has anything else.
    """
    sure = set()
    possible = set()
    for link in line.split():
        match = re.fullmatch(r"(\d+)([-p])(\d+)", link, re.ASCII)
        if match is None:
            raise UserError(
                f"{location}: '{link}' is not a link; write the numbers of the source "
                "and target words from 0, such as 0-0, or 0p0 for a possible link"
            )
        pair = int(match[1]), int(match[3])
        possible.add(pair)
        if match[2] == "-":
            sure.add(pair)
    return Reference(frozenset(sure), frozenset(possible))
