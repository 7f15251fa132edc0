"""The largest differences between systems as a self-contained HTML page."""

import difflib
import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark }}
body {{ font: 1rem/1.5 sans-serif; margin: 0 auto; padding: 1rem; max-width: 60rem }}
body {{ overflow-wrap: anywhere }}
h1 {{ font-size: 1.4rem }}
h2 {{ font-size: 1.1rem; margin: 0 }}
table {{ border-collapse: collapse }}
caption {{ text-align: left; font-weight: bold; padding-top: 1rem }}
th, td {{ padding: 0.2rem 1rem 0.2rem 0; text-align: right }}
th {{ text-align: left }}
@media (max-width: 40rem) {{
  table, tbody, tr, td, th[scope="row"] {{ display: block }}
  th[scope="col"], td:empty {{ display: none }}
  caption {{ display: block }}
  td {{ padding: 0 0 0 1rem; text-align: left }}
  td::before {{ content: attr(data-name) ": " }}
}}
article {{ border: 1px solid gray; border-radius: 0.4rem }}
article {{ padding: 0.8rem; margin: 1rem 0 }}
article:focus {{ outline: 3px solid #47f }}
dt {{ font-size: 0.85rem; margin-top: 0.5rem; opacity: 0.8 }}
dd {{ margin: 0 }}
del {{ background: #f882 ; color: #c22 }}
ins {{ background: #8f82; color: #070; font-weight: bold }}
@media (prefers-color-scheme: dark) {{ del {{ color: #f99 }} ins {{ color: #8e8 }} }}
</style>
<h1>{title}</h1>
{tables}
<p>{summary}</p>
<p>Words in which an output differs from {baseline} are marked:
<del>words that it lacks</del>, <ins>words that it has instead</ins>. Tab or the keys j
and k move from one sentence to the next.</p>
<main>
{body}
</main>
<script>
document.addEventListener("keydown", event => {{
  const step = {{ j: 1, k: -1 }}[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  const all = [...document.querySelectorAll("article")];
  const now = all.indexOf(document.activeElement.closest("article"));
  const next = all[now < 0 ? 0 : now + step];
  if (next) {{ next.focus(); next.scrollIntoView({{ block: "nearest" }}); }}
}});
</script>
</html>
"""


class SentencePair(NamedTuple):
    """A sentence with the outputs of all systems.

    Attributes:
        number: number of its line, from 1.
        source: its source text; None: not known.
        reference: the correct output.
        outputs: the output of each system.
        scores: the score of each output.
        difference: the key by which sentences are ordered.
    """

    number: int
    source: str | None
    reference: str
    outputs: Sequence[str]
    scores: Sequence[float]
    difference: float


def difference_page(
    systems: Sequence[str],
    tables: Mapping[str, Sequence[Mapping[str, str]]],
    summary: str,
    sentences: Sequence[SentencePair],
) -> str:
    """Returns an HTML page with a section for every sentence.

    Args:
        systems: the systems' names; the others are compared with the first.
        tables: for each metric its rows, texts by the names of the columns; the first
            column has the names of the systems.
        summary: the sentence above the list.
        sentences: the sentences, in the order of the page.
    """
    return _PAGE.format(
        title=html.escape(f"{', '.join(systems[1:])} against {systems[0]}"),
        tables="\n".join(_table(name, rows) for name, rows in tables.items()),
        summary=html.escape(summary),
        baseline=html.escape(systems[0]),
        body="\n".join(_article(systems, sentence) for sentence in sentences),
    )


def marked_words(baseline: str, output: str) -> str:
    """Returns an output in HTML, with the words marked that differ.

    Args:
        baseline: the text to compare with; words that only it has are in `<del>`.
        output: the output; words that only it has are in `<ins>`.
    """
    ours, theirs = baseline.split(), output.split()
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    parts = []
    for kind, start, end, their_start, their_end in matcher.get_opcodes():
        if kind == "equal":
            parts.append(_words(ours[start:end]))
            continue
        for tag, words in (
            ("del", ours[start:end]),
            ("ins", theirs[their_start:their_end]),
        ):
            if words:
                parts.append(f"<{tag}>{_words(words)}</{tag}>")
    return " ".join(parts)


def _words(words: Sequence[str]) -> str:
    return html.escape(" ".join(words))


def _table(name: str, rows: Sequence[Mapping[str, str]]) -> str:
    columns = [html.escape(column) for column in rows[0]]
    lines = ["".join(f'<th scope="col">{column}</th>' for column in columns)]
    for row in rows:
        first, *others = map(html.escape, row.values())
        cells = zip(columns[1:], others, strict=True)
        lines.append(
            f'<th scope="row">{first}</th>'
            + "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in cells)
        )
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    return f"<table>\n<caption>{html.escape(name)}</caption>\n{body}\n</table>"


def _article(systems: Sequence[str], sentence: SentencePair) -> str:
    rows = [("reference", html.escape(sentence.reference))]
    if sentence.source is not None:
        rows.insert(0, ("source", html.escape(sentence.source)))
    baseline = sentence.outputs[0]
    outputs = zip(systems, sentence.outputs, sentence.scores, strict=True)
    for index, (name, output, score) in enumerate(outputs):
        text = marked_words(baseline, output) if index else html.escape(output)
        rows.append((f"{html.escape(name)}: {score:.4g}", text))
    # Each text determines its direction of writing.
    entries = "\n".join(
        f'<dt>{name}</dt><dd dir="auto">{text}</dd>' for name, text in rows
    )
    identity = f"line-{sentence.number}"
    return (
        f'<article id="{identity}" tabindex="0" aria-labelledby="{identity}-head">'
        f'<h2 id="{identity}-head">Line {sentence.number:,}: '
        f"{sentence.difference:+.4g}</h2>\n<dl>\n{entries}\n</dl></article>"
    )
