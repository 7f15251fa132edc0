"""The translator of a model in this process, such as that of a run."""

from pathlib import Path
from typing import Self

from t2t_keras.decoding.ensemble import DecodingModel
from t2t_keras.decoding.graph_engine import GraphEngine
from t2t_keras.decoding.translator import Translator
from t2t_keras.problem import Problem
from t2t_keras.text.tokenizer import Tokenizer


class ModelTranslator(Translator):
    """A `Translator` whose model is at hand: it can be evaluated and exported.

        translator = ModelTranslator(problem, model, tokenizer, tokenizer)

    Args:
        problem: the problem, which has the default options.
        model: the model, or an ensemble.
        source_tokenizer: the vocabulary of sources.
        target_tokenizer: the vocabulary of targets.

    Attributes:
        engine: the `GraphEngine`.
        problem: the problem.
        model: the model.
    """

    engine: GraphEngine

    def __init__(
        self,
        problem: Problem,
        model: DecodingModel,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
    ) -> None:
        super().__init__(
            GraphEngine(problem, model, source_tokenizer, target_tokenizer)
        )
        self.problem = problem
        self.model = model

    def with_compute_dtype(self, dtype: str) -> Self:
        """Returns a copy, with the same options, that computes in another dtype.

        Args:
            dtype: the hyper-parameter `compute_dtype`.
        """
        copy = type(self)(
            self.problem,
            self.model.with_compute_dtype(dtype),
            self.source_tokenizer,
            self.target_tokenizer,
        )
        copy.options = self.options
        return copy

    def save_tokenizers(self, path: Path) -> None:
        """Writes `source.spm` and `target.spm` (or `.subwords`) to a directory."""
        for side, tokenizer in (
            ("source", self.source_tokenizer),
            ("target", self.target_tokenizer),
        ):
            tokenizer.save(path / f"{side}{tokenizer.suffix}")
