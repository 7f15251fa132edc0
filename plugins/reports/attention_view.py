"""Attention weights as a part of a page: any layer, heads averaged or side by side."""

import base64
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t2t_keras.pages import json_element

_CONTROLS = """\
<form class="row" hidden>
<fieldset class="segments"><legend>Attention</legend>
{pictures}
</fieldset>
<label>Layer <select name="layer">{layers}</select></label>
<label>Heads <select name="head">{heads}</select></label>
</form>
"""

_VIEW = """\
<section class="attention" data-source="attention-data" aria-label="Attention weights">
{controls}<p class="muted">A row attends to the columns, with weights of
<span class="range">0 <span class="scale"></span> 1</span>. Point at a cell, or move
with the arrow keys, to read its weight.</p>
<noscript><p class="notice">The weights are drawn by JavaScript.</p></noscript>
<div class="maps"></div>
<output class="tip" hidden></output>
</section>
{data}
"""


class Picture(NamedTuple):
    """The attention weights of one kind of layer, with the tokens.

    Attributes:
        title: the name of its button.
        rows: labels of the R queries.
        columns: labels of the C keys.
        weights: [L, H, R, C], from 0 to 1.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    weights: np.ndarray


def view_style() -> str:
    """Returns the style sheet of `attention_view`."""
    return Path(__file__).with_suffix(".css").read_text(encoding="utf-8")


def view_script() -> str:
    """Returns the script that draws every `attention_view` of a page."""
    return Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


def attention_view(pictures: Sequence[Picture]) -> str:
    """Returns a section in which one chooses picture, layer and heads.

    At first it shows the last layer of the first picture, averaged over heads. The page
    needs `view_style` and `view_script`.

    Args:
        pictures: what can be chosen.
    """
    num_layers = max(len(picture.weights) for picture in pictures)
    shown_layers, num_heads, *_ = pictures[0].weights.shape
    layers = [*map(str, range(num_layers)), "mean"]
    layer_names = [*map(str, range(1, num_layers + 1)), "mean of all"]
    heads = ["mean", "each", *map(str, range(num_heads))]
    head_names = ["mean of all", "side by side", *map(str, range(1, num_heads + 1))]
    controls = _CONTROLS.format(
        pictures="\n".join(map(_radio, range(len(pictures)), pictures)),
        layers=_options(layers, layer_names, selected=str(shown_layers - 1)),
        heads=_options(heads, head_names, selected="mean"),
    )
    data = json.dumps([_json_object(picture) for picture in pictures])
    return _VIEW.format(controls=controls, data=json_element("attention-data", data))


def _radio(index: int, picture: Picture) -> str:
    state = "" if index else " checked"
    return (
        f'<label><input type="radio" name="picture" value="{index}"{state}>'
        f"{html.escape(picture.title)}</label>"
    )


def _options(values: Sequence[str], names: Sequence[str], selected: str) -> str:
    options = []
    for value, name in zip(values, names, strict=True):
        state = " selected" if value == selected else ""
        options.append(f'<option value="{value}"{state}>{name}</option>')
    return "".join(options)


def _json_object(picture: Picture) -> dict[str, object]:
    num_layers, num_heads, *_ = picture.weights.shape
    # A byte for each weight is precise enough for a colour and two decimals.
    levels = np.round(255 * np.clip(picture.weights, 0, 1)).astype(np.uint8)
    return {
        "rows": list(picture.rows),
        "columns": list(picture.columns),
        "layers": num_layers,
        "heads": num_heads,
        "weights": base64.b64encode(levels.tobytes()).decode(),
    }
