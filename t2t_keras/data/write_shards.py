"""Sorts the spill files into TFRecord files, and writes the index of each split."""

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
from t2t_keras.problem import Source, Split


def write_shards(
    parts: Sequence[SplitShard],
    source: Source,
    data_name: str,
    directory: Path,
    done: Path,
) -> Counter[str]:
    """Writes the TFRecord files of a split and their index.

    Args:
        parts: the encoded examples of the split, from all shards of the work.
        source: the source of the split.
        data_name: `Problem.data_name`.
        directory: gets the lengths of the records of each file.
        done: gets the TFRecord files and the index.

    Returns:
        The number of dropped examples by reason.
    """
    split = parts[0].split
    repeats = repeated([part.hashes for part in parts])
    dropped = Counter(duplicate=len(repeats))
    for part in parts:
        dropped += Counter(part.load_state().dropped)
    index = index_path(done, data_name, split)
    if index.exists():
        return dropped
    count = parts[0].config.num_shards
    paths = []
    with progress(f"writing {split}", "shards", count) as advance:
        for i, spills in enumerate(zip(*(p.spills for p in parts), strict=True)):
            path = done / shard_name(data_name, split, i, count)
            paths.append(path)
            if not path.exists():
                _write_shard(path, spills, repeats, directory / _lengths_name(split, i))
            for spill in spills:
                spill.unlink(missing_ok=True)
            advance(1)
    save_index(index, paths, read_lengths(directory, split, source))
    return dropped


def _write_shard(
    path: Path, spills: Sequence[Path], repeats: np.ndarray, lengths_path: Path
) -> None:
    records, lengths = read_sorted(spills, without=repeats)
    with atomic(lengths_path) as incomplete:
        incomplete.write_bytes(lengths.tobytes())
    with atomic(path) as incomplete, incomplete.open("wb", 1 << 20) as file:
        file.writelines(records)


def _lengths_name(split: Split, index: int) -> str:
    return f"{split}.lengths-{index:05d}"


def read_lengths(directory: Path, split: Split, source: Source) -> list[np.ndarray]:
    """Returns sizes and lengths of the records of each shard, see `save_index`."""
    tables = []
    for path in sorted(directory.glob(f"{split}.lengths-?????")):
        table = np.fromfile(path, np.int32).reshape(-1, 4)
        tables.append(table if isinstance(source, Mixture) else table[:, :3])
    return tables
