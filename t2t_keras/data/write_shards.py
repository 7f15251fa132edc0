"""Sorts the spill files into TFRecord files, and writes the index of each split.

Pairs that occur more than once are found by their hashes.
"""

import dataclasses
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from t2t_keras.console import progress
from t2t_keras.data.encode_splits import EncodingState, SplitPart
from t2t_keras.data.encoding import SPILL_HEADER
from t2t_keras.data.manifest import DataPlan
from t2t_keras.data.mixture import Mixture
from t2t_keras.data.record_index import index_path, save_index, shard_name
from t2t_keras.data.tfrecord import FRAME
from t2t_keras.errors import UserError
from t2t_keras.files.atomic import Lock, atomic
from t2t_keras.problem import Split

# Calls a function of a module with each argument, and yields the results in order, as
# the builtin `map` does. It may do so on other machines, and repeat a call whose
# process died: a call that is repeated, even while the first one is still at work, has
# the same result and leaves the same files. Functions and arguments can be pickled.
TaskMap: TypeAlias = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]


@dataclasses.dataclass(frozen=True)
class Spill:
    """A spill file to read, and what it must have.

    Attributes:
        path: the file.
        size: its bytes.
        checksum: its CRC-32.
    """

    path: Path
    size: int
    checksum: int

    def read(self) -> bytes:
        """Returns the content; raises `UserError` if it is not what was written."""
        content = self.path.read_bytes() if self.path.exists() else b""
        is_whole = len(content) == self.size
        if is_whole and self.checksum == zlib.crc32(content):
            return content
        raise damaged_spill(self.path)


def damaged_spill(path: Path, directory: Path | None = None) -> UserError:
    """Returns the error for a file that is not what was written.

    Args:
        path: the file.
        directory: what to remove; None: the directory of the file.
    """
    return UserError(
        f"{path} is damaged, perhaps by a lost machine or a full disk; remove "
        f"{directory or path.parent} and run the same command again"
    )


def read_sorted(
    spills: Sequence[Spill], without: np.ndarray
) -> tuple[list[bytes], np.ndarray]:
    """Returns the records of a shard in the order of their keys.

    Args:
        spills: the spill files of the shard.
        without: uint64, ascending: keys of records that are left out.

    Returns:
        The framed records, and an int32 array [N, 4] with their payload bytes, source
        tokens, target tokens, and index of the corpus.

    Raises:
        UserError: a file is missing or damaged.
    """
    content = b"".join(spill.read() for spill in spills)
    keys = array("Q")
    starts = array("Q")
    lengths = array("i")
    position = 0
    while position < len(content):
        key, *size_and_lengths = SPILL_HEADER.unpack_from(content, position)
        position += SPILL_HEADER.size
        keys.append(key)
        starts.append(position)
        lengths.extend(size_and_lengths)
        position += size_and_lengths[0]
    order = np.argsort(np.asarray(keys), kind="stable")
    order = order[~np.isin(np.asarray(keys)[order], without)]
    table = np.asarray(lengths, np.int32).reshape(-1, 4)[order]
    records = []
    sizes = table[:, 0].tolist()
    for start, size in zip(np.asarray(starts)[order].tolist(), sizes, strict=True):
        records.append(content[start : start + size])
    table[:, 0] -= FRAME
    return records, table


def repeated(files: Sequence[Sequence[Spill]], map_tasks: TaskMap) -> np.ndarray:
    """Returns the keys of all examples but the first with the same hash, in order.

    Args:
        files: for each file number, the files of the parts of the split, in their
            order, which have the key and the hash of each example. The hash determines
            the number, so that equal ones meet.
        map_tasks: runs the tasks, one for each number.

    Returns:
        uint64, ascending.

    Raises:
        UserError: a file is missing or damaged.
    """
    return np.sort(np.concatenate(list(map_tasks(_repeated, files))))


def _repeated(files: Sequence[Spill]) -> np.ndarray:
    """Returns the keys of all but the first entry with the same hash, in any order."""
    content = b"".join(file.read() for file in files)
    entries = np.frombuffer(content, "<u8").reshape(-1, 2)
    order = np.argsort(entries[:, 1], kind="stable")
    keys, hashes = entries[order].T
    return keys[1:][hashes[1:] == hashes[:-1]]


def write_shards(
    plan: DataPlan, parts: Sequence[SplitPart], lock: Lock, map_tasks: TaskMap
) -> Counter[str]:
    """Writes the TFRecord files of a split and their index.

    Args:
        plan: what is made.
        parts: the encoded examples of the split, in all parts.
        lock: of the plan's directory.
        map_tasks: runs a task for each TFRecord file.

    Returns:
        The number of dropped examples by reason.

    Raises:
        UserError: a file of the encoded examples or of the records is damaged, or the
            directory was removed.
    """
    split = parts[0].split
    states = [part.load_state() for part in parts]
    files = list(map(_spills, parts, states))  # of each part
    num_shards = parts[0].config.num_shards
    by_number = list(zip(*files, strict=True))
    repeats = repeated(by_number[num_shards:], map_tasks)
    dropped = Counter(duplicate=len(repeats))
    for state in states:
        dropped += Counter(state.dropped)
    index = index_path(plan.done, plan.problem.data_name, split)
    if index.exists():
        return dropped
    tasks = _shard_tasks(plan, split, by_number[:num_shards], repeats)
    with progress(f"writing {split}", "shards", len(tasks)) as advance:
        for _ in map_tasks(_write_shard, tasks):
            advance(1)
    for task in tasks:
        _require_whole(task, plan.directory)
    paths = [task.path for task in tasks]
    lock.require_place()
    save_index(index, paths, read_lengths(plan, split))
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
    spills: Sequence[Spill]
    repeats: np.ndarray


def _shard_tasks(
    plan: DataPlan,
    split: Split,
    spills: Sequence[Sequence[Spill]],
    repeats: np.ndarray,
) -> list[_ShardTask]:
    """Returns the task of each shard.

    Args:
        plan: what is made.
        split: the split.
        spills: the spill files of each shard.
        repeats: the keys of records that are left out.
    """
    count = len(spills)
    shards = repeats % np.uint64(count)
    repeats = repeats[np.argsort(shards, kind="stable")]
    stops = np.cumsum(np.bincount(shards.astype(np.int64), minlength=count))
    by_shard = np.split(repeats, stops[:-1])
    tasks = []
    for index in range(count):
        path = plan.done / shard_name(plan.problem.data_name, split, index, count)
        lengths_path = plan.directory / f"{split}.lengths-{index:05d}"
        tasks.append(_ShardTask(path, lengths_path, spills[index], by_shard[index]))
    return tasks


def _spills(part: SplitPart, state: EncodingState) -> list[Spill]:
    """Returns the files of a part as its state describes them."""
    if not len(part.files) == len(state.sizes) == len(state.checksums):
        raise damaged_spill(part.state_path)
    return list(map(Spill, part.files, state.sizes, state.checksums))


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
    size = task.path.stat().st_size if task.path.exists() else 0
    if size != int(sizes.sum(dtype=np.int64)) + FRAME * len(sizes):
        raise damaged_spill(task.path, directory)


def read_lengths(plan: DataPlan, split: Split) -> list[np.ndarray]:
    """Returns sizes and lengths of the records of each shard, see `save_index`."""
    source = plan.problem.sources[split]
    tables = []
    for path in sorted(plan.directory.glob(f"{split}.lengths-?????")):
        table = np.fromfile(path, np.int32).reshape(-1, 4)
        tables.append(table if isinstance(source, Mixture) else table[:, :3])
    return tables
