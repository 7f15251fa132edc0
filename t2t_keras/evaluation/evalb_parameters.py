"""What EVALB leaves out and takes for equal: its parameters, and its .prm files."""

import dataclasses
import logging
import re
from pathlib import Path

from t2t_keras.errors import UserError

_log = logging.getLogger(__name__)

_INTEGERS = ("DEBUG", "MAX_ERROR", "CUTOFF_LEN", "LABELED")
_LABELS = ("DELETE_LABEL", "DELETE_LABEL_FOR_LENGTH", "QUOTE_LABEL")
_PAIRS = ("EQ_LABEL", "EQ_WORD")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalbParameters:
    """The parameters of an evaluation, as in a .prm file.

    Attributes:
        labeled: whether a bracket's label must match, too.
        cutoff_length: the second summary is of sentences of at most so many words.
        delete_labels: brackets of these labels do not count; leaves with these tags
            are left out together with their words.
        delete_labels_for_length: leaves with these tags do not count in the length
            that decides on the second summary.
        quote_labels: tags of a quotation mark; where only one of two trees leaves the
            mark out, because they disagree on its tag, it is put back.
        equal_labels: pairs of labels or tags that match.
        equal_words: pairs of words that match.
    """

    labeled: bool = True
    cutoff_length: int = 40
    delete_labels: tuple[str, ...] = ()
    delete_labels_for_length: tuple[str, ...] = ()
    quote_labels: tuple[str, ...] = ()
    equal_labels: tuple[tuple[str, str], ...] = ()
    equal_words: tuple[tuple[str, str], ...] = ()

    def labels_match(self, one: str, other: str) -> bool:
        """Whether two labels or tags are equal or declared so."""
        return one == other or _in(self.equal_labels, one, other)

    def words_match(self, one: str, other: str) -> bool:
        """Whether two words are equal or declared so."""
        return one == other or _in(self.equal_words, one, other)

    def deletes_bracket(self, label: str) -> bool:
        """Whether a bracket of this label does not count."""
        return any(self.labels_match(label, deleted) for deleted in self.delete_labels)


# COLLINS.prm, the convention of the Penn Treebank's published results.
COLLINS = EvalbParameters(
    delete_labels=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    delete_labels_for_length=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)


def read_parameters(path: str | Path) -> EvalbParameters:
    """Reads a .prm file.

    DEBUG and MAX_ERROR are read and have no effect: nothing stops an evaluation. What
    EVALB warns of and leaves out, an unknown parameter or a pair that is none, is left
    out here with a warning, too. A number is what a value begins with.

    Raises:
        UserError: the file cannot be read, or a parameter has no value.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read as a .prm file ({error})") from None
    values: dict[str, list[str]] = {
        name: [] for name in (*_INTEGERS, *_LABELS, *_PAIRS)
    }
    for number, line in enumerate(lines, 1):
        line = line.rstrip()
        if line.startswith("#") or len(line) < 3:  # EVALB's own rule
            continue
        # A line that begins with a space has no name.
        name, _, value = re.sub(r"\s+", " ", line, count=1).partition(" ")
        if name not in values:
            _log.warning("%s:%d: EVALB has no parameter '%s'", path, number, name)
            continue
        if not value:
            raise UserError(f"{path}:{number}: {name} needs a value")
        if name in _INTEGERS:
            digits = re.match(r"[+-]?\d+", value)
            if digits is None:
                raise UserError(
                    f"{path}:{number}: {name} needs a number, not '{value}'"
                )
            value = digits[0]
        if name in _PAIRS and len(value.split()) != 2:
            _log.warning(
                "%s:%d: %s needs two values, not '%s'", path, number, name, value
            )
            continue
        values[name].append(value)
    return EvalbParameters(
        labeled=int((values["LABELED"] or ["1"])[-1]) != 0,
        cutoff_length=int((values["CUTOFF_LEN"] or ["40"])[-1]),
        delete_labels=tuple(values["DELETE_LABEL"]),
        delete_labels_for_length=tuple(values["DELETE_LABEL_FOR_LENGTH"]),
        quote_labels=tuple(values["QUOTE_LABEL"]),
        equal_labels=_pairs(values["EQ_LABEL"]),
        equal_words=_pairs(values["EQ_WORD"]),
    )


def _pairs(values: list[str]) -> tuple[tuple[str, str], ...]:
    """Splits values of two words each."""
    return tuple((one, other) for one, other in map(str.split, values))


def _in(pairs: tuple[tuple[str, str], ...], one: str, other: str) -> bool:
    """Whether a pair is there in either order."""
    return (one, other) in pairs or (other, one) in pairs
