"""The frame and the style sheet of all HTML pages.

A page that is one file is `html_page(title, body)`; it needs neither network nor
framework. A server sends `style_sheet()` as a separate file. The head of
`html_page.css` lists the classes and the variables of colours that a page may use.
Rules that a page adds take their colours from these variables, so that they suit both
modes.
"""

import html
from collections.abc import Iterable
from pathlib import Path

_FRAME = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>
{style}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def style_sheet() -> str:
    """Returns the style sheet of all pages."""
    return Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


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
    return _FRAME.format(
        title=html.escape(title), style=style_sheet() + style, body=body
    )


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
