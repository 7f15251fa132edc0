"""`Transformer.generate` on TensorFlow, by a `Translator` of the model.

A `Preprocessor` has the vocabularies of a model and the form of its texts; the texts of
a model without vocabularies are ids.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import numpy as np

from t2t_keras.decoding.graph_engine import ModelTranslator
from t2t_keras.decoding.inputs import checked_texts
from t2t_keras.errors import UserError, quantity, short_repr
from t2t_keras.model.transformer import Transformer
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizer import GraphTokenizer, Tokenizer, padded_rows
from t2t_keras.text.vocabulary import EOS, text_ids


class IdTokenizer:
    """A `Tokenizer` whose texts are ids, with a space between two of them.

    Args:
        vocab_size: the number of ids.
    """

    suffix: ClassVar[str] = ".ids"
    training_pairs: ClassVar[int] = 0

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    @staticmethod
    def train(
        texts: Iterable[str], path: Path, vocab_size: int, symbols: Sequence[str] = ()
    ) -> NoReturn:
        """Raises `UserError`."""
        _refuse()

    @property
    def pieces(self) -> list[str]:
        """The ids as texts."""
        return list(map(str, range(self.vocab_size)))

    def token_bytes(self) -> list[bytes]:
        """Returns what each token adds to a text."""
        return [f" {piece}".encode() for piece in self.pieces]

    def encode(self, text: str) -> list[int]:
        """Returns the ids of a text, EOS last."""
        return [*map(int, text.split()), EOS]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Encodes every text."""
        return [self.encode(text) for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the ids before the first EOS as a text."""
        return " ".join(map(str, text_ids(ids, self.vocab_size)))

    def graph(self) -> GraphTokenizer:
        """Raises `UserError`."""
        _refuse()

    def save(self, path: Path) -> None:
        """Raises `UserError`."""
        _refuse()


def _refuse() -> NoReturn:
    raise UserError("the model has no vocabularies: its inputs and outputs are ids")


@dataclasses.dataclass(frozen=True)
class Preprocessor:
    """Converts texts for Keras's `fit`, and for `Transformer.generate`.

        preprocessor = Preprocessor(tokenizer)
        x, y = preprocessor(sources, targets)
        model.fit(x, y)
        model.preprocessor = preprocessor
        model.generate(["A house."])

    Attributes:
        source_tokenizer: the vocabulary of sources.
        target_tokenizer: the vocabulary of targets; None: the vocabulary of sources.
        problem: has the text processor, the constraint and the defaults of decoding.

    Raises:
        UserError: a tokenizer is something else.
    """

    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer | None = None
    problem: Problem = dataclasses.field(default_factory=lambda: Problem(summary=""))

    def __post_init__(self) -> None:
        for tokenizer in self.tokenizers:
            if not hasattr(tokenizer, "encode_batch"):
                raise UserError(
                    "Preprocessor: a tokenizer is what "
                    "`t2t_keras.text.tokenizer.load_tokenizer` returns, not "
                    f"{type(tokenizer).__name__}"
                )

    @property
    def tokenizers(self) -> tuple[Tokenizer, Tokenizer]:
        """The tokenizers of sources and targets."""
        return self.source_tokenizer, self.target_tokenizer or self.source_tokenizer

    def __call__(
        self, sources: Iterable[str], targets: Iterable[str]
    ) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
        """Returns the arguments x and y of `fit` for pairs of texts.

        Args:
            sources: texts, as users write them.
            targets: their outputs, as users read them.

        Returns:
            x is a pair of ids [B, S] and [B, T], padded with 0; y is x[1].

        Raises:
            UserError: there are more of one side, or none.
        """
        processor = self.problem.text_processor
        source_texts = [processor.preprocess(text) for text in sources]
        outputs = list(targets)
        if len(source_texts) != len(outputs) or not outputs:
            raise UserError(
                f"{quantity(len(source_texts), 'sources')} and "
                f"{quantity(len(outputs), 'targets')}: there must be as many, and at "
                "least one"
            )
        target_texts = list(map(processor.preprocess_target, source_texts, outputs))
        source_tokenizer, target_tokenizer = self.tokenizers
        source = padded_rows(source_tokenizer.encode_batch(source_texts))
        target = padded_rows(target_tokenizer.encode_batch(target_texts))
        return (source, target), target


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
                "model.preprocessor must be a `t2t_keras.decoding.generation."
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
                "model.preprocessor to a `t2t_keras.decoding.generation.Preprocessor`, "
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
