"""Sorts the spill files into TFRecord files, and writes the index of each split."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from t2t_keras.data.atomic_files import atomic
from t2t_keras.data.duplicates import repeated
from t2t_keras.data.encode_splits import EncodingState, SplitPart
from t2t_keras.data.index_files import save_index
from t2t_keras.data.mixture import Mixture
from t2t_keras.data.progress import progress
from t2t_keras.data.spill_files import Spill, damaged_spill, read_sorted
from t2t_keras.data.split_files import index_path, shard_name
from t2t_keras.data.tasks import TaskRunner, run_here
from t2t_keras.data.tfrecord import FRAME
from t2t_keras.errors import UserError
from t2t_keras.problem import Source, Split


def write_shards(
    parts: Sequence[SplitPart],
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

    Raises:
        UserError: a file of the encoded examples or of the records is damaged.
    """
    split = parts[0].split
    states = [part.load_state() for part in parts]
    for part, state in zip(parts, states, strict=True):
        sizes = state.sizes or []
        is_known = len(sizes) == len(part.spills) + 1
        if not is_known or _size(part.hashes) != sizes[-1]:
            raise damaged_spill(part.hashes)
    repeats = repeated(list(map(_hashes, parts, states)), runner)
    dropped = Counter(duplicate=len(repeats))
    for state in states:
        dropped += Counter(state.dropped)
    index = index_path(done, data_name, split)
    if index.exists():
        return dropped
    tasks = _shard_tasks(parts, states, repeats, data_name, directory, done)
    with progress(f"writing {split}", "shards", len(tasks)) as advance:
        for _ in runner(_write_shard, tasks):
            advance(1)
    for task in tasks:
        _require_whole(task, directory)
    paths = [task.path for task in tasks]
    save_index(index, paths, read_lengths(directory, split, source))
    return dropped


def _size(path: Path) -> int:
    """Returns the size of a file; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


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
    spills: Sequence[Spill]
    repeats: np.ndarray


def _shard_tasks(
    parts: Sequence[SplitPart],
    states: Sequence[EncodingState],
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
    spills_by_part = list(map(_spills, parts, states))
    tasks = []
    for i, spills in enumerate(zip(*spills_by_part, strict=True)):
        path = done / shard_name(data_name, split, i, count)
        lengths_path = directory / _lengths_name(split, i)
        tasks.append(_ShardTask(path, lengths_path, spills, by_shard[i]))
    return tasks


def _spills(part: SplitPart, state: EncodingState) -> list[Spill]:
    """Returns the spill files of a part as its state describes them."""
    sizes = (state.sizes or [])[:-1]
    checksums: Sequence[int | None] = state.checksums or [None] * len(sizes)
    return list(map(Spill, part.spills, sizes, checksums))


def _hashes(part: SplitPart, state: EncodingState) -> Spill:
    """Returns the file of hashes of a part as its state describes it."""
    checksum = state.checksums[-1] if state.checksums else None
    return Spill(part.hashes, (state.sizes or [0])[-1], checksum)


def _write_shard(task: _ShardTask) -> None:
    """Writes a file, unless it exists, and removes its spill files.

    Another task may write the same file: one that was given up with its machine.
    """
    if not task.path.exists():
        try:
            records, lengths = read_sorted(task.spills, without=task.repeats)
        except UserError:
            if task.path.exists():
                return  # the other task has removed the spill files meanwhile
            raise
        with atomic(task.lengths_path) as incomplete:
            incomplete.write_bytes(lengths.tobytes())
        with atomic(task.path) as incomplete, incomplete.open("wb", 1 << 20) as file:
            file.writelines(records)
    for spill in task.spills:
        spill.path.unlink(missing_ok=True)


def _require_whole(task: _ShardTask, directory: Path) -> None:
    """Raises `UserError` if the disk does not have all that a task has written."""
    table = np.zeros(0, np.int32)
    if task.lengths_path.exists():
        table = np.fromfile(task.lengths_path, np.int32)
    sizes = table[: len(table) // 4 * 4].reshape(-1, 4)[:, 0]
    if _size(task.path) != int(sizes.sum(dtype=np.int64)) + FRAME * len(sizes):
        raise UserError(
            f"{task.path} is damaged, perhaps by a lost machine or a full disk; remove "
            f"{directory} and run the same command again"
        )


def _lengths_name(split: Split, index: int) -> str:
    return f"{split}.lengths-{index:05d}"


def read_lengths(directory: Path, split: Split, source: Source) -> list[np.ndarray]:
    """Returns sizes and lengths of the records of each shard, see `save_index`."""
    tables = []
    for path in sorted(directory.glob(f"{split}.lengths-?????")):
        table = np.fromfile(path, np.int32).reshape(-1, 4)
        tables.append(table if isinstance(source, Mixture) else table[:, :3])
    return tables
