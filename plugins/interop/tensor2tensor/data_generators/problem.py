"""tensor2tensor's `problem`: the base class of problems, and the names of splits."""

from ..base_problem import DatasetSplit, Problem
from ..missing import missing, missing_name

# tensor2tensor had this class here until version 1.3.
from .text_problems import Text2TextProblem

__all__ = ["DatasetSplit", "Problem", "SpaceID", "TaskID", "Text2TextProblem"]

# tensor2tensor's numbers of spaces and tasks have no meaning here.
SpaceID = missing("data_generators.problem.SpaceID")
TaskID = missing("data_generators.problem.TaskID")


def __getattr__(name: str) -> object:
    return missing_name(__name__, name)
