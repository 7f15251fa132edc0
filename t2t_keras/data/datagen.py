"""Raw text to a data directory: vocabulary, TFRecords, index, manifest.

All files are made in `{data_name}.incomplete/` and moved out when every one is there,
the manifest last. What is finished in there is used again when the same command is run
after an interruption, however rude. The bytes depend on the problem, the sources and
the seed only; the memory does not depend on the number of pairs.

Several machines that share a disk can divide the work (`Task`). The first to come
counts the pairs and trains the vocabulary; each encodes its share into `task-*`; the
last to be done sorts all the shares into shards. TensorFlow is not imported, unless a
source needs it.

A directory that is complete gets the splits that it lacks, encoded with its vocabulary;
what it has stays as it is, and must be asked for as it was made.
"""

import contextlib
import errno
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from t2t_keras.data.job import Job
from t2t_keras.data.manifest import Manifest, Recipe, held
from t2t_keras.data.progress import say
from t2t_keras.data.records import unfinished_dir
from t2t_keras.data.task import Task, at_work
from t2t_keras.data.vocabulary import proposed_size, size_of_given, too_large
from t2t_keras.data.workers import num_cores
from t2t_keras.errors import UserError
from t2t_keras.lock import lock
from t2t_keras.problem import Problem


def generate(
    problem: Problem, data_dir: str | Path, workers: int | None = None, seed: int = 0
) -> Manifest:
    """Makes the data of a problem.

    A vocabulary file that already stands in the directory under the problem's name is
    used as it is. So are the splits that the directory has; what it lacks is added.

    Args:
        problem: with a source of training pairs, unless the directory has them.
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
    data_dir = Path(data_dir)
    work = unfinished_dir(data_dir, problem.data_name)
    sized = with_vocab_size(problem, data_dir)
    recipe = Recipe.of(sized, data_dir, seed)
    with _user_errors(data_dir, work):
        manifest = held(recipe, data_dir)
        if manifest is None:
            problem.source("train")
        elif manifest.has(recipe.sources):
            shutil.rmtree(work, ignore_errors=True)  # of a run killed at its very end
            say(f"{data_dir}: the data of '{recipe.problem}' is there already")
            return manifest
        # More than once where an earlier run had left something else to publish.
        while manifest is None or not manifest.has(recipe.sources):
            if manifest is not None:
                recipe = recipe.added_to(manifest)
                _refuse_unknown(manifest, recipe, data_dir)
            cores = workers or num_cores()
            job = Job(sized, recipe, data_dir, work, task, cores, manifest)
            own = work / f"{task.name}.lock"
            with lock(own, lambda holder: at_work(work), job.purpose):
                if not job.run():
                    return None
            manifest = held(recipe, data_dir)
    if problem.vocab_size is not None:
        _warn_if_too_large(manifest)
    return manifest


def with_vocab_size(problem: Problem, data_dir: Path) -> Problem:
    """Returns the problem with the size of its vocabulary chosen if it has none.

    It is that of the directory's data or vocabulary, else what suits the number of
    training pairs, see `vocabulary.proposed_size`.

    Raises:
        UserError: a source is not as it should be.
    """
    if problem.vocab_size is not None:
        return problem
    manifest = Manifest.load(Manifest.path(data_dir, problem.data_name))
    if manifest is not None:
        return problem.replace(vocab_size=manifest.vocab_size)
    if (size := size_of_given(problem, data_dir)) is not None:
        return problem.replace(vocab_size=size)
    pairs, characters = 0, set[str]()
    for source, target in problem.source("train")():
        pairs += 1
        characters.update(source, target)
    size = proposed_size(pairs, len(characters))
    say(
        f"vocabulary: {size:,} tokens, which suit {pairs:,} training pairs with "
        f"{len(characters):,} different characters: fewer pairs show each token too "
        "seldom, more allow longer ones (--vocab_size gives another size)"
    )
    return problem.replace(vocab_size=size)


def _warn_if_too_large(manifest: Manifest) -> None:
    """Says so if a vocabulary is too large for the training examples."""
    pairs = manifest.examples["train"] // manifest.copies
    tokens: Counter[str] = Counter()
    for side, name in manifest.vocab_files.items():
        tokens[name] += manifest.tokens["train"][side] // manifest.copies
    sizes = {name: manifest.vocab_sizes[s] for s, name in manifest.vocab_files.items()}
    for name, size in sizes.items():
        if warning := too_large(size, pairs, tokens[name]):
            say(warning)


def _refuse_unknown(manifest: Manifest, recipe: Recipe, data_dir: Path) -> None:
    """Refuses to write over a split that the manifest does not know.

    Raises:
        UserError: there is one among those to make.
    """
    if unfinished_dir(data_dir, recipe.problem).exists():
        return  # it may be ours, from a run killed when it published
    for split in recipe.sources.keys() - manifest.sources.keys():
        for path in data_dir.glob(f"{recipe.problem}-{split}-?????-of-?????"):
            raise UserError(
                f"{path} is there, and the manifest of '{recipe.problem}' does not "
                f"know it; remove it, or leave out the {split} examples"
            )


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
