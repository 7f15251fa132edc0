"""The attention weights of a model for one sentence and its translation."""

from typing import NamedTuple

import numpy as np

from t2t_keras.decoding.ensemble import Ensemble
from t2t_keras.decoding.texts import is_blank
from t2t_keras.decoding.translator import Translator
from t2t_keras.option import UserError


class SentenceAttention(NamedTuple):
    """The attention weights of one pair, with its tokens; see `AttentionMaps`.

    Attributes:
        source: the S source tokens, EOS last.
        target: the T target tokens; row t of the weights predicts token t.
        encoder: float32 [L, H, S, S], for L layers.
        decoder: float32 [L, H, T, T]
        cross: float32 [L, H, T, S]
    """

    source: list[str]
    target: list[str]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray


def sentence_attention(
    translator: Translator, source: str, target: str | None = None
) -> SentenceAttention:
    """Returns all attention weights of a model for one pair.

    Args:
        translator: the model with its tokenizers.
        source: a text.
        target: its translation; None: the model's own.

    Raises:
        UserError: the source is blank, the model's own translation is empty, or the
            model is an ensemble.
    """
    model = translator.model
    if isinstance(model, Ensemble):
        raise UserError("an ensemble has several attentions; give one of its runs")
    if is_blank(source):
        raise UserError("the source is blank; give a sentence")
    form, raw = translator.problem.text_form, translator.options.raw
    source_ids = translator.source_tokenizer.encode(form.source_text(source, raw))
    if target is None:
        target_ids = list(translator.n_best([source], 1, truncate=True)[0][0].ids)
    else:
        target_ids = translator.target_tokenizer.encode(target.strip())
    if not target_ids:
        raise UserError("the model's translation is empty; give a target")
    maps = model.attention_maps(
        np.array([source_ids], np.int32),
        np.array([target_ids], np.int32),
    )
    return SentenceAttention(
        [translator.source_tokenizer.pieces[i] for i in source_ids],
        [translator.target_tokenizer.pieces[i] for i in target_ids],
        *(np.stack([np.asarray(layer)[0] for layer in kind]) for kind in maps),
    )
