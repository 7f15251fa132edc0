"""A self-contained HTML page of attention weights."""

import base64
import html
import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Pixels. A weight is a square cell as high as a line of text.
_CELL = 14
_CHARACTER_WIDTH = 7

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
<p>Rows attend to columns. White is a weight of 0, black a weight of 1.</p>
{body}
</html>
"""


class Picture(NamedTuple):
    """Encoder, decoder or cross-attention weights of all layers, with their labels.

    Attributes:
        title: heading of the section.
        rows: labels of the R queries.
        columns: labels of the C keys.
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
    """Returns the sections of `attention_page` for a pair; see `SentenceAttention`."""
    decoder_inputs = ["(start)", *target[:-1]]
    return [
        Picture("Encoder self-attention", source, source, encoder),
        Picture("Decoder self-attention", target, decoder_inputs, decoder),
        Picture("Decoder cross-attention", target, source, cross),
    ]


def attention_page(title: str, sections: Sequence[Picture]) -> str:
    """Returns an HTML page with a heat map for each head of each layer.

    Args:
        title: title of the page.
        sections: the pictures; only the first layer of each is unfolded at first.
    """
    parts = []
    for index, picture in enumerate(sections):
        parts.append(_section(f"labels-{index}", picture))
    body = "\n".join(parts)
    return _PAGE.format(title=html.escape(title), body=body, font=_CELL - 2)


def _section(labels_id: str, picture: Picture) -> str:
    """Returns the section of one picture; all heads refer to the same labels."""
    parts = [f"<h2>{html.escape(picture.title)}</h2>", _labels(labels_id, picture)]
    for layer, heads in enumerate(picture.weights, 1):
        state = " open" if layer == 1 else ""
        parts.append(f"<details{state}><summary>Layer {layer}</summary>")
        for head, weights in enumerate(heads, 1):
            parts.append(_heat_map(labels_id, picture, head, weights))
        parts.append("</details>")
    return "\n".join(parts)


def _margins(picture: Picture) -> tuple[int, int]:
    """Returns the pixels to the left of a heat map and above it, for the labels."""
    left_margin = _CHARACTER_WIDTH * max(map(len, picture.rows)) + 8
    top_margin = _CHARACTER_WIDTH * max(map(len, picture.columns)) + 8 + _CELL
    return left_margin, top_margin


def _labels(labels_id: str, picture: Picture) -> str:
    left_margin, top_margin = _margins(picture)
    lines = []
    for index, label in enumerate(picture.rows):
        y = top_margin + (index + 0.8) * _CELL
        lines.append(
            f'<text x="{left_margin - 4}" y="{y:g}" '
            f'text-anchor="end">{html.escape(label)}</text>'
        )
    for index, label in enumerate(picture.columns):
        x = left_margin + (index + 0.8) * _CELL
        lines.append(
            f'<text transform="translate({x:g} {top_margin - 4}) '
            f'rotate(-90)">{html.escape(label)}</text>'
        )
    body = "\n".join(lines)
    return f'<svg width="0" height="0"><g id="{labels_id}">\n{body}\n</g></svg>'


def _heat_map(labels_id: str, picture: Picture, head: int, weights: np.ndarray) -> str:
    """Returns the heat map of one head, an image with one pixel for each weight."""
    left_margin, top_margin = _margins(picture)
    rows, columns = weights.shape
    height = _CELL * rows
    width = _CELL * columns
    gray = np.round(255 * (1 - np.clip(weights, 0, 1))).astype(np.uint8)
    image = base64.b64encode(_png(gray)).decode()
    position = f'x="{left_margin}" y="{top_margin}"'
    size = f'width="{width}" height="{height}"'
    return (
        f'<svg width="{left_margin + width}" height="{top_margin + height}">'
        f'<text y="{_CELL}">head {head}</text><use href="#{labels_id}"/>'
        f"<image {position} {size} "
        f'preserveAspectRatio="none" href="data:image/png;base64,{image}"/>'
        f"<rect {position} {size} "
        'fill="none" stroke="#999"/></svg>'
    )


def _png(gray: np.ndarray) -> bytes:
    """Returns a grayscale PNG file of uint8 [height, width], where 0 is black."""
    height, width = gray.shape
    bit_depth = 8
    header = struct.pack(">IIBBBBB", width, height, bit_depth, 0, 0, 0, 0)
    # The zero byte before each row says that the row is stored without a filter.
    rows = b"".join(b"\0" + row.tobytes() for row in gray)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            _png_chunk(b"IHDR", header),
            _png_chunk(b"IDAT", zlib.compress(rows)),
            _png_chunk(b"IEND", b""),
        ]
    )


def _png_chunk(chunk_type: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(chunk_type + data)
    return (
        struct.pack(">I", len(data)) + chunk_type + data + struct.pack(">I", checksum)
    )
