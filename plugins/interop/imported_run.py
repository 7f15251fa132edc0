"""Run directories with models of other programs."""

import contextlib
import dataclasses
import hashlib
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self, TypedDict

import numpy as np

from t2t_keras.errors import UserError, require_readable_name
from t2t_keras.hparam import HParams
from t2t_keras.problem import SIDES, Problem
from t2t_keras.run.checkpoint import CheckpointDirectory, write_checkpoint
from t2t_keras.run.config import (
    DecodingDefaults,
    RunConfig,
    config_for,
    has_checkpoint,
)
from t2t_keras.run.directory import RunDirectory
from t2t_keras.run.history import record_event

DEFAULT_PROBLEM = "translate_text"


@dataclasses.dataclass(frozen=True)
class ImportedRun:
    """The result of an import.

    Attributes:
        run: the run directory.
        took: the files and values that were imported, by what they are.
        left_out: sentences about what was not imported.
        check: sentences about what the user should check because it is a guess.
    """

    run: RunDirectory
    took: dict[str, Any]
    left_out: list[str]
    check: list[str]

    def recorded(self, program: str) -> Self:
        """Records the import in the run's history and returns itself.

        Args:
            program: the program that trained the model.
        """
        facts = {"took": self.took, "left_out": self.left_out, "check": self.check}
        record_event(self.run.path, "import", program=program, **facts)
        return self


class VocabularyFile(NamedTuple):
    """The name and content of a vocabulary file in a run directory."""

    name: str
    content: bytes


def require_empty(output_dir: Path) -> None:
    """Raises UserError if a directory has files, or TensorFlow cannot read there."""
    require_readable_name("--output_dir", output_dir)
    if output_dir.exists() and any(output_dir.iterdir()):
        raise UserError(f"{output_dir} is not empty; give a new --output_dir")


def _remove(output_dir: Path, *, existed: bool) -> None:
    """Removes what `write_run` has written, but not a directory that existed."""
    for path in list(output_dir.iterdir()) if existed else [output_dir]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def write_run(
    output_dir: Path,
    problem: Problem,
    hparams_set: str,
    hparams: HParams,
    vocabularies: tuple[VocabularyFile, VocabularyFile],
    checkpoints: Iterable[tuple[int, Mapping[str, np.ndarray]]],
    data_dir: str | Path | None = None,
    usr_dir: str | Path | None = None,
    decoding: DecodingDefaults | None = None,
    origin: Mapping[str, str] | None = None,
) -> RunDirectory:
    """Writes a run directory, or nothing if an error occurs.

    Args:
        output_dir: the run directory.
        problem: the problem to use the model for.
        hparams_set: the name for the hyper-parameters in the run.
        hparams: the hyper-parameters.
        vocabularies: the vocabularies of source and target.
        checkpoints: the number of updates and the weights of each checkpoint, by their
            names in our checkpoints (`run.checkpoint`).
        data_dir: our data directory of the problem, with the same vocabularies; None:
            the run directory takes its place, and gets the vocabularies.
        usr_dir: the folder that registers the problem; None: there is no such folder.
        decoding: the decoding options that the other program's files have; others are
            the problem's. None: they have none.
        origin: see `RunConfig`.

    Raises:
        UserError: the data were made with other vocabularies, or two checkpoints have
            the same step.
    """
    with contextlib.ExitStack() as undo:
        undo.callback(_remove, output_dir, existed=output_dir.exists())
        output_dir.mkdir(parents=True, exist_ok=True)
        config = _run_config(
            problem, hparams_set, vocabularies, output_dir, data_dir, usr_dir
        )
        config = dataclasses.replace(
            config, decoding=decoding or {}, origin=dict(origin or {})
        )
        for step, weights in checkpoints:
            path = CheckpointDirectory(output_dir).path(step)
            if has_checkpoint(path):
                raise UserError(
                    f"--last: two checkpoints are of step {step}; import one at a time"
                )
            write_checkpoint(path, {"step": np.int64(step), **weights})
        # The configuration is written last, since it makes the directory a run.
        run = RunDirectory.create(output_dir, config, hparams)
        undo.pop_all()
    return run


def _run_config(
    problem: Problem,
    hparams_set: str,
    vocabularies: tuple[VocabularyFile, VocabularyFile],
    output_dir: Path,
    data_dir: str | Path | None,
    usr_dir: str | Path | None,
) -> RunConfig:
    """Returns the configuration of the run; see `write_run`.

    Raises:
        UserError: the data were made with other vocabularies.
    """
    hashes = [hashlib.sha256(content).hexdigest() for _, content in vocabularies]
    if problem.reverse:
        # The manifest of the data has the hashes in the order of the records.
        hashes.reverse()
    vocab_sha256: dict[str, str] = dict(zip(SIDES, hashes, strict=True))
    if data_dir is not None:
        config = config_for(problem, hparams_set, data_dir, 0, usr_dir)
        if config.vocab_sha256 != vocab_sha256:
            raise UserError(
                f"--data_dir: the data in {data_dir} were made with other vocabularies "
                "than the model; leave it out, and make data for the run with "
                "`t2t datagen --vocab` and the run's directory"
            )
        return config
    for name, content in vocabularies:
        (output_dir / name).write_bytes(content)
    source, target = vocabularies
    return RunConfig(
        problem=problem.name,
        hparams_set=hparams_set,
        data_dir=str(output_dir.resolve()),
        seed=0,
        source_vocab=source.name,
        target_vocab=target.name,
        vocab_sha256=vocab_sha256,
        usr_dir=str(Path(usr_dir).resolve()) if usr_dir else None,
    )


class OutputDifference(TypedDict):
    """A line for which the run and the other program have different outputs.

    Attributes:
        line: the line number, from 1.
        output: the output of the run.
        given: the output of the other program.
    """

    line: int
    output: str
    given: str


class VerifiedOutputs(TypedDict):
    """The result of `verify`.

    Attributes:
        lines: number of sources.
        identical: number of outputs that equal the other program's.
        first_difference: the first line with different outputs, if there is one.
    """

    lines: int
    identical: int
    first_difference: OutputDifference | None


def verify(
    imported: ImportedRun, sources: Sequence[str], outputs: Sequence[str]
) -> VerifiedOutputs:
    """Compares the run's outputs with the other program's, except for white space.

    Args:
        imported: the imported run.
        sources: one source in each line.
        outputs: the other program's output for each source, found by the same search.
    """
    translations = imported.run.translator().translate(sources)
    num_identical = 0
    first_difference: OutputDifference | None = None
    pairs = zip(translations, outputs, strict=True)
    for line, (translation, output) in enumerate(pairs, 1):
        if translation.split() == output.split():
            num_identical += 1
        elif first_difference is None:
            first_difference = {"line": line, "output": translation, "given": output}
    return {
        "lines": len(sources),
        "identical": num_identical,
        "first_difference": first_difference,
    }
