"""A chart of curves over the steps of a training, in HTML and SVG."""

import html
import json
import math
from collections.abc import Sequence
from typing import NamedTuple

from t2t_keras.metrics import short_number

# A curve has at most this many points; a screen shows no more of them.
_MAX_POINTS = 300
# More dots would touch each other.
_MAX_DOTS = 50
# The square in which curves are drawn; it is stretched to the size of the page.
_SIZE = 1000

# From the first number on, an axis counts in the second one.
_UNITS = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))

Points = Sequence[tuple[int, float]]

_CHART = """\
<figure class="chart">
<figcaption><b>{title}</b> {names}<output></output></figcaption>
<div class="plot" tabindex="0" role="img" aria-label="{summary}" data-chart="{data}">
<svg viewBox="0 0 {size} {size}" preserveAspectRatio="none" aria-hidden="true">
{curves}
</svg>
{ticks}
<span class="cursor" hidden></span>
</div>
</figure>
"""


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
    low, high, ticks = _axis(min(values), max(values), from_zero)
    scale = _Scale(low, high, max(last_step, 1))
    lines = []
    tick_labels = []
    for value in ticks:
        _, y = scale.place(0, value)
        lines.append(f'<path class="grid" d="M0 {y:.0f}H{_SIZE}"/>')
        tick_labels.append(_tick("y", f"top:{y / 10:.1f}%", _number(value)))
    for step in _axis(0, scale.last_step, from_zero=False)[2]:
        if step <= scale.last_step:
            x, _ = scale.place(step, high)
            tick_labels.append(_tick("x", f"left:{x / 10:.1f}%", _number(step)))
    for index, curve in enumerate(drawn, 1):
        lines += _paths(f"curve-{index}", curve, scale)
    return _CHART.format(
        title=html.escape(title),
        names=_legend(drawn) if len(drawn) > 1 else "",
        summary=html.escape(_summary(title, drawn)),
        data=html.escape(json.dumps(_chart_data(drawn, scale.last_step))),
        size=_SIZE,
        curves="\n".join(lines),
        ticks="\n".join(tick_labels),
    )


class _Scale(NamedTuple):
    """The ends of the axes.

    Attributes:
        low: the value at the bottom.
        high: the value at the top.
        last_step: the step at the right; 0 is at the left.
    """

    low: float
    high: float
    last_step: int

    def place(self, step: float, value: float) -> tuple[float, float]:
        """Returns x and y of a point in the square."""
        y = _SIZE * (self.high - value) / (self.high - self.low)
        return _SIZE * step / self.last_step, y


def _paths(name: str, curve: Curve, scale: _Scale) -> list[str]:
    """Returns the line of a curve, and its dots if it has some."""
    coordinates = []
    dots = ""
    for step, value in curve.points:
        x, y = scale.place(step, value)
        coordinates.append(f"{x:.0f} {y:.0f}")
        # A line without length has round ends: a dot that is never stretched.
        dots += f"M{x:.0f} {y:.0f}h0"
    paths = [f'<path class="{name}" d="M{"L".join(coordinates)}"/>']
    if len(coordinates) == 1 or (curve.is_marked and len(coordinates) <= _MAX_DOTS):
        paths.append(f'<path class="{name} dots" d="{dots}"/>')
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


def _axis(low: float, high: float, from_zero: bool) -> tuple[float, float, list[float]]:
    """Returns the ends of an axis, and three to six round numbers on it."""
    low = min(low, 0.0) if from_zero else low
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
    return ticks[0], ticks[-1], ticks


def _number(value: float) -> str:
    """Returns a short text of a number on an axis."""
    for threshold, unit, suffix in _UNITS:
        if abs(value) >= threshold:
            return f"{value / unit:.4g}{suffix}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _tick(axis: str, position: str, text: str) -> str:
    return f'<span class="tick-{axis}" style="{position}">{text}</span>'


def _legend(curves: Sequence[Curve]) -> str:
    names = []
    for index, curve in enumerate(curves, 1):
        names.append(f'<span class="key-{index}">{html.escape(curve.name)}</span> ')
    return "".join(names)


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
