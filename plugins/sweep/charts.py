"""Charts of a sweep in SVG: scores over a hyper-parameter, and over the steps."""

import html
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from t2t_keras.errors import quantity
from t2t_keras.metrics import short_number

Mark = Literal["best", "complete", "pruned"]

_WIDTH = 400
_HEIGHT = 220
# The axes, from the left, the right, the top and the bottom of the picture.
_LEFT = 52
_RIGHT = 14
_TOP = 12
_BOTTOM = 28

_CHART = """\
<figure class="chart">
<figcaption>{title}</figcaption>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="{summary}">
{content}
</svg>
</figure>"""


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

    points: Sequence[tuple[int, float]]
    label: str
    mark: Mark


def scatter(title: str, dots: Sequence[Dot], ticks: Sequence[tuple[float, str]]) -> str:
    """Returns a chart of dots; "" if there is none.

    Args:
        title: what the horizontal axis shows.
        dots: the dots with finite scores; later ones are in front.
        ticks: the marks of the horizontal axis: position and text.
    """
    if not dots:
        return ""
    axis = _Axis.of_values([dot.score for dot in dots])
    content = axis.grid() + _bottom_ticks(ticks)
    for dot in dots:
        content.append(_circle(dot, axis))
    return _chart(title, f"{title}: {quantity(len(dots), 'trials')}", content)


def curves(title: str, lines: Sequence[Line]) -> str:
    """Returns a chart of lines over the steps; "" if there is none."""
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    axis = _Axis.of_values([score for line in lines for _, score in line.points])
    last_step = max(line.points[-1][0] for line in lines)
    content = axis.grid() + _bottom_ticks([(0, "0"), (1, f"{last_step:,}")])
    for line in lines:
        coordinates = []
        for step, score in line.points:
            coordinates.append(f"{_x(step / last_step):.1f} {axis.y(score):.1f}")
        if len(coordinates) == 1:
            (step, score), *_ = line.points
            dot = Dot(step / last_step, score, line.label, line.mark)
            content.append(_circle(dot, axis))
            continue
        content.append(
            f'<path class="{line.mark}" d="M{"L".join(coordinates)}">'
            f"<title>{html.escape(line.label)}</title></path>"
        )
    return _chart(title, f"{title}: {quantity(len(lines), 'trials')}", content)


class _Axis(NamedTuple):
    """The vertical axis.

    Attributes:
        low: the value at the bottom.
        high: the value at the top.
        ticks: the values that have a line.
    """

    low: float
    high: float
    ticks: list[float]

    @classmethod
    def of_values(cls, values: Sequence[float]) -> "_Axis":
        """Returns the axis of some values, with round numbers."""
        low = min(values)
        high = max(values)
        if high <= low:
            high = low + (abs(low) or 1.0)
        rough = (high - low) / 3
        unit = 10.0 ** math.floor(math.log10(rough))
        interval = next(unit * n for n in (1, 2, 5, 10) if unit * n >= rough)
        lowest = math.floor(low / interval)
        highest = math.ceil(high / interval)
        ticks = [interval * n for n in range(lowest, highest + 1)]
        return cls(ticks[0], ticks[-1], ticks)

    def y(self, value: float) -> float:
        """Returns the place of a value."""
        share = (self.high - value) / (self.high - self.low)
        return _TOP + share * (_HEIGHT - _TOP - _BOTTOM)

    def grid(self) -> list[str]:
        """Returns the lines of the values, and their texts."""
        parts = []
        for value in self.ticks:
            y = self.y(value)
            parts.append(
                f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
                f'<text class="y" x="{_LEFT - 8}" y="{y + 4:.1f}">'
                f"{short_number(value)}</text>"
            )
        return parts


def _x(position: float) -> float:
    return _LEFT + position * (_WIDTH - _LEFT - _RIGHT)


def _circle(dot: Dot, axis: _Axis) -> str:
    radius = 6 if dot.mark == "best" else 4
    return (
        f'<circle class="{dot.mark}" cx="{_x(dot.position):.1f}" '
        f'cy="{axis.y(dot.score):.1f}" r="{radius}">'
        f"<title>{html.escape(dot.label)}</title></circle>"
    )


def _bottom_ticks(ticks: Sequence[tuple[float, str]]) -> list[str]:
    parts = []
    for position, text in ticks:
        anchor = "end" if position == 1 else "start" if position == 0 else "middle"
        parts.append(
            f'<text x="{_x(position):.1f}" y="{_HEIGHT - 8}" text-anchor="{anchor}">'
            f"{html.escape(text)}</text>"
        )
    return parts


def _chart(title: str, summary: str, content: Sequence[str]) -> str:
    return _CHART.format(
        title=html.escape(title),
        summary=html.escape(summary),
        width=_WIDTH,
        height=_HEIGHT,
        content="\n".join(content),
    )
