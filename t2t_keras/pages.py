"""The frame and the style sheet of all HTML pages.

A page that is one file needs neither network nor framework. It is a template of Jinja2
that extends `html_page.html`, with `templates`, or `html_page(title, body)`. A server
sends `style_sheet()` as a separate file. The head of `html_page.css` lists the classes
and the variables of colours that a page may use. Rules that a page adds take their
colours from these variables, so that they suit both modes.
"""

import functools
import html
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


_FOLDER = Path(__file__).parent


@functools.cache
def templates(folder: Path = _FOLDER) -> "Environment":
    """Returns the templates of a folder, which escape the values that they show.

    A value of `markupsafe.Markup` is HTML and stays as it is. A template that extends
    `html_page.html` has the blocks `title`, `style` for further rules, and `body`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader([folder, _FOLDER]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals["style_sheet"] = Markup(style_sheet())
    return environment


def style_sheet() -> str:
    """Returns the style sheet of all pages."""
    return (_FOLDER / "html_page.css").read_text(encoding="utf-8")


def html_page(title: str, body: str, style: str = "", script: str = "") -> str:
    """Returns a page in one file, which loads nothing.

    Args:
        title: its title, as text.
        body: HTML for the body, whose texts the caller has escaped.
        style: further rules, after those of `style_sheet`.
        script: a program that runs when the body has been read. It must not contain
            `</script`, so data belong into the body, see `json_element`.
    """
    if script:
        body += f"\n<script>\n{script}\n</script>"
    from markupsafe import Markup

    frame = templates().get_template("html_page.html")
    return frame.render(title=title, style=Markup(style), body=Markup(body))


def texts_list(rows: Iterable[tuple[str, str]]) -> str:
    """Returns texts below their names, as a list of the class `texts`.

    The direction of writing depends on each text: a source may be in Arabic.

    Args:
        rows: the name, as text, and HTML for the text, which the caller has escaped.
    """
    entries = []
    for name, text in rows:
        entries.append(f'<dt>{html.escape(name)}</dt><dd dir="auto">{text}</dd>')
    return '<dl class="texts">\n' + "\n".join(entries) + "\n</dl>"


def json_element(element_id: str, text: str) -> str:
    """Returns an element with JSON that a script reads by `JSON.parse(textContent)`.

    Args:
        element_id: its id.
        text: the JSON.
    """
    # In JSON, "<" stands in strings only; escaped, no string can end the element.
    escaped = text.replace("<", "\\u003c")
    return f'<script type="application/json" id="{element_id}">{escaped}</script>'
