"""Writes the tables of counterparts into the pages of `docs/`.

    python -m t2t_keras.plugins.interop.counterparts.documents

A table stands between `<!-- generated: counterparts of NAME -->` and
`<!-- end of counterparts of NAME -->`; the rest of a page is left as it is.
"""

import re
from pathlib import Path

from .lookup import TABLES
from .table import Table

_DOCS = Path(__file__).parents[3] / "docs"
PAGES = tuple(
    _DOCS / f"from-{name}.md"
    for name in ("tensor2tensor", "fairseq", "opennmt-tf", "marian")
)
_BLOCK = re.compile(
    r"(<!-- generated: counterparts of ([^>]+) -->\n).*?(<!-- end of counterparts of "
    r"\2 -->)",
    re.DOTALL,
)


def block_name(table: Table) -> str:
    """Returns the name of a table's block, such as `t2t-trainer, train`."""
    return f"{table.command}, {table.places[0]}"


def markdown(table: Table) -> str:
    """Returns a table for a page."""
    lines = [f"| {table.command} | here |", "|---|---|"]
    for names, sentence in table.rows.items():
        shown = ", ".join(f"`{_shown(name, table)}`" for name in names.split())
        # A program's main name is enough for people.
        if table.noun == "program":
            shown = shown.split(", ")[0]
        lines.append(f"| {shown} | {sentence} |")
    return "\n".join(lines) + "\n"


def _shown(name: str, table: Table) -> str:
    """Returns a name, or `name=value`, as it is typed in its toolkit."""
    if table.noun != "flag" or name.startswith("-"):
        return name
    return "--" + name.replace("=", " ", 1)


def generated(text: str) -> str:
    """Returns the text of a page with its tables made again.

    Raises:
        KeyError: a block has the name of no table.
    """
    tables = {block_name(table): markdown(table) for table in TABLES}
    return _BLOCK.sub(lambda found: f"{found[1]}{tables[found[2]]}{found[3]}", text)


def main() -> None:
    """Writes all pages."""
    for page in PAGES:
        page.write_text(generated(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
