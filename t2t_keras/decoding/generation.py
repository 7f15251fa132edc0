"""`Transformer.generate` on TensorFlow, by a `Translator` of the model."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from t2t_keras.decoding.model_translator import ModelTranslator
from t2t_keras.decoding.text_arguments import checked_texts
from t2t_keras.errors import UserError, short_repr
from t2t_keras.model.transformer import Transformer
from t2t_keras.text.id_tokenizer import IdTokenizer
from t2t_keras.text.preprocessor import Preprocessor
from t2t_keras.text.tokenizer import padded_rows


class Generator:
    """Generates outputs of a model with its preprocessor; see `Transformer.generate`.

    Args:
        model: the model.

    Raises:
        UserError: the model's preprocessor is something else, or has vocabularies of
            other sizes than the model.
    """

    def __init__(self, model: Transformer) -> None:
        self.preprocessor = model.preprocessor
        source_size = model.source_vocab_size
        target_size = model.target_vocab_size or source_size
        preprocessor = self.preprocessor
        if preprocessor is None:
            preprocessor = Preprocessor(
                IdTokenizer(source_size), IdTokenizer(target_size)
            )
        if not isinstance(preprocessor, Preprocessor):
            raise UserError(
                "model.preprocessor must be a `t2t_keras.text.preprocessor."
                f"Preprocessor`, not {short_repr(preprocessor)}"
            )
        tokenizers = preprocessor.tokenizers
        sizes = (source_size, target_size)
        vocab_sizes = tuple(tokenizer.vocab_size for tokenizer in tokenizers)
        if vocab_sizes != sizes:
            raise UserError(
                f"model.preprocessor has vocabularies of {vocab_sizes} tokens for "
                f"source and target, but the model was built for {sizes}"
            )
        self._translator = ModelTranslator(preprocessor.problem, model, *tokenizers)

    def __call__(
        self, sources: Iterable[str] | Iterable[Sequence[int]], **options: Any
    ) -> str | list[str] | np.ndarray:
        """Returns the best outputs; see `Transformer.generate`."""
        if isinstance(sources, str):
            return self._texts([sources], options)[0]
        rows = _listed(sources)
        if any(isinstance(row, str | bytes) for row in rows):
            return self._texts(rows, options)
        return self._ids(rows, options)

    def _texts(self, texts: Iterable[str], options: dict[str, Any]) -> list[str]:
        """Returns the outputs for texts."""
        if self.preprocessor is None:
            raise UserError(
                "generate: the model has no vocabularies for texts; set "
                "model.preprocessor to a `t2t_keras.text.preprocessor.Preprocessor`, "
                "or give ids"
            )
        return self._translator.translate(checked_texts(texts, "sources"), **options)

    def _ids(self, rows: list[Any], options: dict[str, Any]) -> np.ndarray:
        """Returns the ids of the outputs for ids, padded: [B, T]."""
        tokenizer = self._translator.source_tokenizer
        ids = []
        for i, row in enumerate(rows):
            ids.append(_checked_row(row, i, tokenizer.vocab_size))
        texts = [tokenizer.decode(row) for row in ids]
        n_best_lists = self._translator.n_best_of_ids(ids, texts, **options)
        return padded_rows([n_best[0].ids for n_best in n_best_lists])


def _listed(sources: Iterable[Any]) -> list[Any]:
    """Returns the rows of an array, a tensor or another iterable."""
    try:
        return list(sources)
    except TypeError:
        raise UserError(
            "generate: sources must be texts, or rows of ids, not "
            f"{type(sources).__name__}"
        ) from None


def _checked_row(row: Any, index: int, vocab_size: int) -> list[int]:
    """Returns the ids of a row, without the padding at its end.

    Raises:
        UserError: it is not a row of ids of the vocabulary.
    """
    ids = np.asarray(row)
    is_row = ids.ndim == 1 and (np.issubdtype(ids.dtype, np.integer) or not ids.size)
    if not is_row:
        raise UserError(
            f"generate: sources[{index}] must be a text, or a row of integer ids, not "
            f"{short_repr(row)}"
        )
    if ids.size and not 0 <= ids.min() <= ids.max() < vocab_size:
        raise UserError(
            f"generate: sources[{index}] has an id outside of the vocabulary: they go "
            f"from 0 to {vocab_size - 1}"
        )
    return np.trim_zeros(ids, "b").tolist()  # PAD is 0
