"""tensor2tensor's `problem`: the base class of problems, and the names of splits."""

from collections.abc import Mapping
from typing import Any

from t2t_keras.errors import UserError
from t2t_keras.problem import Problem as OurProblem

from ..missing import missing, missing_name


class DatasetSplit:
    """The names of splits."""

    TRAIN = "train"
    EVAL = "eval"
    TEST = "test"


# Their numbers have no meaning here.
SpaceID: Any = missing("data_generators.problem.SpaceID")
TaskID: Any = missing("data_generators.problem.TaskID")


class Problem:
    """The base class of tensor2tensor's problems.

    Only those that derive from `text_problems.Text2TextProblem` can be used.

    Attributes:
        name: the registered name.
    """

    name = ""

    def __init__(self, was_reversed: bool = False, was_copy: bool = False) -> None:
        self._was_reversed = was_reversed
        self._was_copy = was_copy
        self._encoders: Mapping[str, Any] | None = None

    @property
    def was_reversed(self) -> bool:
        """Whether inputs and targets are swapped."""
        return self._was_reversed

    def to_problem(self) -> OurProblem:
        """Returns the problem in our terms.

        Raises:
            UserError: it cannot be used; the message says why.
        """
        raise UserError(
            "it is not a problem from text to text; derive it from "
            "text_problems.Text2TextProblem and define generate_samples"
        )

    def dataset_filename(self) -> str:
        """The beginning of the names of its files: its name."""
        return self.name

    def feature_encoders(self, data_dir: str) -> dict[str, Any]:
        """Returns the encoders of "inputs" and "targets"."""
        raise NotImplementedError

    def get_feature_encoders(self, data_dir: str) -> Mapping[str, Any]:
        """Returns `feature_encoders`, made once."""
        if self._encoders is None:
            self._encoders = self.feature_encoders(data_dir)
        return self._encoders

    def example_reading_spec(self) -> tuple[dict[str, Any], None]:
        """Returns what stands for the features of records."""
        return {"inputs": None, "targets": None}, None

    def preprocess_example(self, example: Any, mode: Any, hparams: Any) -> Any:
        """Returns the example."""
        return example

    def hparams(self, defaults: Any, model_hparams: Any) -> None:
        """Does nothing: the vocabularies are known from the data."""

    def eval_metrics(self) -> list[str]:
        """Returns nothing: training computes the loss and BLEU."""
        return []

    def max_length(self, model_hparams: Any) -> int:
        """Returns the most tokens of a side of a training example."""
        return model_hparams.max_length or model_hparams.batch_size


def __getattr__(name: str) -> Any:
    if name == "Text2TextProblem":  # there until tensor2tensor 1.3
        from .text_problems import Text2TextProblem

        return Text2TextProblem
    return missing_name(__name__, name)
