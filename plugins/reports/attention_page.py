"""A self-contained HTML page of attention weights."""

import html

from t2t_keras.errors import UserError
from t2t_keras.pages import html_page, texts_list

from .attention_view import Picture, attention_view, view_script, view_style
from .sentence_attention import SentenceAttention

_BODY = """\
<main>
<h1>Attention</h1>
{texts}
<hr>
{view}
</main>
"""


def pictures(attention: SentenceAttention) -> list[Picture]:
    """Returns what a page shows of a sentence pair, cross-attention first.

    A model may have layers without weights, such as average attention; they are left
    out.
    """
    source = attention.source
    target = attention.target
    decoder_inputs = ["(start)", *target[:-1]]
    candidates = [
        Picture("cross", target, source, attention.cross),
        Picture("encoder", source, source, attention.encoder),
        Picture("decoder", target, decoder_inputs, attention.decoder),
    ]
    shown = []
    for picture in candidates:
        if picture.weights.shape[2:] == (len(picture.rows), len(picture.columns)):
            shown.append(picture)
    return shown


def attention_page(attention: SentenceAttention) -> str:
    """Returns an HTML page with the attention weights of a sentence pair.

    Args:
        attention: the tokens of the pair, and the weights.

    Raises:
        UserError: no layer of the model has weights.
    """
    shown = pictures(attention)
    if not shown:
        raise UserError("no layer of the model has attention weights to draw")
    texts = {
        "Source": html.escape(attention.source_text),
        "Target": html.escape(attention.target_text),
    }
    body = _BODY.format(texts=texts_list(texts.items()), view=attention_view(shown))
    return html_page(
        f"Attention: {attention.source_text}", body, view_style(), view_script()
    )
