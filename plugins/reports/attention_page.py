"""A self-contained HTML page of attention weights."""

import html

from t2t_keras.html_page import html_page

from .attention_view import Picture, attention_view, view_script, view_style
from .sentence_attention import SentenceAttention

_BODY = """\
<main>
<h1>Attention</h1>
<dl class="texts">
<dt>Source</dt><dd dir="auto">{source}</dd>
<dt>Target</dt><dd dir="auto">{target}</dd>
</dl>
<hr>
{view}
</main>
"""


def pictures(attention: SentenceAttention) -> list[Picture]:
    """Returns what a page shows of a sentence pair, cross-attention first."""
    source = attention.source
    target = attention.target
    decoder_inputs = ["(start)", *target[:-1]]
    return [
        Picture("cross", target, source, attention.cross),
        Picture("encoder", source, source, attention.encoder),
        Picture("decoder", target, decoder_inputs, attention.decoder),
    ]


def attention_page(attention: SentenceAttention) -> str:
    """Returns an HTML page with the attention weights of a sentence pair.

    Args:
        attention: the tokens of the pair, and the weights.
    """
    body = _BODY.format(
        source=html.escape(attention.source_text),
        target=html.escape(attention.target_text),
        view=attention_view(pictures(attention)),
    )
    return html_page(
        f"Attention: {attention.source_text}", body, view_style(), view_script()
    )
