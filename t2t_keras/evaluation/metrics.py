"""The figure that a problem's outputs are judged by."""

from collections.abc import Sequence

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
        "bleu" (sacreBLEU, 13a) for text; for trees "f1" and "f1_errors_as_zero".
    """
    if problem.output == "text":
        import sacrebleu

        return {"bleu": sacrebleu.corpus_bleu(list(outputs), [list(references)]).score}
    from t2t_keras.evaluation.bracket_f1 import evaluate_trees

    report = evaluate_trees(references, outputs).to_dict()["all"]
    return {name: report[name] for name in ("f1", "f1_errors_as_zero")}
