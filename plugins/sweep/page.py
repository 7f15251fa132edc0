"""The page of a sweep: scores, hyper-parameters, curves and all trials, in one file."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.console import short_number
from t2t_keras.errors import quantity
from t2t_keras.pages import folded_command, templates
from t2t_keras.ranged_hparams import Choices, Range, Value

from ..reports.charts import Dot, Line, Mark, scatter, trial_curves

if TYPE_CHECKING:
    from .study import SweepSettings, SweepTrial


def sweep_page(
    name: str,
    settings: "SweepSettings",
    trials: Sequence["SweepTrial"],
    count: int,
    commands: Mapping[str, Sequence[str]],
) -> str:
    """Returns the page.

    Args:
        name: the name of the sweep.
        settings: its settings.
        trials: its trials so far, in the order of their numbers.
        count: the number of trials that are wanted.
        commands: the words of commands for the best trials, by their headings; the
            first one, which trains with the best values, is at the top.
    """
    best = best_complete(settings, trials)
    environment = templates(Path(__file__).parent)
    environment.filters["shown"] = shown_value
    return environment.get_template("page.html").render(
        name=name,
        settings=settings,
        figures=_figures(settings, trials, best, count),
        charts=_charts(settings, trials, best),
        trials=best_first(trials, best),
        has_best=bool(best),
        rows=_setting_rows(settings),
        commands={name: folded_command(words) for name, words in commands.items()},
    )


def best_complete(
    settings: "SweepSettings", trials: Sequence["SweepTrial"]
) -> list["SweepTrial"]:
    """Returns the trials that were trained to the end, the best first."""
    scores = {}
    for trial in trials:
        if trial.state == "complete" and trial.score is not None:
            scores[trial.index] = trial.score
    ordered = []
    while (index := settings.best(scores)) is not None:
        del scores[index]
        ordered.append(trials[index])
    return ordered


def best_first(
    trials: Sequence["SweepTrial"], best: Sequence["SweepTrial"]
) -> list["SweepTrial"]:
    """Returns all trials: the best ones, and then the others in their order."""
    return [*best, *(trial for trial in trials if trial not in best)]


def shown_value(value: object) -> str:
    """Returns a score or a hyper-parameter for a line of text; None: nothing."""
    if value is None:
        return ""
    return short_number(value) if isinstance(value, float) else str(value)


def _figures(
    settings: "SweepSettings",
    trials: Sequence["SweepTrial"],
    best: Sequence["SweepTrial"],
    count: int,
) -> list[tuple[str, str, str]]:
    """Returns the figures at the top: name, value and remark."""
    states = Counter(trial.state for trial in trials)
    ended = len(trials) - states["running"]
    figures = []
    for trial in best[:1]:
        remark = f"trial {trial.index}, step {trial.best_step:,}"
        label = f"best {settings.metric} on dev"
        figures.append((label, shown_value(trial.score), remark))
    return [
        *figures,
        ("finished trials", f"{ended}", f"of {count}"),
        ("pruned", str(states["pruned"]), ""),
        ("failed", str(states["failed"]), ""),
    ]


def _charts(
    settings: "SweepSettings",
    trials: Sequence["SweepTrial"],
    best: Sequence["SweepTrial"],
) -> list[str]:
    """Returns the charts: over trials and steps, and over each hyper-parameter."""
    marks: dict[int, Mark] = {}
    for trial in trials:
        if trial.score is not None and trial.state in ("complete", "pruned"):
            marks[trial.index] = trial.state
    for trial in best[:1]:
        marks[trial.index] = "best"
    shown = [trial for trial in trials if trial.index in marks]
    if not shown:
        return []
    highest = shown[-1].index
    shown.sort(key=lambda trial: marks[trial.index] == "best")  # in front of others

    def dots(positions: Mapping[int, float]) -> list[Dot]:
        made = []
        for trial in shown:
            score = trial.score or 0.0
            label = _label(settings, trial)
            made.append(Dot(positions[trial.index], score, label, marks[trial.index]))
        return made

    lines = []
    for trial in shown:
        points = [(s, x) for s, x in trial.scores.items() if math.isfinite(x)]
        lines.append(Line(points, _label(settings, trial), marks[trial.index]))
    order = dots({index: index / max(highest, 1) for index in marks})
    charts = [
        scatter("Trials in their order", order, [(0, "0"), (1, str(highest))]),
        trial_curves(f"{settings.metric} over the steps", lines),
    ]
    for name, ranged in settings.ranges.items():
        scale = getattr(ranged, "scale", "linear")
        title = name if scale == "linear" else f"{name} ({scale} scale)"
        positions = {x.index: _position(ranged, x.hparams[name]) for x in shown}
        charts.append(scatter(title, dots(positions), _ticks(ranged)))
    return charts


def _label(settings: "SweepSettings", trial: "SweepTrial") -> str:
    parts = [f"trial {trial.index}, {settings.metric} {shown_value(trial.score)}"]
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


def _setting_rows(settings: "SweepSettings") -> dict[str, object]:
    """Returns the settings by the labels of the page."""
    rows: dict[str, object] = {
        "hparam set": settings.hparams_set,
        "hparams": settings.hparams or "none changed",
        "steps of a trial": settings.train_steps,
        "evaluated every": quantity(int(settings.options["eval_every"]), "steps"),
        "seed": settings.seed,
        "random trials at first": settings.startup_trials,
        "pruning": "at evaluations" if settings.prunes else "none",
        "parallel trials on a machine": settings.workers,
        "data": settings.data_dir,
    }
    for name, ranged in settings.ranges.items():
        rows[f"range of {name}"] = ranged
    return rows
