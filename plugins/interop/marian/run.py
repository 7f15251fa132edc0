"""Makes run directories of Marian models."""

from pathlib import Path

from t2t_keras import registry
from t2t_keras.cli.config_file import flag_text
from t2t_keras.usr_dir import load_usr_dir

from ..imported_run import (
    DEFAULT_PROBLEM,
    ImportedRun,
    VocabularyFile,
    require_empty,
    write_run,
)
from ..model_sources import FoundModel
from .files import load_marian
from .transformers import load_hf_marian

_LOADERS = {"marian": load_marian, "hf-marian": load_hf_marian}


def import_marian_run(
    source: str | Path | FoundModel,
    output_dir: str | Path,
    *,
    program: str,
    problem: str | None = None,
    data_dir: str | Path | None = None,
    usr_dir: str | Path | None = None,
) -> ImportedRun:
    """Writes a run directory with a Marian model.

    The run can be used, evaluated, exported and fine-tuned (`--init_from`) like any
    other, but its training cannot be resumed.

    Args:
        source: see `load_marian` and `load_hf_marian`; of a model that was fetched or
            unpacked, the run records the origin.
        output_dir: the new run directory.
        program: "marian" or "hf-marian".
        problem: the problem to use the model for; None: `translate_text`.
        data_dir: our data directory of the problem, with the same vocabularies, for
            evaluations; None: there are no data.
        usr_dir: the folder that registers the problem; the run remembers it.

    Raises:
        UserError: the model cannot be read, there is no such problem, the data have
            other vocabularies, or the directory is not empty.
    """
    output_dir = Path(output_dir)
    require_empty(output_dir)
    if usr_dir is not None:
        load_usr_dir(usr_dir)
    task = registry.problem(problem or DEFAULT_PROBLEM)
    files = source if isinstance(source, FoundModel) else FoundModel(Path(source))
    model = _LOADERS[program](files.path)
    run = write_run(
        output_dir,
        task,
        program,
        model.hparams,
        _vocabulary_files(model.vocabularies),
        [(0, model.weights)],
        data_dir,
        usr_dir,
        model.decoding,
        files.origin,
    )
    check = list(model.check)
    if problem is None:
        check.insert(0, f"the problem {task.name}; another one: --problem")
    left_out = [*model.left_out, "the optimizer's state: training cannot be resumed"]
    took: dict[str, str | list[str]] = {}
    for name, value in model.took.items():
        if isinstance(value, str):
            took[name] = files.shown(value)
        else:
            took[name] = [files.shown(path) for path in value]
    took |= {"search": flag_text(model.decoding), "problem": task.name}
    return ImportedRun(run, took, left_out, check).recorded("Marian")


def _vocabulary_files(
    contents: tuple[bytes, bytes],
) -> tuple[VocabularyFile, VocabularyFile]:
    source, target = contents
    if source == target:
        shared = VocabularyFile("vocab.marian", source)
        return shared, shared
    return (
        VocabularyFile("vocab.source.marian", source),
        VocabularyFile("vocab.target.marian", target),
    )
