"""The page of a run: curves, sentences, attention, costs, settings, in one file."""

import dataclasses
import html
import math
from collections.abc import Mapping
from pathlib import Path

from t2t_keras.evaluation.bleu import metrics_of
from t2t_keras.metrics import short_number
from t2t_keras.pages import html_page, texts_list

from .attention_page import pictures
from .attention_view import attention_view, view_script, view_style
from .charts import Curve, line_chart
from .run_facts import RunFacts, set_rows
from .run_records import values
from .sample_list import sample_section
from .sentence_attention import SentenceAttention

# Weights are a byte each, and a page stays below a megabyte.
_MAX_WEIGHTS = 300_000

_BODY = """\
<header>
<h1>{title}</h1>
<p class="muted">{subtitle}</p>
{live}
<dl class="cards">
{cards}
</dl>
<nav aria-label="Sections">{links}</nav>
</header>
<main>
{sections}
</main>
"""

_LIVE = """\
<p><label class="live"><input type="checkbox" id="live" checked> Update this page by
itself</label></p>"""


def run_page(
    facts: RunFacts, attention: SentenceAttention | None = None, is_live: bool = False
) -> str:
    """Returns the page of a run.

    Args:
        facts: the settings and the records of the run.
        attention: the attention weights for one sentence of dev; None: they are left
            out.
        is_live: whether the training still runs, so that the page reloads itself.
    """
    costs = facts.costs()
    sections = {
        "curves": _curves(facts),
        "sentences": sample_section(facts.samples),
        "attention": _attention(attention) if attention else "",
        "costs": _table_section("Costs", costs),
        "settings": _settings(facts),
    }
    links = []
    for name, section in sections.items():
        if section:
            links.append(f'<a href="#{name}">{name.capitalize()}</a>')
    body = _BODY.format(
        title=html.escape(facts.path.name),
        subtitle=_subtitle(facts, is_live),
        live=_LIVE if is_live else "",
        cards="\n".join(_card(*card) for card in _cards(facts, costs)),
        links=" ".join(links),
        sections="\n".join(filter(None, sections.values())),
    )
    script = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    if attention:
        script += view_script()
        style += view_style()
    return html_page(f"{facts.path.name}: training", body, style, script)


def _subtitle(facts: RunFacts, is_live: bool) -> str:
    parts = [facts.config.problem, facts.config.hparams_set]
    if facts.config.languages:
        parts.insert(1, " → ".join(facts.config.languages))
    if is_live:
        parts.append("in training")
    elif facts.trainings:
        record = facts.trainings[-1]
        parts.append(f"{record.get('date')}, ended by {record.get('stopped_by')}")
    return html.escape(" · ".join(parts))


def _cards(facts: RunFacts, costs: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Returns the figures at the top: name, value, and a remark in small letters."""
    train = facts.records["train"]
    dev = facts.records["dev"]
    metrics = metrics_of(facts.problem)
    name = metrics.selection_metric
    cards = []
    if points := values(dev, name):
        sign = 1 if metrics.higher_is_better else -1
        best_step, best = max(points, key=lambda point: sign * point[1])
        cards.append(
            (f"best {_shown(name)} on dev", f"{best:.2f}", f"at {best_step:,}")
        )
    if losses := values(dev, "loss"):
        loss = min(value for _, value in losses)
        perplexity = short_number(math.exp(min(loss, 700.0)))
        cards.append(("lowest loss on dev", f"{loss:.3f}", f"perplexity {perplexity}"))
    cards.append(("step", f"{facts.step:,}", f"of {facts.hparams.train_steps:,}"))
    if time := costs.get("time of the steps"):
        cards.append(("time of the steps", time, ""))
    if speeds := values(train, "target_tokens_per_s"):
        cards.append(("target tokens/s", f"{speeds[-1][1]:,.0f}", ""))
    if parameters := costs.get("parameters"):
        cards.append(("parameters", parameters, ""))
    return cards


def _card(name: str, value: str, remark: str) -> str:
    small = f" <small>{html.escape(remark)}</small>" if remark else ""
    return (
        f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}{small}</dd></div>"
    )


def _shown(metric: str) -> str:
    return metric.upper() if len(metric) <= 4 else metric


def _curves(facts: RunFacts) -> str:
    train = facts.records["train"]
    dev = facts.records["dev"]
    metric = metrics_of(facts.problem).selection_metric
    losses = [
        Curve("train", values(train, "nll")),
        Curve("dev", values(dev, "loss"), is_marked=True),
    ]
    scores = [Curve("dev", values(dev, metric), is_marked=True)]
    rates = [Curve("rate", values(train, "learning_rate"))]
    speeds = [Curve("target", values(train, "target_tokens_per_s"))]
    charts = [
        line_chart("Loss (nats for each token)", losses, facts.step),
        line_chart(f"{_shown(metric)} on dev", scores, facts.step, from_zero=True),
        line_chart("Learning rate", rates, facts.step, from_zero=True),
        line_chart("Target tokens/s", speeds, facts.step, from_zero=True),
    ]
    if not any(charts):
        return '<p class="notice" id="curves">Nothing has been reported yet.</p>'
    body = "\n".join(filter(None, charts))
    return f'<h2 id="curves">Curves</h2>\n<div class="charts">\n{body}\n</div>'


def _attention(attention: SentenceAttention) -> str:
    """Returns the section of attention: all kinds if they fit, or cross-attention."""
    shown = pictures(attention)
    if not shown:
        return ""
    if sum(picture.weights.size for picture in shown) > _MAX_WEIGHTS:
        shown = shown[:1]
    if shown[0].weights.size > _MAX_WEIGHTS:
        shown = [shown[0]._replace(weights=shown[0].weights[-1:])]
    if shown[0].weights.size > _MAX_WEIGHTS:
        return ""
    texts = {
        "source": html.escape(attention.source_text),
        "target": html.escape(attention.target_text),
    }
    return (
        f'<h2 id="attention">Attention</h2>\n{texts_list(texts.items())}\n'
        f"{attention_view(shown)}"
    )


def _settings(facts: RunFacts) -> str:
    config = facts.config
    every = dataclasses.asdict(facts.hparams)
    rows: dict[str, object] = {**set_rows(config, facts.hparams)}
    rows |= {"seed": config.seed, **facts.data_rows()}
    for name in ("init_from", "usr_dir"):
        if value := getattr(config, name):
            rows[name] = value
    return (
        f"{_table_section('Settings', rows)}\n<details><summary>All "
        f"{len(every)} hyper-parameters</summary>{_table(every)}</details>\n"
        '<h3>Repeat it</h3>\n<pre class="command"><code>'
        f"{html.escape(facts.training_command())}</code></pre>"
    )


def _table_section(title: str, rows: Mapping[str, object]) -> str:
    return f'<h2 id="{title.lower()}">{title}</h2>\n{_table(rows)}'


def _table(rows: Mapping[str, object]) -> str:
    lines = []
    for name, value in rows.items():
        lines.append(
            f'<tr><th scope="row">{html.escape(name)}</th>'
            f'<td class="text">{html.escape(str(value))}</td></tr>\n'
        )
    return f"<table>\n{''.join(lines)}</table>"
