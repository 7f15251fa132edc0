"""The figures that a problem is judged by, during training and after."""

from collections.abc import Mapping, Sequence
from typing import Any

from t2t_keras.problem import Problem


def score_outputs(
    problem: Problem, outputs: Sequence[str], references: Sequence[str]
) -> dict[str, float]:
    """Scores outputs of a problem, in percent.

    Args:
        problem: whose `output` says what they are.
        outputs: decoded and postprocessed.
        references: as many.

    Returns:
        For text "bleu", sacreBLEU with the problem's `bleu_tokens`. For trees "f1" and
        "f1_errors_as_zero", and how many sentences EVALB leaves out of the former:
        "error_sentences" and "skipped_sentences".
    """
    if problem.output == "text":
        from t2t_keras.evaluation.bleu import corpus_bleu

        return {"bleu": corpus_bleu(outputs, references, problem.bleu_tokens)}
    from t2t_keras.evaluation.bracket_f1 import evaluate_trees

    summary = evaluate_trees(references, outputs).summary()
    return {
        "f1": summary["f1"],
        "f1_errors_as_zero": summary["f1_errors_as_zero"],
        "error_sentences": summary["error"],
        "skipped_sentences": summary["skip"],
    }


def full_scores(
    problem: Problem, outputs: Sequence[str], references: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Scores outputs of a problem in every way there is, as `t2t evaluate` prints them.

    Args:
        problem: whose `output` says what they are, and whose conventions for text hold.
        outputs: decoded and postprocessed.
        references: as many.

    Returns:
        For text "bleu", what `bleu.bleu_scores` returns; for trees "f1", that of
        `bracket_f1.evaluate_trees` as a dict.
    """
    if problem.output == "text":
        from t2t_keras.evaluation.bleu import bleu_scores
        from t2t_keras.evaluation.moses import LANGUAGES

        target = problem.languages[1]
        language = target if target in LANGUAGES else None
        scores = bleu_scores(outputs, references, language, problem.bleu_tokens)
        return {"bleu": scores}
    from t2t_keras.evaluation.bracket_f1 import evaluate_trees

    return {"f1": evaluate_trees(references, outputs).to_dict()}


def goodness(figures: Mapping[str, float]) -> float:
    """Returns what is higher for a better model.

    It is BLEU, or F1 in which an error counts, since a model that fails on all but the
    easiest sentences has a high F1 without; where nothing was decoded, minus the loss.

    Args:
        figures: of `score_outputs`, perhaps none, and "loss".
    """
    for name in ("bleu", "f1_errors_as_zero"):
        if name in figures:
            return figures[name]
    return -figures["loss"]
