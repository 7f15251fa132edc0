"""The base class of tensor2tensor's problems, and the names of splits."""

from collections.abc import Mapping
from typing import TypeVar

from .data_generators.text_encoder import TextEncoder
from .utils.hparam import HParams

Example = TypeVar("Example")


class DatasetSplit:
    """The names of splits."""

    TRAIN = "train"
    EVAL = "eval"
    TEST = "test"


class Problem:
    """The base class of tensor2tensor's problems.

    Only problems that derive from `text_problems.Text2TextProblem` can be used.

    Attributes:
        name: the registered name.
        unusable_reason: a sentence that says why it cannot be used; "": it can.
    """

    name = ""
    unusable_reason = (
        "it is not a problem from text to text; derive it from "
        "text_problems.Text2TextProblem and define generate_samples"
    )

    def __init__(self, was_reversed: bool = False, was_copy: bool = False) -> None:
        self._was_reversed = was_reversed
        self._was_copy = was_copy
        self._encoders: Mapping[str, TextEncoder] | None = None

    @property
    def was_reversed(self) -> bool:
        """Whether inputs and targets are swapped."""
        return self._was_reversed

    def dataset_filename(self) -> str:
        """Returns the beginning of the names of its files: its name."""
        return self.name

    def feature_encoders(self, data_dir: str) -> Mapping[str, TextEncoder]:
        """Returns the encoders of "inputs" and "targets"."""
        raise NotImplementedError

    def get_feature_encoders(self, data_dir: str) -> Mapping[str, TextEncoder]:
        """Returns `feature_encoders`, which are made only once."""
        if self._encoders is None:
            self._encoders = self.feature_encoders(data_dir)
        return self._encoders

    def example_reading_spec(self) -> tuple[dict[str, object], None]:
        """Returns the names of the features of records."""
        return {"inputs": None, "targets": None}, None

    def preprocess_example(
        self, example: Example, mode: object, hparams: object
    ) -> Example:
        """Returns the example."""
        return example

    def hparams(self, defaults: object, model_hparams: object) -> None:
        """Does nothing, since the vocabularies are known from the data."""

    def eval_metrics(self) -> list[str]:
        """Returns no metrics, since training computes the loss and BLEU."""
        return []

    def max_length(self, model_hparams: HParams) -> int:
        """Returns the maximum number of tokens on each side of a training example."""
        return model_hparams.max_length or model_hparams.batch_size
