"""EVALB's parameters, and the .prm files that hold them."""

import dataclasses
import logging
import re
from pathlib import Path
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.files.text_files import read_text

_log = logging.getLogger(__name__)

# The fields of `EvalbParameters` by their names in a .prm file, "" for those without
# effect. A line has a number, a label, or a pair of labels or words.
_INTEGER_FIELDS = {
    "LABELED": "labeled",
    "CUTOFF_LEN": "cutoff_length",
    "DEBUG": "",
    "MAX_ERROR": "",
}
_LABEL_FIELDS = {
    "DELETE_LABEL": "delete_labels",
    "DELETE_LABEL_FOR_LENGTH": "delete_labels_for_length",
    "QUOTE_LABEL": "quote_labels",
}
_PAIR_FIELDS = {"EQ_LABEL": "equal_labels", "EQ_WORD": "equal_words"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvalbParameters:
    """The parameters of an evaluation, as in a .prm file.

    Attributes:
        labeled: whether the labels of brackets must match.
        cutoff_length: maximum number of words in sentences of the second summary.
        delete_labels: labels of brackets that do not count, and tags of leaves that are
            left out with their words.
        delete_labels_for_length: tags of leaves that do not count in the length that is
            compared with `cutoff_length`.
        quote_labels: tags of quotation marks; if only one of two trees leaves out a
            mark, because the tags differ, it is restored.
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

    def labels_match(self, gold: str, test: str) -> bool:
        """Returns whether two labels or tags are equal or declared equal."""
        return gold == test or _contains(self.equal_labels, gold, test)

    def words_match(self, gold: str, test: str) -> bool:
        """Returns whether two words are equal or declared equal."""
        return gold == test or _contains(self.equal_words, gold, test)


def _contains(pairs: tuple[tuple[str, str], ...], gold: str, test: str) -> bool:
    """Returns whether a pair occurs, in either order."""
    return (gold, test) in pairs or (test, gold) in pairs


# COLLINS.prm, the convention of the Penn Treebank's published results.
COLLINS = EvalbParameters(
    delete_labels=("TOP", "-NONE-", ",", ":", "``", "''", "."),
    delete_labels_for_length=("-NONE-",),
    equal_labels=(("ADVP", "PRT"),),
)


def read_parameters(path: str | Path) -> EvalbParameters:
    """Reads a .prm file.

    DEBUG and MAX_ERROR have no effect: errors do not stop the evaluation. As in EVALB,
    unknown parameters and malformed pairs are ignored with a warning, and only the
    leading digits of a number are read.

    Raises:
        UserError: the file cannot be read, a parameter has no value, or the file has
            nothing but unknown parameters.
    """
    values: dict[str, Any] = {}
    fields = _INTEGER_FIELDS | _LABEL_FIELDS | _PAIR_FIELDS
    names = set[str]()
    # `read_lines` would refuse a file with a tab in each line, which is a table.
    for line_number, line in enumerate(read_text(path).split("\n"), 1):
        line = line.rstrip()
        if line.startswith("#") or len(line) < 3:  # EVALB's own rule
            continue
        location = f"{path}:{line_number}"
        # A line that begins with a space has no name.
        name, _, value = re.sub(r"\s+", " ", line, count=1).partition(" ")
        names.add(name)
        field = fields.get(name)
        if field is None:
            _log.warning("%s: EVALB has no parameter '%s'", location, name)
        elif not value:
            raise UserError(f"{location}: {name} needs a value")
        elif name in _INTEGER_FIELDS:
            digits = re.match(r"[+-]?\d+", value)
            if digits is None:
                raise UserError(f"{location}: {name} needs a number, not '{value}'")
            values[field] = int(digits[0])
        elif name in _LABEL_FIELDS:
            values[field] = (*values.get(field, ()), value)
        elif len(pair := tuple(value.split())) == 2:
            values[field] = (*values.get(field, ()), pair)
        else:
            warning = "%s: %s needs two values, not '%s'"
            _log.warning(warning, location, name, value)
    if names and names.isdisjoint(fields):
        raise UserError(f"{path} has no parameter of EVALB, such as DELETE_LABEL TOP")
    values.pop("", None)
    return EvalbParameters(**values)
