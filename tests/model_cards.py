"""Reads a model card as a renderer of Markdown does, for tests of its content."""

import dataclasses
from pathlib import Path
from typing import Any

import yaml
from markdown_it import MarkdownIt


@dataclasses.dataclass
class Section:
    """What stands below a heading: paragraphs and items of lists, tables, and code."""

    texts: list[str] = dataclasses.field(default_factory=list)
    tables: list[list[list[str]]] = dataclasses.field(default_factory=list)
    code: list[str] = dataclasses.field(default_factory=list)

    def rows(self, head: str) -> list[list[str]]:
        """Returns the rows of the only table whose first column has this head."""
        (found,) = (table[1:] for table in self.tables if table[0][0] == head)
        return found

    @property
    def named(self) -> dict[str, str]:
        """The rows of the tables without a head."""
        tables = (table[1:] for table in self.tables if not any(table[0]))
        return {row[0]: row[1] for rows in tables for row in rows}


def read_card(path: Path) -> tuple[dict[str, Any], dict[str, Section]]:
    """Returns the YAML of a card, and its sections by title, the first one's is ""."""
    text = path.read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    sections = {"": Section()}
    current = sections[""]
    inside = ""
    for token in MarkdownIt("commonmark").enable("table").parse(body):
        if token.type in ("heading_open", "paragraph_open", "th_open", "td_open"):
            inside = token.type
        elif token.type == "table_open":
            current.tables.append([])
        elif token.type == "tr_open":
            current.tables[-1].append([])
        elif token.type == "fence":
            current.code.append(token.content)
        elif token.type == "inline":
            shown = "".join(child.content for child in token.children)
            kinds = {child.type for child in token.children}
            assert kinds <= {"text", "code_inline", "text_special"}, token.content
            if inside == "heading_open":
                current = sections[shown] = Section()
            elif inside == "paragraph_open":
                current.texts.append(shown)
            else:
                current.tables[-1][-1].append(shown)
    assert all(
        len({len(row) for row in table}) == 1
        for section in sections.values()
        for table in section.tables
    )
    return yaml.safe_load(head), sections
