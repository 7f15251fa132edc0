"""Converts a Marian model to a run directory."""

from collections.abc import Callable
from pathlib import Path

from t2t_keras import registry

from .hf_marian import load_hf_marian
from .imported_run import (
    DEFAULT_PROBLEM,
    ImportedRun,
    VocabularyFile,
    require_empty,
    write_run,
)
from .marian_model import load_marian
from .marian_weights import MarianModel

_LOADERS: dict[str, Callable[[str | Path], MarianModel]] = {
    "marian": load_marian,
    "hf-marian": load_hf_marian,
}


def import_marian_run(
    source: str | Path,
    output_dir: str | Path,
    *,
    program: str,
    problem: str | None = None,
    data_dir: str | Path | None = None,
    usr_dir: str | Path | None = None,
) -> ImportedRun:
    """Writes a run directory with a Marian model.

    It can be used, evaluated and exported like any other, and be the start of another
    training, but its own cannot be resumed.

    Args:
        source: see `load_marian` and `load_hf_marian`.
        output_dir: the new run directory.
        program: "marian" or "hf-marian".
        problem: the problem to use the model for; None: `translate_text`.
        data_dir: our data directory of the problem, with the same vocabularies, for
            evaluations; None: there is none.
        usr_dir: the folder that registers the problem, which the run remembers.

    Raises:
        UserError: the model cannot be read, there is no such problem, the data have
            other vocabularies, or the directory is not empty.
    """
    output_dir = Path(output_dir)
    require_empty(output_dir)
    if usr_dir is not None:
        registry.load_usr_dir(usr_dir)
    task = registry.problem(problem or DEFAULT_PROBLEM)
    model = _LOADERS[program](source)
    names = ("vocab.source.marian", "vocab.target.marian")
    if model.vocabularies[0] == model.vocabularies[1]:
        names = ("vocab.marian", "vocab.marian")
    source_vocabulary, target_vocabulary = map(
        VocabularyFile, names, model.vocabularies
    )
    run = write_run(
        output_dir,
        task,
        program,
        model.hparams,
        (source_vocabulary, target_vocabulary),
        [(0, model.weights)],
        data_dir,
        usr_dir,
    )
    check = list(model.check)
    if problem is None:
        check.insert(0, f"the problem {task.name}; another one: --problem")
    left_out = [*model.left_out, "the optimizer's state: training cannot be resumed"]
    took = model.took | {"problem": task.name}
    imported = ImportedRun(run, took, left_out, check, model.options)
    return imported.recorded("Marian")
