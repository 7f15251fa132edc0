"""The style sheet: its colours can be read, and nothing is loaded."""

import re

import pytest

from t2t_keras.pages import style_sheet, templates

# (text or line, what is behind it, the least contrast of WCAG 2.2 AA): 4.5 for text,
# 3 for what must be seen to use a page (1.4.3, 1.4.11).
PAIRS = [
    *((text, back, 4.5) for text in ("text", "muted") for back in ("page", "surface")),
    *(("accent", back, 4.5) for back in ("page", "surface")),
    ("on-accent", "accent", 4.5),
    *(("text", f"{name}-soft", 4.5) for name in ("accent", "good", "bad")),
    *((name, f"{name}-soft", 4.5) for name in ("good", "bad")),
    *((name, "page", 4.5) for name in ("good", "bad")),
    *((name, "page", 3) for name in ("control", "series-2", "series-3", "series-4")),
]


def luminance(colour):
    """Relative luminance of sRGB, as WCAG defines it."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    low, high = sorted(map(luminance, (a, b)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_matches_wcag():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_colours_can_be_read(mode):
    light, dark, *_ = re.findall(r":root \{(.*?)\}", style_sheet(), re.DOTALL)
    blocks = [light] if mode == "light" else [light, dark]
    colours = {}
    for block in blocks:
        colours |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    for foreground, background, required_contrast in PAIRS:
        value = contrast(colours[foreground], colours[background])
        assert value >= required_contrast, (foreground, background, value)


PAGE = """{% extends "html_page.html" %}
{% block title %}{{ title }}{% endblock %}
{% block style %}p { color: var(--muted) }{% endblock %}
{% block body %}<p>text</p><script>let x = 1;</script>{% endblock %}
"""


def test_a_page_is_whole_and_loads_nothing(tmp_path):
    (tmp_path / "page.html").write_text(PAGE, "utf-8")
    page = templates(tmp_path).get_template("page.html").render(title="a < b")
    assert "<title>a &lt; b</title>" in page
    assert page.index("</style>") < page.index("<p>text</p>") < page.index("let x = 1;")
    assert page.index(style_sheet()) < page.index("p { color: var(--muted) }")
    assert "http" not in page and "url(" not in page and "src=" not in page


def test_a_long_value_is_broken_only_after_signs(tmp_path):
    template = "{{ value | breakable }}"
    (tmp_path / "value.html").write_text(template, "utf-8")
    page = templates(tmp_path).get_template("value.html")
    assert page.render(value="a_b*c<d>, e/f=") == "a_b*<wbr>c&lt;d&gt;, e/<wbr>f="
    assert page.render(value=7) == "7"
