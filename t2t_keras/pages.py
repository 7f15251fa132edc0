"""The frame and the style sheet of all HTML pages.

A page that is one file needs neither network nor framework. It is a template of Jinja2
that extends `html_page.html`; `templates` finds both. `html_parts.html` has macros of
what several pages show. A server sends `style_sheet()` as a separate file. The head of
`html_page.css` lists the classes and the variables of colours that a page may use.
Rules that a page adds take their colours from these variables, so that they suit both
modes.
"""

import functools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


_FOLDER = Path(__file__).parent


@functools.cache
def templates(folder: Path) -> "Environment":
    """Returns the templates of a folder, which escape the values that they show.

    A `markupsafe.Markup` is HTML and stays as it is, and so do all values in a template
    of Markdown. A template that extends `html_page.html` has the blocks `title`,
    `style` for further rules, and `body`.
    """
    from jinja2 import (
        Environment,
        FileSystemLoader,
        StrictUndefined,
        select_autoescape,
    )
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([folder, _FOLDER]),
        autoescape=select_autoescape(disabled_extensions=["md"], default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["style_sheet"] = Markup(style_sheet())
    environment.filters["breakable"] = breakable
    return environment


def breakable(value: object) -> "Markup":
    """Returns a value as HTML that is broken after signs, so that its names are not.

    It is a filter of all templates, for values such as `linear_warmup*rsqrt_decay`.
    """
    from markupsafe import Markup

    parts = re.split(r"(?<=[*/,=|])(?=\S)", str(value))
    return Markup("<wbr>").join(parts)


def folded_command(words: Sequence[str]) -> str:
    """Returns a command with a flag on each line, for the macro `command`."""
    lines: list[list[str]] = [[]]
    for word in words:
        if word.startswith("--"):
            lines.append([])
        lines[-1].append(word)
    return " \\\n    ".join(map(shlex.join, lines))


def style_sheet() -> str:
    """Returns the style sheet of all pages."""
    return (_FOLDER / "html_page.css").read_text(encoding="utf-8")
