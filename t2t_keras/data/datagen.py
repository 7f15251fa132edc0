"""Data generation: from the sources of a problem to a data directory, in stages.

    stage               output, in {data_name}.incomplete/
    count               corpora.json, left_out.json
    train_vocabularies  done/vocab.*
    encode              pairs*/{split}.spill-*, .hashes-*, .state.json
    write_shards        done/{data_name}-{split}-*-of-*, {split}.lengths-*
                        done/{data_name}-{split}.index.npz
    write_raw_texts     done/{data_name}-{split}.sources, .targets
    write_manifest      done/{data_name}.manifest.json
    publish             moves done/* into the data directory, the manifest last

Every file is written atomically, and a stage is skipped if its output exists: the same
command continues an interrupted run. The bytes depend only on the problem, the
sources and the seed (`DataConfig`), and the memory hardly depends on the number of
pairs. TensorFlow is not imported unless a source needs it.

`Stages` does the long work on this machine; a subclass may do it on others.

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from t2t_keras.checking import NonNegative, Positive, Seed, checked
from t2t_keras.console import progress, say
from t2t_keras.data.encode_splits import SplitPart, encode_splits, split_parts
from t2t_keras.data.held_out import hold_out
from t2t_keras.data.manifest import (
    Counts,
    DataConfig,
    DataPlan,
    Manifest,
    data_config,
    differences,
    existing_data,
    other_than_data,
    read_counts,
)
from t2t_keras.data.mixture import Corpus, corpora_of
from t2t_keras.data.raw_texts import write_raw_texts
from t2t_keras.data.record_index import unfinished_dir
from t2t_keras.data.vocabulary import (
    chosen_vocab_size,
    draw,
    require_tags,
    train_vocabularies,
    vocabulary_warnings,
)
from t2t_keras.data.write_manifest import write_manifest
from t2t_keras.data.write_shards import TaskMap, write_shards
from t2t_keras.devices import num_cores
from t2t_keras.errors import UserError, require_local
from t2t_keras.files.atomic import Lock, lock
from t2t_keras.files.json_files import from_fields, read_json, write_json
from t2t_keras.problem import Pair, Problem, Split, TextProcessor

A = TypeVar("A")
R = TypeVar("R")

_CHECKED = 100  # pairs
_CHUNK = 1000  # pairs after which the progress is updated


class Stages:
    """The long work of data generation, on this machine.

    A subclass may do it elsewhere, with the same bytes in the data directory.

    Args:
        workers: the number of processes; None for one on each core. With 1 all is done
            in this process.
    """

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or num_cores()

    def map(self, task: Callable[[A], R], arguments: Sequence[A], /) -> Iterator[R]:
        """Runs the tasks of a stage: a `TaskMap`."""
        return map(task, arguments)

    def measure(self, problem: Problem) -> tuple[int, int]:
        """Returns the numbers of training pairs and of different characters in them.

        Raises:
            UserError: a source has a mistake.
        """
        pairs = 0
        characters = set[str]()
        for source, target in problem.pairs("train"):
            pairs += 1
            characters.update(source, target)
        return pairs, len(characters)

    def count(self, plan: DataPlan) -> Counts:
        """Counts the pairs of each split, unless an earlier run has done so.

        Any mistake in a source is found here.

        Raises:
            UserError: a source has a mistake, or no pairs.
        """
        counts = read_counts(plan.directory / "corpora.json")
        left_out = read_counts(plan.directory / "left_out.json")
        for split in plan.splits:
            if split in counts:
                continue
            source = plan.problem.sources[split]
            by_corpus = {}
            for corpus in corpora_of(source):
                by_corpus[corpus.name] = _count(corpus, split)
            counts[split] = by_corpus
            left_out[split] = getattr(source, "dropped", {})
            write_counts(plan, counts, left_out)
        return counts

    def sample(
        self, plan: DataPlan, counts: Counts, sizes: Sequence[int]
    ) -> Iterator[Pair]:
        """Draws the training pairs from which a vocabulary is trained.

        Args:
            plan: what is made.
            counts: the number of pairs by split and corpus.
            sizes: the number of pairs to draw from each corpus.
        """
        pairs = plan.problem.pairs("train")
        return draw(pairs, list(counts["train"].values()), sizes, plan.config.seed)

    def encode(
        self, plan: DataPlan, counts: Counts, directory_lock: Lock
    ) -> dict[Split, list[SplitPart]]:
        """Encodes all pairs; returns the parts of each split, in order.

        Args:
            plan: what is made.
            counts: the number of pairs by split and corpus.
            directory_lock: the lock of the plan's directory.

        Raises:
            UserError: a source has changed since its pairs were counted, the disk
                loses what is written, or the directory was removed.
        """
        by_split = {}
        for split in plan.splits:
            ranges = {plan.directory / "pairs": range(sum(counts[split].values()))}
            by_split[split] = split_parts(plan, counts, split, ranges)
        parts = list(itertools.chain(*by_split.values()))
        encode_splits(
            plan.problem, parts, plan.vocabularies, self.workers, directory_lock
        )
        return by_split


def _count(corpus: Corpus, split: Split) -> int:
    """Returns the number of pairs of a corpus, which is above 0."""
    count = 0
    with progress(f"counting {split} {corpus.name}".strip(), "pairs") as advance:
        pairs = iter(corpus.source())
        while chunk := sum(1 for _ in itertools.islice(pairs, _CHUNK)):
            count += chunk
            advance(chunk)
    dropped = getattr(corpus.source, "dropped", {})
    require_pairs(count, split, corpus.name, dropped)
    return count


def require_pairs(
    count: int, split: Split, corpus: str, dropped: Mapping[str, int]
) -> None:
    """Raises `UserError` if a corpus has no pairs."""
    if not count:
        name = f" '{corpus}'" if corpus else ""
        details = f"; left out were {dict(dropped)}" if dropped else ""
        raise UserError(f"the {split} source{name} has no pairs{details}")


def write_counts(
    plan: DataPlan, counts: Counts, left_out: Mapping[Split, Mapping[str, int]]
) -> None:
    """Writes the files of the first stage.

    Args:
        plan: what is made.
        counts: the number of pairs by split and corpus.
        left_out: the number of pairs that the sources themselves left out, by split and
            reason.
    """
    write_json(plan.directory / "left_out.json", left_out, with_checksum=True)
    write_json(plan.directory / "corpora.json", counts, with_checksum=True)


@checked
def generate(
    problem: Problem,
    data_dir: str | Path,
    workers: Positive | None = None,
    seed: Seed = 0,
    dev_size: NonNegative = 0,
    test_size: NonNegative = 0,
    stages: Stages | None = None,
) -> Manifest:
    """Makes the data of a problem.

    A vocabulary file that the directory has under the problem's name is used as it is.
    So are the splits that the directory has; missing ones are added.

    Args:
        problem: a problem with a source of training pairs, unless the directory has
            training examples.
        data_dir: the directory to write, which is made if it does not exist.
        workers: number of processes; None for one on each core. With 1 all is done in
            this process.
        seed: seed of the vocabulary's sample, of the order of the training examples,
            and of what is held out.
        dev_size: number of dev pairs that are taken out of the training pairs, see
            `held_out.hold_out`; 0: none are.
        test_size: the same for test.
        stages: does the long work, perhaps on other machines; None: `workers`
            processes of this machine do it.

    Returns:
        The manifest of the directory.

    Raises:
        UserError: a source has a mistake, the directory holds data that was made from
            something else, or it cannot be written.
    """
    require_local("data_dir", data_dir)
    if what := other_than_data(data_dir):
        raise UserError(f"{what}; give another directory for new data")
    stages = stages or Stages(workers)
    data_dir = Path(data_dir)
    problem = problem.in_data_dir(data_dir)
    sizes: dict[Split, int] = {"dev": dev_size, "test": test_size}
    held_out = {split: size for split, size in sizes.items() if size}
    if held_out:
        problem = hold_out(problem, held_out, seed)
    size_is_given = problem.vocab_size is not None
    if not size_is_given:
        size = chosen_vocab_size(problem, data_dir, stages.measure)
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
            run_stages(plan, stages)
            manifest = existing_data(config, data_dir)
    except OSError as error:
        raise _write_error(error, data_dir, directory) from error
    if size_is_given:
        for warning in vocabulary_warnings(manifest):
            say(warning)
    return manifest


def run_stages(plan: DataPlan, stages: Stages) -> None:
    """Runs the stages in order, from where an earlier run stopped."""

    def refusal(holder: str) -> UserError:
        return UserError(
            f"another `t2t datagen` is at work in {plan.directory}; wait until it is "
            "done"
        )

    with lock(plan.directory / "lock", refusal) as directory_lock:
        if not plan.is_complete():
            counts = prepare(plan, stages, directory_lock)
            by_split = stages.encode(plan, counts, directory_lock)
            finish(plan, counts, by_split, stages.map, directory_lock)
            directory_lock.require_place()
        publish(plan)


def prepare(plan: DataPlan, stages: Stages, directory_lock: Lock) -> Counts:
    """Runs the stages before the encoding; returns the number of pairs."""
    start_or_resume(plan)
    if "train" in plan.splits and (warning := source_form_warning(plan.problem)):
        say(warning)
    counts = stages.count(plan)
    train_vocabularies(
        plan,
        counts.get("train", {}),
        functools.partial(stages.sample, plan, counts),
        in_subprocess=stages.workers > 1,
        lock=directory_lock,
    )
    require_tags(plan)
    return counts


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


def finish(
    plan: DataPlan,
    counts: Counts,
    by_split: Mapping[Split, Sequence[SplitPart]],
    map_tasks: TaskMap,
    directory_lock: Lock,
) -> None:
    """Runs the stages after the encoding.

    Args:
        plan: what is made.
        counts: the number of pairs by split and corpus.
        by_split: what is encoded of each split.
        map_tasks: runs tasks.
        directory_lock: the lock of the plan's directory.
    """
    directory_lock.require_place()
    dropped: dict[Split, Counter[str]] = {}
    for split, parts in by_split.items():
        dropped[split] = write_shards(plan, parts, directory_lock, map_tasks)
    for split in plan.splits:
        if split != "train":
            total = sum(counts[split].values())
            write_raw_texts(plan.problem, split, total, plan.done)
    write_manifest(plan, counts, dropped, by_split)


def start_or_resume(plan: DataPlan) -> None:
    """Empties the plan's directory, unless an earlier run had the same config."""
    directory = plan.directory
    path = directory / "config.json"
    fields = read_json(path)
    if fields is not None:
        earlier = from_fields(DataConfig, fields, path)
        changes = differences(vars(earlier), vars(plan.config))
        if not changes:
            say(f"{directory}: continuing where an earlier run stopped")
            return
        say(f"{directory}: starting again, because {'; '.join(changes)}")
    for child in directory.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
        elif child.name != "lock":
            child.unlink()
    plan.done.mkdir()
    write_json(path, dataclasses.asdict(plan.config), with_checksum=True)


def publish(plan: DataPlan) -> None:
    """Moves the finished files into the data directory, the manifest last."""
    if plan.done.exists():  # another run may have published them
        # A killed run has left the incomplete ones.
        paths = [x for x in sorted(plan.done.iterdir()) if x.suffix != ".incomplete"]
        for path in sorted(paths, key=lambda path: path == plan.manifest_path):
            os.replace(path, plan.data_dir / path.name)
    # Another run may make its lock file there again, and then removes the rest.
    shutil.rmtree(plan.directory, ignore_errors=True)


def _with_new_facts(manifest: Manifest, problem: Problem, data_dir: Path) -> Manifest:
    """Writes the licence and the languages of a problem into an earlier manifest."""
    facts: dict[str, Any] = {}
    problem_facts = {"license": problem.license, "languages": problem.data_languages}
    for name, value in problem_facts.items():
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
