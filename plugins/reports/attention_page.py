"""Attention weights as one HTML page without other files."""

import base64
import html
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_CELL = 14  # height and width of a weight, and height of a line of text, in pixels
_CHARACTER = 7  # width of a label's character, in pixels

_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font-family: sans-serif; margin: 2em }}
svg {{ font: {font}px monospace; margin: 0 1em 1em 0 }}
image {{ image-rendering: pixelated }}
summary {{ cursor: pointer; margin: 0.5em 0 }}
</style>
<h1>{title}</h1>
<p>Rows attend to columns; darker cells are larger weights, from 0 to 1.</p>
{body}
</html>
"""


class Picture(NamedTuple):
    """The weights of one kind of attention (encoder, decoder or cross) in all layers.

    Attributes:
        title: heading of the section.
        rows: the labels of the R positions that attend.
        columns: the labels of the C positions that are attended to.
        weights: [L, H, R, C], from 0 to 1, for L layers.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    weights: np.ndarray


def pictures(
    source: Sequence[str],
    target: Sequence[str],
    encoder: np.ndarray,
    decoder: np.ndarray,
    cross: np.ndarray,
) -> list[Picture]:
    """Returns the three kinds of attention of a pair, for `attention_page`.

    Args:
        source: the S source tokens.
        target: the T target tokens.
        encoder: [L, H, S, S], for L layers.
        decoder: [L, H, T, T]
        cross: [L, H, T, S]
    """
    before = ["(start)", *target[:-1]]
    return [
        Picture("Encoder: the source to itself", source, source, encoder),
        Picture("Decoder: the target to itself", target, before, decoder),
        Picture("Decoder: the target to the source", target, source, cross),
    ]


def attention_page(title: str, sections: Sequence[Picture]) -> str:
    """Returns an HTML page with a heat map for each head of each layer.

    Args:
        title: title of the page.
        sections: one for each section; all layers but the first are folded.
    """
    body = "\n".join(_section(f"labels-{i}", p) for i, p in enumerate(sections))
    return _PAGE.format(title=html.escape(title), body=body, font=_CELL - 2)


def _section(labels: str, picture: Picture) -> str:
    """Returns the section for one picture; all heads refer to the same labels."""
    parts = [f"<h2>{html.escape(picture.title)}</h2>", _labels(labels, picture)]
    for number, layer in enumerate(picture.weights, 1):
        heads = (_head(labels, picture, i, h) for i, h in enumerate(layer, 1))
        state = " open" if number == 1 else ""
        start = f"<details{state}><summary>Layer {number}</summary>"
        parts += [start, *heads, "</details>"]
    return "\n".join(parts)


def _margins(picture: Picture) -> tuple[int, int]:
    """Returns the width and height in pixels of the margins that hold the labels."""
    longest = (max(map(len, names)) for names in (picture.rows, picture.columns))
    left, above = (_CHARACTER * length + 8 for length in longest)
    return left, above + _CELL


def _labels(name: str, picture: Picture) -> str:
    left, above = _margins(picture)
    rows = (
        f'<text x="{left - 4}" y="{above + (i + 0.8) * _CELL:g}" '
        f'text-anchor="end">{html.escape(label)}</text>'
        for i, label in enumerate(picture.rows)
    )
    columns = (
        f'<text transform="translate({left + (i + 0.8) * _CELL:g} {above - 4}) '
        f'rotate(-90)">{html.escape(label)}</text>'
        for i, label in enumerate(picture.columns)
    )
    lines = "\n".join([*rows, *columns])
    return f'<svg width="0" height="0"><g id="{name}">\n{lines}\n</g></svg>'


def _head(labels: str, picture: Picture, number: int, weights: np.ndarray) -> str:
    """Returns the heat map of one head, an image with one pixel for each weight."""
    left, above = _margins(picture)
    height, width = (_CELL * count for count in weights.shape)
    grey = np.round(255 * (1 - np.clip(weights, 0, 1))).astype(np.uint8)
    image = base64.b64encode(_png(grey)).decode()
    return (
        f'<svg width="{left + width}" height="{above + height}">'
        f'<text y="{_CELL}">head {number}</text><use href="#{labels}"/>'
        f'<image x="{left}" y="{above}" width="{width}" height="{height}" '
        f'preserveAspectRatio="none" href="data:image/png;base64,{image}"/>'
        f'<rect x="{left}" y="{above}" width="{width}" height="{height}" '
        'fill="none" stroke="#999"/></svg>'
    )


def _png(grey: np.ndarray) -> bytes:
    """Returns a PNG file of uint8 [height, width], 0 is black."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    height, width = grey.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits, grey
    rows = b"".join(b"\0" + row.tobytes() for row in grey)  # 0: a row as it is
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"IDAT", zlib.compress(rows)),
            chunk(b"IEND", b""),
        ]
    )
