"""Charts in SVG: the curves of a training over its steps, and the trials of a sweep."""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from t2t_keras.console import short_number
from t2t_keras.errors import quantity
from t2t_keras.pages import templates

# A curve has at most this many points; a screen shows no more of them.
_MAX_POINTS = 300
# More dots would touch each other.
_MAX_DOTS = 50
# The square in which curves are drawn; it is stretched to the size of the page.
_SIZE = 1000

# The picture of trials, and where its axes are.
_WIDTH = 400
_HEIGHT = 220
_LEFT = 52
_RIGHT = 386
_TOP = 12
_BOTTOM = 192

# From the first number on, an axis counts in the second one.
_UNITS = ((1e4, 1e3, "k"), (1e6, 1e6, "M"), (1e9, 1e9, "G"))

Points = Sequence[tuple[int, float]]
Mark = Literal["best", "complete", "pruned"]


class Curve(NamedTuple):
    """A curve of a chart.

    Attributes:
        name: its name.
        points: step and value, in the order of the steps.
        is_marked: whether each point has a dot, as few evaluations need it.
    """

    name: str
    points: Points
    is_marked: bool = False


def line_chart(
    title: str, curves: Sequence[Curve], last_step: int, from_zero: bool = False
) -> str:
    """Returns a chart.

    Args:
        title: what is measured.
        curves: at most four.
        last_step: where the axis of steps ends; it begins at 0.
        from_zero: whether the axis begins at zero even if no value is near.

    Returns:
        HTML; "" if no curve has a point.
    """
    drawn = []
    values: list[float] = []
    for curve in curves:
        if points := _thinned(curve.points):
            drawn.append(curve._replace(points=points))
            last_step = max(last_step, points[-1][0])
            values += [value for _, value in points]
    if not drawn:
        return ""
    axis = Axis.of_values(values, from_zero)
    last_step = max(last_step, 1)
    paths = []
    ticks = []
    for value, text in _numbers(axis.ticks):
        y = _SIZE * axis.place(value)
        paths.append(("grid", f"M0 {y:.0f}H{_SIZE}"))
        ticks.append(("y", f"top:{y / 10:.1f}%", text))
    for step, text in _numbers(Axis.of_values([0, last_step]).ticks):
        if step <= last_step:
            x = _SIZE * step / last_step
            ticks.append(("x", f"left:{x / 10:.1f}%", text))
    for index, curve in enumerate(drawn, 1):
        paths += _paths(f"curve-{index}", curve, axis, last_step)
    return _rendered(
        "line_chart",
        title=title,
        names=[curve.name for curve in drawn] if len(drawn) > 1 else [],
        summary=_summary(title, drawn),
        data=json.dumps(_chart_data(drawn, last_step)),
        size=_SIZE,
        paths=paths,
        ticks=ticks,
    )


class Dot(NamedTuple):
    """A trial in a chart.

    Attributes:
        position: its place on the horizontal axis, from 0 to 1.
        score: its place on the vertical axis.
        label: what is shown at the mouse.
        mark: how it looks.
    """

    position: float
    score: float
    label: str
    mark: Mark


class Line(NamedTuple):
    """The scores of a trial over the steps.

    Attributes:
        points: step and score.
        label: what is shown at the mouse.
        mark: how it looks.
    """

    points: Points
    label: str
    mark: Mark


def scatter(title: str, dots: Sequence[Dot], ticks: Sequence[tuple[float, str]]) -> str:
    """Returns a chart of trials as dots.

    Args:
        title: what the horizontal axis shows.
        dots: one or more, with finite scores; later ones are in front.
        ticks: the marks of the horizontal axis: position and text.
    """
    axis = Axis.of_values([dot.score for dot in dots])
    return _trial_chart(title, axis, ticks, [], dots)


def trial_curves(title: str, lines: Sequence[Line]) -> str:
    """Returns a chart of trials as lines over the steps; each line has a point."""
    last_step = max(line.points[-1][0] for line in lines)
    dots = []
    for line in lines:
        (step, score), *further = line.points
        if not further:
            dots.append(Dot(step / last_step, score, line.label, line.mark))
    axis = Axis.of_values([score for line in lines for _, score in line.points])
    ticks = [(0.0, "0"), (1.0, f"{last_step:,}")]
    return _trial_chart(title, axis, ticks, lines, dots, last_step)


def _trial_chart(
    title: str,
    axis: "Axis",
    ticks: Sequence[tuple[float, str]],
    lines: Sequence[Line],
    dots: Sequence[Dot],
    last_step: int = 1,
) -> str:
    def x(position: float) -> float:
        return round(_LEFT + position * (_RIGHT - _LEFT), 1)

    def y(value: float) -> float:
        return round(_TOP + axis.place(value) * (_BOTTOM - _TOP), 1)

    paths = []
    for line in lines:
        if len(line.points) > 1:
            points = "L".join(f"{x(s / last_step)} {y(z)}" for s, z in line.points)
            paths.append((line.mark, f"M{points}", line.label))
    circles = []
    for dot in dots:
        radius = 6 if dot.mark == "best" else 4
        circles.append((dot.mark, x(dot.position), y(dot.score), radius, dot.label))
    anchors = {0.0: "start", 1.0: "end"}
    return _rendered(
        "trial_chart",
        title=title,
        summary=f"{title}: {quantity(len(lines or dots), 'trials')}",
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_RIGHT,
        rows=[(y(value), text) for value, text in _numbers(axis.ticks)],
        ticks=[(x(at), anchors.get(at, "middle"), text) for at, text in ticks],
        lines=paths,
        dots=circles,
    )


class Axis(NamedTuple):
    """The vertical axis.

    Attributes:
        low: the value at the bottom.
        high: the value at the top.
        ticks: three to six round numbers on it, the ends included.
    """

    low: float
    high: float
    ticks: list[float]

    @classmethod
    def of_values(cls, values: Sequence[float], from_zero: bool = False) -> "Axis":
        """Returns the axis of some values, which begins at zero if asked to."""
        low = min(*values, 0.0) if from_zero else min(values)
        high = max(values)
        if high <= low:  # a single value is in the middle
            margin = abs(low) / 2
            low -= margin
            high += margin or 1.0
        rough = (high - low) / 4
        unit = 10.0 ** math.floor(math.log10(rough))
        interval = next(unit * n for n in (1, 2, 2.5, 5, 10) if unit * n >= rough)
        start = math.floor(low / interval)
        stop = math.ceil(high / interval)
        ticks = [interval * n for n in range(start, stop + 1)]
        return cls(ticks[0], ticks[-1], ticks)

    def place(self, value: float) -> float:
        """Returns the place of a value, from 0 at the top to 1 at the bottom."""
        return (self.high - value) / (self.high - self.low)


def _paths(
    name: str, curve: Curve, axis: Axis, last_step: int
) -> list[tuple[str, str]]:
    """Returns the line of a curve, and its dots if it has some: class and points."""
    coordinates = []
    dots = ""
    for step, value in curve.points:
        x = _SIZE * step / last_step
        y = _SIZE * axis.place(value)
        coordinates.append(f"{x:.0f} {y:.0f}")
        # A line without length has round ends: a dot that is never stretched.
        dots += f"M{x:.0f} {y:.0f}h0"
    paths = [(name, f"M{'L'.join(coordinates)}")]
    if len(coordinates) == 1 or (curve.is_marked and len(coordinates) <= _MAX_DOTS):
        paths.append((f"{name} dots", dots))
    return paths


def _thinned(points: Points) -> list[tuple[int, float]]:
    """Returns the points, or means of neighbours if there are more than are drawn."""
    size = -(-len(points) // _MAX_POINTS)
    if size <= 1:
        return list(points)
    means = []
    for start in range(0, len(points), size):
        group = points[start : start + size]
        mean = sum(value for _, value in group) / len(group)
        means.append((group[-1][0], mean))
    return means


def _numbers(ticks: Sequence[float]) -> Iterator[tuple[float, str]]:
    """Yields the numbers of an axis, each with a short text in the unit of all."""
    largest = max(map(abs, ticks))
    unit, suffix = 1.0, ""
    for threshold, size, letter in _UNITS:
        if largest >= threshold:
            unit, suffix = size, letter
    for value in ticks:
        is_whole = unit == 1.0 and abs(value) >= 1000
        number = f"{value:,.0f}" if is_whole else f"{value / unit:.4g}"
        yield value, f"{number}{suffix}" if value else "0"


def _summary(title: str, curves: Sequence[Curve]) -> str:
    parts = []
    for curve in curves:
        first_step, first_value = curve.points[0]
        last_step, last_value = curve.points[-1]
        parts.append(
            f"{curve.name} from {short_number(first_value)} at step {first_step:,} to "
            f"{short_number(last_value)} at step {last_step:,}"
        )
    return f"{title}: {'; '.join(parts)}"


def _chart_data(curves: Sequence[Curve], last_step: int) -> dict[str, object]:
    """Returns what the script needs to show the values at a step."""
    named = []
    for curve in curves:
        steps = []
        texts = []
        for step, value in curve.points:
            steps.append(step)
            texts.append(short_number(value))
        named.append({"name": curve.name, "steps": steps, "values": texts})
    return {"last": last_step, "curves": named}


def _rendered(macro: str, **values: object) -> str:
    """Returns what a macro of the template makes of some values."""
    template = templates(Path(__file__).parent).get_template("charts.html")
    chart: str = getattr(template.module, macro)(**values)
    return chart
