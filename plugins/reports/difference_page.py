"""A self-contained HTML page of the largest differences between systems."""

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
<p>Marked words differ from the output of {baseline}:
<del>words only in {baseline}</del>, <ins>words only in this output</ins>. Press Tab, or
j and k, to move between sentences.</p>
<main>
{body}
</main>
<script>
document.addEventListener("keydown", event => {{
  const step = {{ j: 1, k: -1 }}[event.key];
  if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
  const articles = [...document.querySelectorAll("article")];
  const index = articles.indexOf(document.activeElement.closest("article"));
  const next = articles[index < 0 ? 0 : index + step];
  if (next) {{ next.focus(); next.scrollIntoView({{ block: "nearest" }}); }}
}});
</script>
</html>
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
    return _PAGE.format(
        title=html.escape(f"{', '.join(systems[1:])} against {systems[0]}"),
        tables="\n".join(_table(name, rows) for name, rows in tables.items()),
        summary=html.escape(summary),
        baseline=html.escape(systems[0]),
        body="\n".join(_article(systems, sentence) for sentence in sentences),
    )


def mark_differences(baseline: str, output: str) -> str:
    """Returns an output as HTML, with its differences from the baseline marked.

    Args:
        baseline: the text to compare with; words only in it are marked by `<del>`.
        output: the output; words only in it are marked by `<ins>`.
    """
    baseline_words = baseline.split()
    output_words = output.split()
    matcher = difflib.SequenceMatcher(
        None, baseline_words, output_words, autojunk=False
    )
    parts = []
    for operation, i, i_stop, j, j_stop in matcher.get_opcodes():
        deleted = _join_words(baseline_words[i:i_stop])
        inserted = _join_words(output_words[j:j_stop])
        if operation == "equal":
            parts.append(inserted)
            continue
        if deleted:
            parts.append(f"<del>{deleted}</del>")
        if inserted:
            parts.append(f"<ins>{inserted}</ins>")
    return " ".join(parts)


def _join_words(words: Sequence[str]) -> str:
    return html.escape(" ".join(words))


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
    return f"<table>\n<caption>{html.escape(metric)}</caption>\n{body}\n</table>"


def _article(systems: Sequence[str], sentence: ComparedSentence) -> str:
    rows = [("reference", html.escape(sentence.reference))]
    if sentence.source is not None:
        rows.insert(0, ("source", html.escape(sentence.source)))
    baseline = sentence.outputs[0]
    outputs = zip(systems, sentence.outputs, sentence.scores, strict=True)
    for index, (name, output, score) in enumerate(outputs):
        text = mark_differences(baseline, output) if index else html.escape(output)
        rows.append((f"{html.escape(name)}: {score:.4g}", text))
    # The direction of writing depends on the text: a source may be in Arabic.
    entries = "\n".join(
        f'<dt>{name}</dt><dd dir="auto">{text}</dd>' for name, text in rows
    )
    element_id = f"line-{sentence.line_number}"
    return (
        f'<article id="{element_id}" tabindex="0" aria-labelledby="{element_id}-head">'
        f'<h2 id="{element_id}-head">Line {sentence.line_number:,}: '
        f"{sentence.difference:+.4g}</h2>\n<dl>\n{entries}\n</dl></article>"
    )
