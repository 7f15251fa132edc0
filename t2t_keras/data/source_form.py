"""Warns if training sources differ from the inputs that a text processor makes."""

from t2t_keras.problem import Problem
from t2t_keras.text_processor import TextProcessor

_CHECKED = 100  # pairs


def source_form_warning(problem: Problem) -> str | None:
    """Returns a warning if `preprocess` changes one of the first training sources.

    Training reads its sources as they are; evaluation and translation preprocess
    theirs.
    """
    processor = problem.text_processor
    if type(processor).preprocess is TextProcessor.preprocess:
        return None
    for source, _ in problem.pairs("train", stop=_CHECKED):
        text = processor.preprocess(source)
        if text != source:
            return (
                f"warning: `preprocess` of {type(processor).__name__} "
                f"turns the training source '{source}' into '{text}', so the model "
                "will translate texts of another form than it is trained on: "
                "preprocess the sources of the pairs too"
            )
    return None
