"""Raw text to a data directory: vocabulary, TFRecords, index, manifest.

All files are made in `{data_name}.incomplete/` and moved out when every one is there,
the manifest last. What is finished in there is used again when the same command is run
after an interruption, however rude. The bytes depend on the problem, the sources and
the seed only; the memory does not depend on the number of pairs.

Several machines that share a disk can divide the work (`Task`). The first to come
counts the pairs and trains the vocabulary; each encodes its share into `task-*`; the
last to be done sorts all the shares into shards. TensorFlow is not imported, unless a
source needs it.
"""

import contextlib
import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

from t2t_keras.data.job import Job
from t2t_keras.data.lock import lock
from t2t_keras.data.manifest import Manifest, Recipe, complete
from t2t_keras.data.progress import say
from t2t_keras.data.records import unfinished_dir
from t2t_keras.data.task import Task, at_work
from t2t_keras.data.workers import num_cores
from t2t_keras.errors import UserError
from t2t_keras.problem import Problem


def generate(
    problem: Problem, data_dir: str | Path, workers: int | None = None, seed: int = 0
) -> Manifest:
    """Makes the data of a problem.

    A vocabulary file that already stands in the directory under the problem's name is
    used as it is. A directory that is complete is left alone.

    Args:
        problem: with at least a source of training pairs.
        data_dir: where the files go; made if it does not exist.
        workers: number of processes; None: one for each core; 1: all in this process.
            More than one import the main module, so that a script must call this
            function under `if __name__ == "__main__":`.
        seed: of the vocabulary's sample and of the order of the training examples.

    Returns:
        The manifest of the directory.

    Raises:
        UserError: a source is not as it should be, the directory holds data made from
            something else, or it cannot be written.
    """
    manifest = generate_share(problem, data_dir, Task(), workers, seed)
    assert manifest is not None  # the only task is also the last
    return manifest


def generate_share(
    problem: Problem,
    data_dir: str | Path,
    task: Task,
    workers: int | None = None,
    seed: int = 0,
) -> Manifest | None:
    """Does one task's share of `generate`, and the rest if it is the last to be done.

    Args:
        problem: as in `generate`, the same for all tasks.
        data_dir: on a disk that all tasks share.
        task: this one.
        workers: see `generate`.
        seed: as in `generate`, the same for all tasks.

    Returns:
        The manifest, or None as long as other shares are missing.

    Raises:
        UserError: as in `generate`.
    """
    problem.source("train")
    data_dir = Path(data_dir)
    work = unfinished_dir(data_dir, problem.data_name)
    recipe = Recipe.of(problem, data_dir, seed)
    with _user_errors(data_dir, work):
        manifest = complete(recipe, data_dir)
        if manifest is None:
            cores = workers or num_cores()
            job = Job(problem, recipe, data_dir, work, task, cores)
            own = work / f"{task.name}.lock"
            with lock(own, lambda holder: at_work(work), job.purpose):
                return job.run()
        shutil.rmtree(work, ignore_errors=True)  # of a run killed at its very end
    say(f"{data_dir}: the data of '{recipe.problem}' is there already")
    return manifest


@contextlib.contextmanager
def _user_errors(data_dir: Path, work: Path) -> Iterator[None]:
    """Says in one sentence that the disk is full or cannot be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"the disk of {data_dir} is full; free some space and run the same "
                f"command again, and it goes on where it stopped (or remove {work})"
            ) from error
        if error.filename is None:
            raise
        raise UserError(f"cannot write {error.filename}: {error.strerror}") from error
