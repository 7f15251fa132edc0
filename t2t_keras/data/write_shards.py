"""Sorts the spill files into TFRecord files, and writes the index of each split."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_keras.data.atomic_files import atomic
from t2t_keras.data.duplicates import repeated
from t2t_keras.data.encode_splits import SplitShard
from t2t_keras.data.index_files import save_index
from t2t_keras.data.mixture import Mixture
from t2t_keras.data.progress import progress
from t2t_keras.data.spill_files import read_sorted
from t2t_keras.data.split_files import index_path, shard_name
from t2t_keras.data.tasks import TaskRunner, run_here
from t2t_keras.problem import Source, Split


def write_shards(
    parts: Sequence[SplitShard],
    source: Source,
    data_name: str,
    directory: Path,
    done: Path,
    runner: TaskRunner = run_here,
) -> Counter[str]:
    """Writes the TFRecord files of a split and their index.

    Args:
        parts: the encoded examples of the split, from all shards of the work.
        source: the source of the split.
        data_name: `Problem.data_name`.
        directory: gets the lengths of the records of each file.
        done: gets the TFRecord files and the index.
        runner: runs a task for each TFRecord file.

    Returns:
        The number of dropped examples by reason.
    """
    split = parts[0].split
    repeats = repeated([part.hashes for part in parts], runner)
    dropped = Counter(duplicate=len(repeats))
    for part in parts:
        dropped += Counter(part.load_state().dropped)
    index = index_path(done, data_name, split)
    if index.exists():
        return dropped
    tasks = _shard_tasks(parts, repeats, data_name, directory, done)
    with progress(f"writing {split}", "shards", len(tasks)) as advance:
        for _ in runner(_write_shard, tasks):
            advance(1)
    paths = [task.path for task in tasks]
    save_index(index, paths, read_lengths(directory, split, source))
    return dropped


@dataclasses.dataclass(frozen=True)
class _ShardTask:
    """A TFRecord file to write.

    Attributes:
        path: the file.
        lengths_path: the file that gets the lengths of its records.
        spills: the files with its records.
        repeats: the keys of records that are left out.
    """

    path: Path
    lengths_path: Path
    spills: Sequence[Path]
    repeats: np.ndarray


def _shard_tasks(
    parts: Sequence[SplitShard],
    repeats: np.ndarray,
    data_name: str,
    directory: Path,
    done: Path,
) -> list[_ShardTask]:
    """Returns the tasks for the arguments of `write_shards`."""
    split = parts[0].split
    count = parts[0].config.num_shards
    shards = repeats % np.uint64(count)
    repeats = repeats[np.argsort(shards, kind="stable")]
    stops = np.cumsum(np.bincount(shards.astype(np.int64), minlength=count))
    by_shard = np.split(repeats, stops[:-1])
    tasks = []
    for i, spills in enumerate(zip(*(part.spills for part in parts), strict=True)):
        path = done / shard_name(data_name, split, i, count)
        lengths_path = directory / _lengths_name(split, i)
        tasks.append(_ShardTask(path, lengths_path, spills, by_shard[i]))
    return tasks


def _write_shard(task: _ShardTask) -> None:
    """Writes a file, unless it exists, and removes its spill files."""
    if not task.path.exists():
        records, lengths = read_sorted(task.spills, without=task.repeats)
        with atomic(task.lengths_path) as incomplete:
            incomplete.write_bytes(lengths.tobytes())
        with atomic(task.path) as incomplete, incomplete.open("wb", 1 << 20) as file:
            file.writelines(records)
    for spill in task.spills:
        spill.unlink(missing_ok=True)


def _lengths_name(split: Split, index: int) -> str:
    return f"{split}.lengths-{index:05d}"


def read_lengths(directory: Path, split: Split, source: Source) -> list[np.ndarray]:
    """Returns sizes and lengths of the records of each shard, see `save_index`."""
    tables = []
    for path in sorted(directory.glob(f"{split}.lengths-?????")):
        table = np.fromfile(path, np.int32).reshape(-1, 4)
        tables.append(table if isinstance(source, Mixture) else table[:, :3])
    return tables
