"""All attention weights of a model for one sentence pair."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.text.sentences import is_blank

if TYPE_CHECKING:
    from t2t_keras.decoding.graph_engine import ModelTranslator
    from t2t_keras.model.backend import Tensor


class SentenceAttention(NamedTuple):
    """The tokens and attention weights of one sentence pair; see `AttentionMaps`.

    Attributes:
        source: the S source tokens, which end with EOS.
        target: the T target tokens; row t of the weights predicts token t.
        encoder: weights of the L encoder layers, float32 [L, H, S, S].
        decoder: weights of the L decoder layers, float32 [L, H, T, T].
        cross: weights of the L cross-attention layers, float32 [L, H, T, S].
        source_text: the source as users see it.
        target_text: the target as users see it.
    """

    source: list[str]
    target: list[str]
    encoder: np.ndarray
    decoder: np.ndarray
    cross: np.ndarray
    source_text: str
    target_text: str


def sentence_attention(
    translator: "ModelTranslator", source: str, target: str | None = None
) -> SentenceAttention:
    """Returns all attention weights of a model for one sentence pair.

    Args:
        translator: the model with its tokenizers.
        source: the source text.
        target: the translation; None: the model's translation.

    Raises:
        UserError: the source is blank, the model's translation is empty, or the model
            is an ensemble.
    """
    from t2t_keras.decoding.ensemble import Ensemble

    model = translator.model
    if isinstance(model, Ensemble):
        raise UserError(
            "each model of an ensemble has its own attention; give one of its runs"
        )
    if is_blank(source):
        raise UserError("the source is blank; give a sentence")
    processor = translator.problem.text_processor
    text = processor.preprocess(source, translator.options.raw)
    source_ids = translator.source_tokenizer.encode(text)
    if target is None:
        [[best]] = translator.n_best([source], 1, truncate=True, split_sentences=False)
        target_ids = list(best.ids)
        target = best.text
    else:
        target_ids = translator.target_tokenizer.encode(
            processor.preprocess_target(text, target)
        )
    if not target_ids:
        raise UserError("the model's translation is empty; give a target")
    maps = model.attention_maps(
        np.array([source_ids], np.int32),
        np.array([target_ids], np.int32),
    )
    return SentenceAttention(
        [translator.source_tokenizer.pieces[i] for i in source_ids],
        [translator.target_tokenizer.pieces[i] for i in target_ids],
        _stack_layers(maps.encoder),
        _stack_layers(maps.decoder),
        _stack_layers(maps.cross),
        source,
        target,
    )


def _stack_layers(weights: "Sequence[Tensor]") -> np.ndarray:
    """Returns the weights [1, H, T, S] of each layer as one array [L, H, T, S]."""
    return np.stack([np.asarray(layer)[0] for layer in weights])
