"""The class of the tables of counterparts."""

import dataclasses
from collections.abc import Iterator, Mapping


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """The names of one command, or one section of settings, of another toolkit.

    Attributes:
        toolkit: the toolkit.
        command: the command or section that has the names, for messages.
        noun: what a name is: "flag", "hyper-parameter", "key" or "program".
        contexts: the contexts in which users type the names here (see
            `t2t_keras.entry_points.counterpart`); a sentence mentions flags of the
            first command without the command's name.
        rows: the sentence for each name. Names with the same sentence are separated by
            spaces. They have no leading hyphens, except for short ones (`-m`).
            `name=value` is for one value only.
    """

    toolkit: str
    command: str
    noun: str
    contexts: tuple[str, ...]
    rows: Mapping[str, str]

    def entries(self) -> Iterator[tuple[str, str]]:
        """Yields each name, or `name=value`, with its sentence."""
        for names, sentence in self.rows.items():
            for name in names.split():
                yield name, sentence

    def find(self, name: str, value: str, exact: bool) -> str:
        """Returns the sentence for a name; "" if the table does not have it.

        Args:
            name: the name, without leading hyphens.
            value: the value in a row for one value; "": the row for all values.
            exact: whether hyphens and underscores, and upper and lower case, differ.
        """
        key = f"{name}={value}" if value else name
        if exact:
            return dict(self.entries()).get(key, "")
        sentences = {}
        for entry, sentence in self.entries():
            sentences[_normalize(entry)] = sentence
        return sentences.get(_normalize(key), "")


def _normalize(entry: str) -> str:
    """Returns a name, or `name=value`, with a name in lower case and underscores."""
    name, equals, value = entry.partition("=")
    stem = name.lstrip("-")
    hyphens = name[: len(name) - len(stem)]
    return hyphens + stem.replace("-", "_").lower() + equals + value
