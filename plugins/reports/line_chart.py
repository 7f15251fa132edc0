"""A chart of curves over the steps of a training, in HTML and SVG."""

import html
import json
import math
from collections.abc import Sequence
from typing import NamedTuple

from t2t_keras.evaluation.metrics_line import short_number

# A curve has at most this many points; a screen shows no more of them.
_MAX_POINTS = 300
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
    thin_curves = [curve._replace(points=_thinned(curve.points)) for curve in curves]
    drawn = [curve for curve in thin_curves if curve.points]
    if not drawn:
        return ""
    last_step = max(last_step, *(curve.points[-1][0] for curve in drawn), 1)
    numbers = [value for curve in drawn for _, value in curve.points]
    low, high, ticks = _axis(min(numbers), max(numbers), from_zero)

    def place(step: float, value: float) -> tuple[float, float]:
        y = _SIZE * (high - value) / (high - low)
        return _SIZE * step / last_step, y

    lines = []
    tick_labels = []
    for value in ticks:
        _, y = place(0, value)
        lines.append(f'<path class="grid" d="M0 {y:.0f}H{_SIZE}"/>')
        tick_labels.append(_tick("y", f"top:{y / 10:.1f}%", _number(value)))
    _, _, step_ticks = _axis(0, last_step, from_zero=False)
    for step in step_ticks:
        if step <= last_step:
            x, _ = place(step, high)
            tick_labels.append(_tick("x", f"left:{x / 10:.1f}%", _number(step)))
    for index, curve in enumerate(drawn, 1):
        points = [place(*point) for point in curve.points]
        path = "L".join(f"{x:.0f} {y:.0f}" for x, y in points)
        lines.append(f'<path class="curve-{index}" d="M{path}"/>')
        if curve.is_marked or len(points) == 1:
            # A line without length has round ends: a dot that is never stretched.
            dots = "".join(f"M{x:.0f} {y:.0f}h0" for x, y in points)
            lines.append(f'<path class="curve-{index} dots" d="{dots}"/>')
    return _CHART.format(
        title=html.escape(title),
        names=_legend(drawn) if len(drawn) > 1 else "",
        summary=html.escape(_summary(title, drawn)),
        data=html.escape(json.dumps(_chart_data(drawn, last_step))),
        size=_SIZE,
        curves="\n".join(lines),
        ticks="\n".join(tick_labels),
    )


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
    if high <= low:
        high = low + (abs(low) or 1.0)
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
        first, last = curve.points[0], curve.points[-1]
        parts.append(
            f"{curve.name} from {short_number(first[1])} at step {first[0]:,} to "
            f"{short_number(last[1])} at step {last[0]:,}"
        )
    return f"{title}: {'; '.join(parts)}"


def _chart_data(curves: Sequence[Curve], last_step: int) -> dict[str, object]:
    """Returns what the script needs to show the values at a step."""
    named = []
    for curve in curves:
        steps = [step for step, _ in curve.points]
        texts = [short_number(value) for _, value in curve.points]
        named.append({"name": curve.name, "steps": steps, "values": texts})
    return {"last": last_step, "curves": named}
