"""Sentences of dev on the page of a run: the same ones, the worst and the best."""

import html
from collections.abc import Sequence
from typing import NamedTuple

from t2t_keras.errors import quantity
from t2t_keras.pages import texts_list
from t2t_keras.run.history import DevSamples, Sample

from .text_differences import mark_differences

# A page stays below a megabyte: all texts together have about this many characters, a
# single one at most so many.
_MAX_CHARACTERS = 120_000
_MAX_TEXT = 1_000
_MAX_EVALUATIONS = 40

_SECTION = """\
<h2 id="sentences">Sentences</h2>
<p>The same sentences of dev at each evaluation, the newest first. Marked are the words
that an evaluation <ins>adds</ins> to the output of the one before, and those that it
<del>removes</del>.</p>
{samples}
{extremes}
"""


class _Output(NamedTuple):
    """An output that did not change from one evaluation to another."""

    first_step: int
    last_step: int
    text: str


def sample_section(evaluations: Sequence[DevSamples]) -> str:
    """Returns the section of sentences; "" if no evaluation has decoded any."""
    if not evaluations:
        return ""
    newest = evaluations[-1]
    shown = _spread(evaluations)
    samples = [_history(newest, sample, shown) for sample in newest.samples]
    extremes = ""
    if newest.worst:
        extremes = (
            f"<h3>The worst and the best at step {newest.step:,}</h3>\n"
            "<p>By the score of the sentence alone; marked are the differences from "
            'the reference.</p>\n<div class="extremes">\n'
            f"<div>{_against_reference(newest, newest.worst)}</div>\n"
            f"<div>{_against_reference(newest, newest.best)}</div>\n</div>"
        )
    return _SECTION.format(samples="\n".join(samples), extremes=extremes)


def _spread(evaluations: Sequence[DevSamples]) -> list[DevSamples]:
    """Returns as many evaluations as fit on a page, at equal distances to the last."""
    newest = evaluations[-1].samples
    characters = sum(len(_cut(sample.output)) for sample in newest)
    count = min(_MAX_EVALUATIONS, max(2, _MAX_CHARACTERS // max(characters, 1)))
    size = -(-len(evaluations) // count)
    return list(evaluations[::-1][::size])[::-1]


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]} …"


def _history(
    newest: DevSamples, sample: Sample, evaluations: Sequence[DevSamples]
) -> str:
    """Returns the article of a sentence with all its outputs."""
    outputs: list[_Output] = []
    for evaluation in evaluations:
        for earlier in evaluation.samples:
            if earlier.line != sample.line:
                continue
            text = _cut(earlier.output)
            first_step = evaluation.step
            if outputs and outputs[-1].text == text:
                first_step = outputs.pop().first_step
            outputs.append(_Output(first_step, evaluation.step, text))
    items = []
    for index, output in enumerate(outputs):
        marked = html.escape(output.text)
        if index:
            marked = mark_differences(outputs[index - 1].text, output.text)
        items.append(_output_item(output, marked))
    newest_item, *earlier_items = reversed(items)
    history = f"<ol>{newest_item}</ol>"
    if earlier_items:
        count = quantity(len(earlier_items), "earlier outputs")
        history += (
            f"<details><summary>{count}</summary>"
            f"<ol>{''.join(earlier_items)}</ol></details>"
        )
    return (
        f'<article class="sample"><h2>{_heading(newest.metric, sample)}</h2>'
        f"{_texts(sample)}{history}</article>"
    )


def _output_item(output: _Output, marked: str) -> str:
    steps = f"step {output.last_step:,}"
    if output.last_step != output.first_step:
        steps = f"{output.first_step:,} to {output.last_step:,}"
    return (
        f'<li><span class="step">{steps}</span> <div dir="auto">'
        f"{marked or '(empty)'}</div></li>"
    )


def _heading(metric: str, sample: Sample) -> str:
    if sample.score is None:
        return f"Line {sample.line:,}"
    score = html.escape(f"{metric.upper()} {sample.score:.1f}")
    return f'Line {sample.line:,} <span class="tag">{score}</span>'


def _texts(sample: Sample, marked_output: str = "") -> str:
    texts = {
        "source": html.escape(_cut(sample.source)),
        "reference": html.escape(_cut(sample.reference)),
    }
    if marked_output:
        texts["output"] = marked_output
    return texts_list(texts.items())


def _against_reference(newest: DevSamples, samples: Sequence[Sample]) -> str:
    articles = []
    for sample in samples:
        marked = mark_differences(_cut(sample.reference), _cut(sample.output))
        articles.append(
            f'<article class="sample"><h2>{_heading(newest.metric, sample)}</h2>'
            f"{_texts(sample, marked or '(empty)')}</article>"
        )
    return "\n".join(articles)
