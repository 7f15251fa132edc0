"""A run directory with the model of another program."""

import contextlib
import dataclasses
import hashlib
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from t2t_keras.data.sides import SIDES
from t2t_keras.decoding.texts import checked_pairs
from t2t_keras.errors import UserError
from t2t_keras.hparam import HParams
from t2t_keras.problem import Problem
from t2t_keras.run.checkpoint import CheckpointDirectory, write_checkpoint
from t2t_keras.run.config import RunConfig, config_for
from t2t_keras.run.directory import RunDirectory

DEFAULT_PROBLEM = "translate_text"


@dataclasses.dataclass(frozen=True)
class ImportedRun:
    """What an import has made.

    Attributes:
        run: the run directory.
        took: what was taken, by kind.
        left_out: what was not.
        check: what the user should check, because it was chosen by default.
        options: the options of decoding with which the other program translates, if
            its files have some; others have the problem's defaults.
    """

    run: RunDirectory
    took: dict[str, Any]
    left_out: list[str]
    check: list[str]
    options: dict[str, Any] = dataclasses.field(default_factory=dict)

    def recorded(self, program: str) -> Self:
        """Records the import in the run's history; returns itself.

        Args:
            program: the program that has trained the model.
        """
        facts = {"took": self.took, "left_out": self.left_out, "check": self.check}
        self.run.record("import", program=program, **facts)
        return self


class VocabularyFile(NamedTuple):
    """A vocabulary: the name of its file in a run directory, and the content."""

    name: str
    content: bytes


def require_empty(output_dir: Path) -> None:
    """Refuses a directory with files.

    Raises:
        UserError: it has some.
    """
    if output_dir.exists() and any(output_dir.iterdir()):
        raise UserError(f"{output_dir} is not empty; give a new --output_dir")


@contextlib.contextmanager
def _new_directory(output_dir: Path) -> Iterator[None]:
    """Makes a directory, and removes it, or what is in it, if the block raises."""
    existed = output_dir.exists()
    output_dir.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in list(output_dir.iterdir()) if existed else [output_dir]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def write_run(
    output_dir: Path,
    problem: Problem,
    hparams_set: str,
    hparams: HParams,
    vocabularies: tuple[VocabularyFile, VocabularyFile],
    checkpoints: Iterable[tuple[int, Mapping[str, np.ndarray]]],
    data_dir: str | Path | None = None,
    usr_dir: str | Path | None = None,
) -> RunDirectory:
    """Writes a run directory, or nothing at all.

    Args:
        output_dir: the run directory.
        problem: see `_run_config`, as are all arguments without a line here.
        hparams_set: see `_run_config`.
        hparams: the hyper-parameters.
        vocabularies: see `_run_config`.
        checkpoints: for each, the number of updates and the weights by their names in
            our checkpoints (`runs.checkpoint`).
        data_dir: see `_run_config`.
        usr_dir: see `_run_config`.

    Raises:
        UserError: the data were made with other vocabularies, or two checkpoints are of
            the same step.
    """
    with _new_directory(output_dir):
        config = _run_config(
            problem, hparams_set, vocabularies, output_dir, data_dir, usr_dir
        )
        for step, weights in checkpoints:
            path = CheckpointDirectory(output_dir).path(step)
            if path.with_name(f"{path.name}.index").exists():
                raise UserError(
                    f"--last: two checkpoints are of step {step}; import one at a time"
                )
            write_checkpoint(path, {"step": np.int64(step), **weights})
        # The configuration comes last: with it the directory is a run.
        return RunDirectory.create(output_dir, config, hparams)


def _run_config(
    problem: Problem,
    hparams_set: str,
    vocabularies: tuple[VocabularyFile, VocabularyFile],
    output_dir: Path,
    data_dir: str | Path | None = None,
    usr_dir: str | Path | None = None,
) -> RunConfig:
    """Returns the configuration of the run.

    Without a data directory, the run directory takes its place, and gets the
    vocabularies.

    Args:
        problem: the problem to use the model for.
        hparams_set: what the run calls its hyper-parameters.
        vocabularies: those of source and target.
        output_dir: the run directory.
        data_dir: our data directory of the problem, with the same vocabularies; None:
            there is none.
        usr_dir: the folder that registers the problem; None: there is none.

    Raises:
        UserError: the data were made with other vocabularies.
    """
    sums = [hashlib.sha256(content).hexdigest() for _, content in vocabularies]
    if problem.reverse:  # as in the manifest of the data
        sums.reverse()
    hashes: dict[str, str] = dict(zip(SIDES, sums, strict=True))
    if data_dir is not None:
        config = config_for(problem, hparams_set, data_dir, 0, usr_dir)
        if config.vocab_sha256 != hashes:
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
        vocab_sha256=hashes,
        usr_dir=str(Path(usr_dir).resolve()) if usr_dir else None,
    )


def verify(
    imported: ImportedRun, sources: Sequence[str], outputs: Sequence[str]
) -> dict[str, Any]:
    """Compares the run's outputs with those of the other program, white space apart.

    Args:
        imported: the imported run, whose `options` the search has.
        sources: inputs, one line each.
        outputs: what the other program has translated them to, with the same search.

    Returns:
        "lines", how many there are; "identical", how many outputs are the given ones;
        and "first_difference" with "line", "output" and "given", or None.

    Raises:
        UserError: the numbers of sources and outputs differ.
    """
    sources, outputs = checked_pairs(sources, outputs)
    found = imported.run.translator().translate(sources, **imported.options)
    differences = [
        {"line": number, "output": ours, "given": theirs}
        for number, (ours, theirs) in enumerate(zip(found, outputs, strict=True), 1)
        if ours.split() != theirs.split()
    ]
    return {
        "lines": len(sources),
        "identical": len(sources) - len(differences),
        "first_difference": differences[0] if differences else None,
    }
