"""How an export without the problem's code finds the text processor of the problem."""

import dataclasses
from typing import Literal

from t2t_keras import registry
from t2t_keras.errors import UserError
from t2t_keras.export.settings import ExportSettings
from t2t_keras.problem import Problem
from t2t_keras.text_processor import TextProcessor


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextProcessorSettings(ExportSettings):
    """The settings of an export from which its text processor can be made again.

    Attributes:
        text_processor: `plain` is `TextProcessor` with `tags`; `registered` is that of
            the registered problem; `unknown` is that of an unregistered problem, or the
            export of an earlier version.
        tags: words before sources that are one token.
    """

    text_processor: Literal["plain", "registered", "unknown"] = "unknown"
    tags: list[str] = dataclasses.field(default_factory=list)

    def make_text_processor(self) -> TextProcessor | None:
        """Returns the text processor; None if it is unknown here."""
        if self.text_processor == "plain":
            return TextProcessor(tags=tuple(self.tags))
        if self.text_processor == "registered":
            return _registered_text_processor(self.problem)
        return None


def text_processor_settings(problem: Problem) -> dict[str, object]:
    """Returns the fields of `TextProcessorSettings` for a problem."""
    text_processor = problem.text_processor
    settings: dict[str, object] = {"text_processor": "unknown", "tags": []}
    if type(text_processor) is TextProcessor:
        tags = list(text_processor.tags)
        return settings | {"text_processor": "plain", "tags": tags}
    registered = _registered_text_processor(problem.name)
    if type(registered) is type(text_processor):
        settings["text_processor"] = "registered"
    return settings


def _registered_text_processor(name: str) -> TextProcessor | None:
    """Returns the text processor of a registered problem; None if there is none."""
    try:
        return registry.problem(name).text_processor
    except UserError:
        return None
