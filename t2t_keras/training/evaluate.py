"""One checkpoint of a run on one split: every score, and the texts if wanted."""

from pathlib import Path
from typing import Any

from t2t_keras.data.files import write_lines
from t2t_keras.data.progress import progress
from t2t_keras.evaluation.metrics import full_scores
from t2t_keras.problem import Problem, Split
from t2t_keras.training.held_out import HeldOut
from t2t_keras.training.run_dir import RunDirectory


def evaluate(
    run: RunDirectory,
    split: Split,
    problem: Problem | None = None,
    *,
    checkpoint: str | int | Path | None = None,
    data_dir: str | Path | None = None,
    sentences: int | None = None,
    write: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Decodes a split and scores it; the loss comes beside, by teacher forcing.

    Args:
        run: whose model it is.
        split: of its data.
        problem: the run's, perhaps to be scored in another way; None: just the run's.
        checkpoint: see `RunDirectory.restore`.
        data_dir: see `HeldOut.of_run`.
        sentences: how many to decode; None: all; 0: only the loss.
        write: where to write the decoded sentences: as `{write}.source`, `.reference`
            and `.hypothesis`.
        **options: of the decoding; the problem's are the defaults.

    Returns:
        "sentences", the number decoded; what `evaluation.metrics.full_scores` returns
        for them; of trees "repaired", the share of the outputs that were; and of the
        whole split "loss", "perplexity" and "accuracy".

    Raises:
        UserError: there is no such checkpoint, or there are no such data.
    """
    problem = problem or run.problem
    translator = run.translator(checkpoint)
    held_out = HeldOut.of_run(run, translator.model, split, data_dir)
    result: dict[str, Any] = {"sentences": 0}
    if sentences != 0:
        decoded = held_out.decode(translator, sentences, progress, **options)
        if write:
            write_lines(f"{write}.source", decoded.sources)
            write_lines(f"{write}.reference", decoded.references)
            write_lines(f"{write}.hypothesis", decoded.outputs)
        result["sentences"] = len(decoded.outputs)
        result |= full_scores(problem, decoded.outputs, decoded.references)
        if problem.output == "trees":
            result["repaired"] = decoded.repaired
    return result | held_out.loss(progress).to_dict()
