"""A self-contained HTML page of the largest differences between systems."""

import html
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from t2t_keras.pages import html_page, texts_list

from .text_differences import mark_differences

_STYLE = """
th:not(:first-child) { text-align: end }
article:focus { outline: 3px solid var(--accent) }
@media (max-width: 40rem) {
  table, tbody, tr, td, th[scope="row"] { display: block }
  th[scope="col"], td:empty { display: none }
  caption { display: block }
  td { padding: 0 0 0 1rem; text-align: start; border: 0 }
  td::before { content: attr(data-name) ": " }
}
"""

_BODY = """\
<h1>{title}</h1>
{tables}
<p>{summary}</p>
<p>Marked words differ from the output of {baseline}:
<del>words only in {baseline}</del>, <ins>words only in this output</ins>. Press Tab, or
<kbd>j</kbd> and <kbd>k</kbd>, to move between sentences.</p>
<main>
{body}
</main>
"""

_SCRIPT = """\
document.addEventListener("keydown", event => {
  const step = { j: 1, k: -1 }[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  const articles = [...document.querySelectorAll("article")];
  const index = articles.indexOf(document.activeElement.closest("article"));
  const next = articles[index < 0 ? 0 : index + step];
  if (next) { next.focus(); next.scrollIntoView({ block: "nearest" }); }
});
"""


class ComparedSentence(NamedTuple):
    """A sentence with the outputs of all systems.

    Attributes:
        line_number: number of its line in the test set, from 1.
        source: the source text; None: it is unknown.
        reference: the correct output.
        outputs: the output of each system.
        scores: the score of each output.
        difference: the difference of scores by which sentences are ordered.
    """

    line_number: int
    source: str | None
    reference: str
    outputs: Sequence[str]
    scores: Sequence[float]
    difference: float


def difference_page(
    systems: Sequence[str],
    tables: Mapping[str, Sequence[Mapping[str, str]]],
    summary: str,
    sentences: Sequence[ComparedSentence],
) -> str:
    """Returns an HTML page with a section for each sentence.

    Args:
        systems: the names of the systems, the baseline first.
        tables: the rows of each metric's table. A row has a text for each column; the
            first column has the names of the systems.
        summary: the sentence above the list.
        sentences: the sentences, in the order of the page.
    """
    title = f"{', '.join(systems[1:])} against {systems[0]}"
    body = _BODY.format(
        title=html.escape(title),
        tables="\n".join(_table(name, rows) for name, rows in tables.items()),
        summary=html.escape(summary),
        baseline=html.escape(systems[0]),
        body="\n".join(_article(systems, sentence) for sentence in sentences),
    )
    return html_page(title, body, _STYLE, _SCRIPT)


def _table(metric: str, rows: Sequence[Mapping[str, str]]) -> str:
    columns = [html.escape(column) for column in rows[0]]
    cells = [f'<th scope="col">{column}</th>' for column in columns]
    lines = ["".join(cells)]
    for row in rows:
        system, *values = map(html.escape, row.values())
        cells = [f'<th scope="row">{system}</th>']
        for column, value in zip(columns[1:], values, strict=True):
            cells.append(f'<td data-name="{column}">{value}</td>')
        lines.append("".join(cells))
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    # A signature is broken between its fields.
    caption = html.escape(metric).replace("|", "|<wbr>")
    return f"<table>\n<caption>{caption}</caption>\n{body}\n</table>"


def _article(systems: Sequence[str], sentence: ComparedSentence) -> str:
    rows = [("reference", html.escape(sentence.reference))]
    if sentence.source is not None:
        rows.insert(0, ("source", html.escape(sentence.source)))
    baseline = sentence.outputs[0]
    outputs = zip(systems, sentence.outputs, sentence.scores, strict=True)
    for index, (name, output, score) in enumerate(outputs):
        text = mark_differences(baseline, output) if index else html.escape(output)
        rows.append((f"{name}: {score:.4g}", text))
    element_id = f"line-{sentence.line_number}"
    return (
        f'<article id="{element_id}" tabindex="0" aria-labelledby="{element_id}-head">'
        f'<h2 id="{element_id}-head">Line {sentence.line_number:,}: '
        f"{sentence.difference:+.4g}</h2>\n{texts_list(rows)}</article>"
    )
