"""The class of the tables of counterparts."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Self


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """The names of one command, or one section of settings, of another toolkit.

    Attributes:
        toolkit: the toolkit.
        command: the command or section that has the names, for messages.
        noun: what a name is: "flag", "hyper-parameter", "key" or "program".
        places: where the names are typed here, see
            `t2t_keras.entry_points.counterpart`; a sentence mentions flags of the
            first command among them without its name.
        rows: the sentence for each name. Names that share one are separated by spaces;
            a name without hyphens before it, except for a short one (`-m`).
            `name=value` is for one value.
    """

    toolkit: str
    command: str
    noun: str
    places: tuple[str, ...]
    rows: Mapping[str, str]

    def entries(self) -> Iterator[tuple[str, str]]:
        """Yields each name, or `name=value`, with its sentence."""
        for names, sentence in self.rows.items():
            for name in names.split():
                yield name, sentence

    def find(self, name: str, value: str, exact: bool) -> str:
        """Returns the sentence for a name; "" if the table does not have it.

        Args:
            name: the name, without hyphens before it.
            value: the value, for a row that has it; "": for the row of all values.
            exact: whether a hyphen and an underscore differ.
        """
        rows = self._exact if exact else self._folded
        form = name if exact else folded(name)
        return rows.get(f"{form}={value}" if value else form, "")

    @property
    def _exact(self) -> dict[str, str]:
        return dict(self.entries())

    @property
    def _folded(self) -> dict[str, str]:
        pairs = ((name.partition("="), text) for name, text in self.entries())
        return {
            folded(name) + equals + value: text for (name, equals, value), text in pairs
        }

    def at(self, *places: str) -> Self:
        """Returns the same names typed elsewhere."""
        return dataclasses.replace(self, places=places)


def folded(name: str) -> str:
    """Returns a name with underscores for hyphens, except for those before it."""
    body = name.lstrip("-")
    return name[: len(name) - len(body)] + body.replace("-", "_").lower()
