"""The page of a sweep: scores, hyper-parameters, curves and all trials, in one file."""

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from t2t_keras.errors import quantity
from t2t_keras.pages import html_page
from t2t_keras.ranged_hparams import Choices, Range, Value

from .best_two import DevTest, best_complete, best_first, verdict
from .charts import Dot, Line, Mark, curves, scatter
from .settings import SweepSettings
from .trial import SweepTrial, shown_value

_BODY = """\
<header>
<h1>{title}</h1>
<p class="muted">{subtitle}</p>
<dl class="cards">
{cards}
</dl>
</header>
<main>
{sections}
</main>
"""

_KEY = """\
<p class="key"><span class="best">the best trial</span> <span class="complete">trained
to the end</span> <span class="pruned">pruned</span></p>"""


def trials_page(
    title: str,
    settings: SweepSettings,
    trials: Sequence[SweepTrial],
    count: int,
    test: DevTest | None,
    command: str,
) -> str:
    """Returns the page.

    Args:
        title: the name of the sweep.
        settings: its settings.
        trials: its trials so far, in the order of their numbers.
        count: the number of trials that are wanted.
        test: the test of the best two trials, if it was made.
        command: the command of a training with the best hyper-parameters; "": no
            trial has been trained to the end.
    """
    best = best_complete(trials, settings)
    marks: dict[int, Mark] = {}
    for trial in trials:
        if trial.score is not None and trial.state in ("complete", "pruned"):
            marks[trial.index] = trial.state
    if best:
        marks[best[0].index] = "best"
    shown = [trial for trial in trials if trial.index in marks]
    shown.sort(key=lambda trial: marks[trial.index] == "best")  # in front of others
    sections = [
        f'<p class="notice">{html.escape(verdict(test, settings, trials))}</p>'
        if test
        else "",
        _charts(settings, shown, marks),
        _trial_table(settings, trials, best),
        _settings_table(settings),
        _command(command) if command else "",
    ]
    subtitle = f"{settings.problem} · {settings.hparams_set} · {settings.ranges_name}"
    body = _BODY.format(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        cards="\n".join(_cards(settings, trials, best, count)),
        sections="\n".join(filter(None, sections)),
    )
    style = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    return html_page(f"{title}: sweep", body, style)


def _cards(
    settings: SweepSettings,
    trials: Sequence[SweepTrial],
    best: Sequence[SweepTrial],
    count: int,
) -> list[str]:
    """Returns the figures at the top."""
    states = Counter(trial.state for trial in trials)
    figures = []
    if best:
        (winner, *_) = best
        remark = f"trial {winner.index}, step {winner.best_step:,}"
        figures.append(
            (f"best {settings.metric} on dev", shown_value(winner.score), remark)
        )
    ended = len(trials) - states["running"]
    figures.append(("trials that have ended", f"{ended}", f"of {count}"))
    figures.append(("pruned", str(states["pruned"]), ""))
    figures.append(("failed", str(states["failed"]), ""))
    cards = []
    for name, value, remark in figures:
        small = f" <small>{html.escape(remark)}</small>" if remark else ""
        cards.append(
            f"<div><dt>{html.escape(name)}</dt><dd>{html.escape(value)}{small}</dd></div>"
        )
    return cards


def _charts(
    settings: SweepSettings,
    trials: Sequence[SweepTrial],
    marks: Mapping[int, Mark],
) -> str:
    """Returns the charts: over trials and steps, and over each hyper-parameter."""
    if not trials:
        return '<p class="notice">No trial has been evaluated yet.</p>'
    highest = max(trial.index for trial in trials)
    dots = []
    lines = []
    for trial in trials:
        label = _label(trial, settings.metric)
        mark = marks[trial.index]
        dots.append(Dot(trial.index / max(highest, 1), trial.score or 0.0, label, mark))
        points = [(s, x) for s, x in trial.scores.items() if math.isfinite(x)]
        lines.append(Line(points, label, mark))
    charts = [
        scatter("Trials in their order", dots, [(0, "0"), (1, str(highest))]),
        curves(f"{settings.metric} over the steps", lines),
    ]
    for name, ranged in settings.ranges.items():
        dots = []
        for trial in trials:
            position = _position(ranged, trial.hparams[name])
            label = _label(trial, settings.metric)
            dots.append(Dot(position, trial.score or 0.0, label, marks[trial.index]))
        scale = getattr(ranged, "scale", "linear")
        title = name if scale == "linear" else f"{name} ({scale} scale)"
        charts.append(scatter(title, dots, _ticks(ranged)))
    body = "\n".join(charts)
    return (
        f"<h2>{html.escape(settings.metric)} on dev</h2>\n{_KEY}\n"
        f'<div class="charts">\n{body}\n</div>'
    )


def _label(trial: SweepTrial, metric: str) -> str:
    parts = [f"trial {trial.index}, {metric} {shown_value(trial.score)}"]
    for name, value in trial.hparams.items():
        parts.append(f"{name} {shown_value(value)}")
    return "\n".join(parts)


def _position(ranged: Range, value: Value) -> float:
    """Returns the place of a value on an axis that has the range, from 0 to 1."""
    if isinstance(ranged, Choices):
        index = ranged.values.index(value)
        return (index + 0.5) / len(ranged.values)
    magnitude = float(value)
    if ranged.scale == "linear":
        return (magnitude - ranged.low) / (ranged.high - ranged.low)
    if ranged.scale == "reverse_log":
        magnitude = ranged.low + ranged.high - magnitude
    position = math.log(magnitude / ranged.low) / math.log(ranged.high / ranged.low)
    return 1 - position if ranged.scale == "reverse_log" else position


def _ticks(ranged: Range) -> list[tuple[float, str]]:
    if isinstance(ranged, Choices):
        return [(_position(ranged, value), str(value)) for value in ranged.values]
    return [(share, shown_value(ranged.value_at(share))) for share in (0, 0.5, 1)]


def _trial_table(
    settings: SweepSettings,
    trials: Sequence[SweepTrial],
    best: Sequence[SweepTrial],
) -> str:
    """Returns the table of all trials, the best first."""
    names = ["trial", "state", settings.metric, "step", *settings.ranges]
    head = ""
    for name in names:
        head += f'<th scope="col">{html.escape(name)}</th>'
    rows = []
    for trial in best_first(trials, best):
        cells = [trial.state, shown_value(trial.score), shown_value(trial.best_step)]
        for name in settings.ranges:
            cells.append(shown_value(trial.hparams[name]))
        columns = ""
        for cell in cells:
            columns += f"<td>{html.escape(cell)}</td>"
        row = '<tr class="best">' if trial in best[:1] else "<tr>"
        rows.append(f'{row}<th scope="row">{trial.index}</th>{columns}</tr>')
        if trial.error:
            rows.append(
                f'<tr><td></td><td class="text" colspan="{len(names) - 1}">'
                f"{html.escape(trial.error)}</td></tr>"
            )
    body = "\n".join(rows)
    return (
        '<h2>Trials</h2>\n<div class="scroll" tabindex="0" role="region" '
        f'aria-label="Trials"><table>\n<tr>{head}</tr>\n{body}\n</table></div>'
    )


def _settings_table(settings: SweepSettings) -> str:
    rows: dict[str, object] = {
        "hparam set": settings.hparams_set,
        "hparams": settings.hparams or "none changed",
        "steps of a trial": settings.train_steps or "the set's",
        "evaluated every": quantity(settings.train_options.eval_every, "steps"),
        "seed": settings.seed,
        "trials drawn at random": settings.startup_trials,
        "pruning": "at evaluations" if settings.prunes else "none",
        "trials at a time": settings.workers,
        "data": settings.data_dir,
    }
    for name, ranged in settings.ranges.items():
        rows[f"range of {name}"] = ranged
    lines = []
    for name, value in rows.items():
        lines.append(
            f'<tr><th scope="row">{html.escape(name)}</th>'
            f'<td class="text">{html.escape(str(value))}</td></tr>'
        )
    body = "\n".join(lines)
    return f"<h2>Settings</h2>\n<table>\n{body}\n</table>"


def _command(command: str) -> str:
    return (
        "<h2>Train with the best</h2>\n"
        f'<pre class="command"><code>{html.escape(command)}</code></pre>'
    )
