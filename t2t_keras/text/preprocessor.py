"""The preprocessor of a model: its vocabularies, and the form of its texts."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from t2t_keras.errors import UserError
from t2t_keras.problem import Problem
from t2t_keras.quantity import quantity
from t2t_keras.text.tokenizer import Tokenizer, padded_rows


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
        target_tokenizer: the vocabulary of targets; None: that of sources.
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
                    "`t2t_keras.text.tokenizers.load_tokenizer` returns, not "
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
