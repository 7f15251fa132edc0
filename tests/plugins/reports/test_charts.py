"""The charts of a run: where their curves are drawn."""

import html
import json
import re

import numpy as np

from t2t_keras.plugins.reports.charts import Curve, line_chart


def drawn(chart):
    """Returns the points of each curve, in thousandths of the chart from the top."""
    paths = re.findall(r'class="curve-\d" d="M([^"]*)"', chart)
    curves = []
    for path in paths:
        points = [point.split(" ") for point in path.split("L")]
        curves.append(np.array(points, float))
    return curves


def ticks(chart, axis):
    return re.findall(rf'class="tick-{axis}"[^>]*>([^<]*)<', chart)


def test_points_are_where_their_values_are():
    curve = Curve("dev", [(100, 0.0), (250, 3.0), (400, 8.0)], is_marked=True)
    chart = line_chart("Loss", [curve], 400)
    (points,) = drawn(chart)
    np.testing.assert_allclose(points, [[250, 1000], [625, 625], [1000, 0]])
    assert ticks(chart, "y") == ["0", "2", "4", "6", "8"]
    assert ticks(chart, "x") == ["0", "100", "200", "300", "400"]
    assert chart.count("h0") == 3  # a dot for each point


def test_axes_have_round_numbers_and_may_begin_at_zero():
    near = [Curve("rate", [(1, 41_000.0), (2, 52_000.0)])]
    assert ticks(line_chart("s", near, 2), "y") == ["40k", "45k", "50k", "55k"]
    assert ticks(line_chart("s", near, 2, from_zero=True), "y") == [
        *("0", "20k", "40k", "60k")
    ]
    wide = [Curve("rate", [(1, 4000.0), (12_000, 17_000.0)])]
    chart = line_chart("s", wide, 12_000)  # one unit on each axis
    assert ticks(chart, "y") == ["0", "5k", "10k", "15k", "20k"]
    assert ticks(chart, "x") == ["0", "5k", "10k"]


def test_a_single_point_is_a_dot_in_the_middle():
    chart = line_chart("s", [Curve("rate", [(5, 2.0)])], 10)
    assert ticks(chart, "y") == ["1", "1.5", "2", "2.5", "3"]
    assert 'class="curve-1 dots" d="M500 500h0"' in chart
    zero = line_chart("s", [Curve("rate", [(5, 0.0)])], 10)
    assert ticks(zero, "y")[0] == "0"


def test_long_curves_are_means_of_neighbours():
    points = [(step, float(step % 2)) for step in range(1, 3001)]
    chart = line_chart("s", [Curve("a", points, is_marked=True)], 3000)
    assert "dots" not in chart
    (path,) = drawn(chart)
    assert len(path) == 300
    np.testing.assert_allclose(path[:, 1], path[0, 1])  # the mean of zeros and ones
    data = json.loads(html.unescape(re.search(r'data-chart="([^"]*)"', chart)[1]))
    assert data["curves"][0]["values"] == ["0.5"] * 300
    assert data["curves"][0]["steps"][-1] == data["last"] == 3000


def test_a_chart_without_points_is_left_out():
    assert line_chart("s", [Curve("a", [])], 10) == ""
    chart = line_chart("<b>", [Curve("a", []), Curve("<i>", [(1, 1.0)])], 10)
    assert len(drawn(chart)) == 1 and "<i>" not in chart and "&lt;b&gt;" in chart
