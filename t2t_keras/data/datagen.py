"""Data generation: from the sources of a problem to a data directory, in stages.

    stage               output, in {data_name}.incomplete/
    count_pairs         corpora.json, left_out.json
    train_vocabularies  done/vocab.*
    encode_splits       pairs*/{split}.spill-*, .hashes, .state.json
    write_shards        done/{data_name}-{split}-*-of-*, {split}.lengths-*
                        done/{data_name}-{split}.index.npz
    write_raw_texts     done/{data_name}-{split}.sources, .targets
    write_manifest      done/{data_name}.manifest.json
    publish             moves done/* into the data directory, the manifest last

Every file is written atomically, and a stage is skipped if its output exists: the same
command continues an interrupted run. The bytes depend only on the problem, the
sources and the seed (`DataConfig`), and the memory does not depend on the number of
pairs, except for the tables that docs/data.md lists. TensorFlow is not imported unless
a source needs it.

A `TaskRunner` runs the stages up to `write_shards` on other machines instead.

A complete directory gets only the splits that it lacks, encoded with its vocabularies.
"""

import dataclasses
import errno
import functools
import glob
import itertools
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from t2t_keras.checking import NonNegative, Positive, Seed, checked
from t2t_keras.console import say
from t2t_keras.data.count_pairs import count_in_tasks, count_pairs
from t2t_keras.data.drawing_tasks import draw_training_pairs
from t2t_keras.data.encode_splits import encode_splits, whole_splits
from t2t_keras.data.encoding_tasks import encode_in_tasks, task_parts
from t2t_keras.data.held_out import hold_out
from t2t_keras.data.manifest import (
    Counts,
    DataConfig,
    DataPlan,
    Manifest,
    data_config,
    differences,
    existing_data,
)
from t2t_keras.data.raw_texts import write_raw_texts
from t2t_keras.data.record_index import unfinished_dir
from t2t_keras.data.tasks import TaskRunner, run_here
from t2t_keras.data.vocabulary import (
    chosen_vocab_size,
    require_tags,
    train_vocabularies,
    vocabulary_warnings,
)
from t2t_keras.data.write_manifest import write_manifest
from t2t_keras.data.write_shards import write_shards
from t2t_keras.devices import num_cores
from t2t_keras.errors import UserError, require_local
from t2t_keras.files.atomic import lock
from t2t_keras.files.json_files import from_fields, read_json, write_json
from t2t_keras.problem import Problem, Split, TextProcessor

_CHECKED = 100  # pairs


def source_form_warning(problem: Problem) -> str | None:
    """Returns a warning if `preprocess` changes one of the first training sources.

    Training reads its sources as they are; evaluation and translation preprocess
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
                f"turns the training source '{source}' into '{text}', so the model "
                "will translate texts of another form than it is trained on: "
                "preprocess the sources of the pairs too"
            )
    return None


@checked
def generate(
    problem: Problem,
    data_dir: str | Path,
    workers: Positive | None = None,
    seed: Seed = 0,
    runner: TaskRunner | None = None,
    dev_size: NonNegative = 0,
    test_size: NonNegative = 0,
) -> Manifest:
    """Makes the data of a problem.

    A vocabulary file that the directory has under the problem's name is used as it is.
    So are the splits that the directory has; missing ones are added.

    Args:
        problem: a problem with a source of training pairs, unless the directory has
            training examples.
        data_dir: the directory to write, which is made if it does not exist.
        workers: number of processes; None for one on each core. With 1 all is done in
            this process. More import the main module, so a script must then call this
            function under `if __name__ == "__main__":`.
        seed: seed of the vocabulary's sample, of the order of the training examples,
            and of what is held out.
        runner: runs tasks on other machines, which share the directory and the files
            of the sources. None: this machine's processes do the work.
        dev_size: number of dev pairs that are taken out of the training pairs, see
            `held_out.hold_out`; 0: none are.
        test_size: the same for test.

    Returns:
        The manifest of the directory.

    Raises:
        UserError: a source has a mistake, the directory holds data that was made from
            something else, or it cannot be written.
    """
    require_local("data_dir", data_dir)
    data_dir = Path(data_dir)
    problem = problem.in_data_dir(data_dir)
    held_out: dict[Split, int] = {}
    if dev_size:
        held_out["dev"] = dev_size
    if test_size:
        held_out["test"] = test_size
    if held_out:
        problem = hold_out(problem, held_out, seed)
    size_is_given = problem.vocab_size is not None
    if not size_is_given:
        size = chosen_vocab_size(problem, data_dir, runner)
        problem = problem.replace(vocab_size=size)
    config = data_config(problem, data_dir, seed, held_out)
    directory = unfinished_dir(data_dir, problem.data_name)
    try:
        manifest = existing_data(config, data_dir)
        if manifest is None:
            problem.source("train")  # raises UserError if there is none
        elif manifest.has_splits_of(config):
            # A run that was killed while it published may have left its directory.
            shutil.rmtree(directory, ignore_errors=True)
            say(f"{data_dir}: the data of '{config.problem}' is there already")
            return _with_new_facts(manifest, problem, data_dir)
        # A second time if an earlier run had left something else to publish.
        while manifest is None or not manifest.has_splits_of(config):
            if manifest is not None:
                config = config.added_to(manifest)
                _refuse_unknown_splits(manifest, config, data_dir)
            plan = DataPlan(problem, config, data_dir, manifest)
            run_stages(plan, workers or num_cores(), runner)
            manifest = existing_data(config, data_dir)
    except OSError as error:
        raise _write_error(error, data_dir, directory) from error
    if size_is_given:
        for warning in vocabulary_warnings(manifest):
            say(warning)
    return manifest


def run_stages(plan: DataPlan, workers: int, runner: TaskRunner | None = None) -> None:
    """Runs the stages in order, from where an earlier run has stopped."""
    with lock(plan.directory / "lock", lambda holder: _busy(plan.directory)):
        if not plan.is_complete():
            counts = prepare(plan, workers, runner)
            encode(plan, counts, workers, runner)
            finish(plan, counts, runner)
        publish(plan.directory, plan.done, plan.data_dir, plan.manifest_path)


def prepare(plan: DataPlan, workers: int, runner: TaskRunner | None) -> Counts:
    """Runs the stages before the encoding; returns the number of pairs."""
    start_or_resume(plan.directory, plan.done, plan.config)
    if "train" in plan.splits and (warning := source_form_warning(plan.problem)):
        say(warning)
    draw_sample = None
    if runner is None:
        counts = count_pairs(plan.problem, plan.splits, plan.directory)
    else:
        counts = count_in_tasks(plan.problem, plan.splits, plan.directory, runner)
        draw_sample = functools.partial(draw_training_pairs, plan, counts, runner)
    train_vocabularies(
        plan.problem,
        counts.get("train", {}),
        plan.vocabularies,
        plan.directory,
        plan.config.seed,
        in_subprocess=workers > 1 or runner is not None,
        draw_sample=draw_sample,
    )
    require_tags(plan.problem, plan.splits, plan.vocabularies["source"])
    return counts


def encode(
    plan: DataPlan, counts: Counts, workers: int, runner: TaskRunner | None
) -> None:
    """Encodes the pairs of all splits."""
    if runner is not None:
        encode_in_tasks(plan, counts, runner)
        return
    parts = itertools.chain(*whole_splits(plan, counts).values())
    encode_splits(plan.problem, list(parts), plan.vocabularies, workers)


def finish(plan: DataPlan, counts: Counts, runner: TaskRunner | None) -> None:
    """Runs the stages after the encoding."""
    by_split = (whole_splits if runner is None else task_parts)(plan, counts)
    dropped: dict[Split, Counter[str]] = {}
    for split, parts in by_split.items():
        dropped[split] = write_shards(
            parts,
            plan.problem.sources[split],
            plan.problem.data_name,
            plan.directory,
            plan.done,
            runner or run_here,
        )
    for split in plan.splits:
        if split != "train":
            total = sum(counts[split].values())
            write_raw_texts(plan.problem, split, total, plan.done)
    write_manifest(plan, counts, dropped, by_split)


def start_or_resume(directory: Path, done: Path, config: DataConfig) -> None:
    """Empties the directory, unless an earlier run had the same config."""
    path = directory / "config.json"
    fields = read_json(path)
    if fields is not None:
        earlier = from_fields(DataConfig, fields, path)
        changes = differences(vars(earlier), vars(config))
        if not changes:
            say(f"{directory}: continuing where an earlier run stopped")
            return
        say(f"{directory}: starting again, because {'; '.join(changes)}")
    for child in directory.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
        elif child.name != "lock":
            child.unlink()
    done.mkdir()
    write_json(path, dataclasses.asdict(config), with_checksum=True)


def publish(directory: Path, done: Path, data_dir: Path, manifest_path: Path) -> None:
    """Moves the finished files into the data directory, the manifest last."""
    if done.exists():  # another run may have published them
        left_by_a_kill = {*done.glob("*.incomplete"), *done.glob("*.tmp")}
        paths = sorted({*done.iterdir()} - left_by_a_kill)
        for path in sorted(paths, key=lambda path: path == manifest_path):
            os.replace(path, data_dir / path.name)
    # Another run may make its lock file there again, and then removes the rest.
    shutil.rmtree(directory, ignore_errors=True)


def _with_new_facts(manifest: Manifest, problem: Problem, data_dir: Path) -> Manifest:
    """Writes the licence and the languages of a problem into an earlier manifest."""
    facts: dict[str, Any] = {}
    for name in ("license", "languages"):
        value = getattr(problem, name)
        if value and value != getattr(manifest, name):
            facts[name] = value
    if facts:
        manifest = dataclasses.replace(manifest, **facts)
        path = Manifest.path(data_dir, problem.data_name)
        write_json(path, dataclasses.asdict(manifest), with_checksum=True)
        say(f"the manifest now has the {' and the '.join(facts)} of this command")
    return manifest


def _refuse_unknown_splits(
    manifest: Manifest, config: DataConfig, data_dir: Path
) -> None:
    """Raises `UserError` if a split to make is there but not in the manifest."""
    if unfinished_dir(data_dir, config.problem).exists():
        return  # the split may be from a run that was killed while it published
    for split in config.sources.keys() - manifest.sources.keys():
        for path in data_dir.glob(
            f"{glob.escape(config.problem)}-{split}-?????-of-?????"
        ):
            raise UserError(
                f"{path} is there, and the manifest of '{config.problem}' does not "
                f"know it; remove it, or leave out the {split} examples"
            )


def _busy(directory: Path) -> UserError:
    """Returns the error for a directory in which another run works."""
    return UserError(
        f"another `t2t datagen` is at work in {directory}; wait until it is done"
    )


def _write_error(error: OSError, data_dir: Path, directory: Path) -> Exception:
    """Returns the `UserError` for a disk that is full or cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return UserError(
            f"the disk of {data_dir} is full; free some space and run the same command "
            f"again, which continues where it stopped (or remove {directory})"
        )
    if error.filename is None:
        return error
    return UserError(f"cannot write {error.filename}: {error.strerror}")
