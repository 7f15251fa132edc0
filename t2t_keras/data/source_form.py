"""Whether the training sources have the form that a text processor gives to inputs."""

from t2t_keras.problem import Problem
from t2t_keras.text_processor import TextProcessor

_CHECKED = 100  # pairs


def source_form_warning(problem: Problem) -> str | None:
    """Returns a warning if `preprocess` changes one of the first training sources.

    Training reads the sources as they are, and evaluation and translation preprocess
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
                f"makes '{text}' of the training source '{source}', so the model will "
                "translate other texts than it is trained on: let the source yield "
                "preprocessed texts"
            )
    return None
