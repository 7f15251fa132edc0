"""Writes the tables of counterparts into the pages of `docs/`.

    python -m t2t_keras.plugins.interop.counterparts.documents

A table stands between `<!-- generated: counterparts of NAME -->` and
`<!-- end of counterparts of NAME -->`; the text around the tables does not change.
"""

import re
from pathlib import Path

from .lookup import TABLES
from .table import Table

_DOCS = Path(__file__).parents[3] / "docs"
PAGES = (
    _DOCS / "from-tensor2tensor.md",
    _DOCS / "from-fairseq.md",
    _DOCS / "from-opennmt-tf.md",
    _DOCS / "from-marian.md",
)
_BLOCK = re.compile(
    r"(<!-- generated: counterparts of ([^>]+) -->\n).*?(<!-- end of counterparts of "
    r"\2 -->)",
    re.DOTALL,
)


def block_name(table: Table) -> str:
    """Returns the name of a table's block, such as `t2t-trainer, train`."""
    return f"{table.command}, {table.contexts[0]}"


def markdown(table: Table) -> str:
    """Returns a table for a page."""
    lines = [f"| {table.command} | here |", "|---|---|"]
    for entry, sentence in table.rows.items():
        names = entry.split()
        if table.noun == "program":
            # The other names of a program are file names and obsolete names.
            names = names[:1]
        cell = ", ".join(f"`{_typed_name(name, table)}`" for name in names)
        lines.append(f"| {cell} | {sentence} |")
    return "\n".join(lines) + "\n"


def _typed_name(name: str, table: Table) -> str:
    """Returns a name, or `name=value`, as users of the toolkit type it."""
    if table.noun != "flag" or name.startswith("-"):
        return name
    return "--" + name.replace("=", " ", 1)


def generated(text: str) -> str:
    """Returns the text of a page with up-to-date tables.

    Raises:
        KeyError: there is no table with the name of a block.
    """
    tables = {block_name(table): markdown(table) for table in TABLES}

    def replacement(match: re.Match[str]) -> str:
        start, name, stop = match.groups()
        return f"{start}{tables[name]}{stop}"

    return _BLOCK.sub(replacement, text)


def main() -> None:
    """Writes all pages."""
    for page in PAGES:
        page.write_text(generated(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
