"""Writes the tables of counterparts into the pages of `docs/`.

    python docs/_site/counterparts.py

The tables of a toolkit's names of one noun stand between, for example,
`<!-- generated: flags of Marian -->` and `<!-- end of flags of Marian -->`; the text
around them does not change. They list the names that have another name here, each once.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from t2t_keras.plugins.interop.counterparts import Table, tables

_DOCS = Path(__file__).parents[1]
PAGES = (
    _DOCS / "from-tensor2tensor.md",
    _DOCS / "from-fairseq.md",
    _DOCS / "from-opennmt-tf.md",
    _DOCS / "from-marian.md",
)
_NONE = "leave it out"  # begins the sentence of a name without a counterpart
_ALIAS = "the same as "  # begins the sentence of a name that is accepted for ours
# Finds the command, if the sentence names one, and the name of a flag or of its key.
_OPTION = re.compile(
    r"use `(?:t2t (\w+) )?(?:--(?:hparams|decode_hparams) |--)(\w+)(?:[ =][A-Z]+)?`"
)
_BLOCK = re.compile(
    r"(<!-- generated: ([^>]+) -->\n).*?(<!-- end of \2 -->)", re.DOTALL
)


def block_name(table: Table) -> str:
    """Returns the name of the block that has a table, such as `flags of Marian`."""
    return f"{table.noun}s of {table.toolkit}"


def markdown(tables_of_block: Iterable[Table]) -> str:
    """Returns the tables of a block.

    A name has no row if it works here, if it has no counterpart, or if an earlier table
    has the row. Hyphens and the flag that takes a hyper-parameter do not make another
    name.
    """
    listed: set[tuple[str, str]] = set()
    texts = []
    for command, group in itertools.groupby(
        tables_of_block, lambda table: table.command
    ):
        lines = [f"| {command} | here |", "|---|---|"]
        new_names = _new_names(group, listed)
        for sentence, names in new_names.items():
            cell = ", ".join(f"`{name}`" for name in names)
            lines.append(f"| {cell} | {sentence.removeprefix('use ')} |")
        if new_names:
            texts.append("\n".join(lines) + "\n")
    return "\n".join(texts)


def _new_names(
    tables: Iterable[Table], listed: set[tuple[str, str]]
) -> dict[str, list[str]]:
    """Returns the names, as users type them, that a page does not list yet.

    Args:
        tables: the tables of one command.
        listed: the names with their sentences that the page lists; it is extended.
    """
    new_names: dict[str, list[str]] = {}
    for table in tables:
        for sentence, names in table.rows:
            if _keep_their_name(names, sentence, table):
                continue
            if table.noun == "program":
                # The other names of a program are file names and obsolete names.
                names = names[:1]
            for name in names:
                works = sentence == "the same" or sentence.startswith(_ALIAS)
                has_row = not works and not sentence.startswith(_NONE)
                if not has_row or (name, sentence) in listed:
                    continue
                listed.add((name, sentence))
                new_names.setdefault(sentence, []).append(_typed_name(name, table))
    return new_names


def _keep_their_name(names: Sequence[str], sentence: str, table: Table) -> bool:
    """Returns whether names are ours, apart from hyphens and the flag before them."""
    option = _OPTION.fullmatch(sentence)
    if option is None:
        return False
    command, new_name = option.groups()
    long_names = {name.replace("-", "_") for name in names if not name.startswith("-")}
    return command in (None, *table.contexts) and long_names == {new_name}


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
    blocks: dict[str, list[Table]] = {}
    for table in tables():
        blocks.setdefault(block_name(table), []).append(table)

    def replacement(match: re.Match[str]) -> str:
        start, name, stop = match.groups()
        return f"{start}{markdown(blocks[name])}{stop}"

    return _BLOCK.sub(replacement, text)


def main() -> None:
    """Writes all pages."""
    for page in PAGES:
        page.write_text(generated(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
