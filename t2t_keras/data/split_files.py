"""Names of the files of a split in a data directory.

A shard `{data_name}-{split}-00000-of-00100` is, as tensor2tensor writes it, a TFRecord
file of `tf.train.Example` with the int64 lists `inputs` and `targets`, each ending in
EOS, and, where word alignments were given, `links`.
"""

import os
import re
from pathlib import Path

from t2t_keras.errors import UserError


def shard_name(data_name: str, split: str, shard: int, num_shards: int) -> str:
    """Returns a shard's file name, as tensor2tensor names it."""
    return f"{data_name}-{split}-{shard:05d}-of-{num_shards:05d}"


def index_path(data_dir: Path, data_name: str, split: str) -> Path:
    """Returns the path of the index of a split."""
    return Path(data_dir) / f"{data_name}-{split}.index.npz"


def unfinished_dir(data_dir: Path, data_name: str) -> Path:
    """Returns the directory in which datagen works until the data are complete."""
    return Path(data_dir) / f"{data_name}.incomplete"


def num_train_shards(num_examples: int) -> int:
    """Returns the number of shards for a number of training examples.

    There is one for every 10,000 examples up to tensor2tensor's 100. Beyond 50 million
    examples there are more, so that at most half a million are sorted in memory.
    """
    return max(min(-(-num_examples // 10_000), 100), -(-num_examples // 500_000))


def find_shards(data_dir: Path, data_name: str, split: str) -> list[Path]:
    """Returns the shards of a split, in order.

    Raises:
        UserError: there are none, some are missing, or there are two sets of them.
    """
    data_dir = Path(data_dir)
    manifest = data_dir / f"{data_name}.manifest.json"
    if unfinished_dir(data_dir, data_name).exists() and not manifest.exists():
        raise UserError(
            f"the data of '{data_name}' in {data_dir} is unfinished; run the same "
            "`t2t datagen` again, and it continues where it stopped"
        )
    pattern = re.compile(rf"{re.escape(data_name)}-{split}-(\d{{5}})-of-(\d{{5}})")
    names = os.listdir(data_dir) if data_dir.is_dir() else []
    matches = sorted(filter(None, map(pattern.fullmatch, names)), key=lambda m: m[0])
    if not matches:
        raise UserError(
            f"there is no {split} data of '{data_name}' in {data_dir}; "
            "`t2t datagen` makes it, and adds it to a directory that has other splits"
        )
    totals = {int(match[2]) for match in matches}
    if len(totals) > 1:
        raise UserError(
            f"{data_dir} has the {split} data of '{data_name}' more than once, in "
            f"{' and in '.join(map(str, sorted(totals)))} shards; remove one set"
        )
    if [int(match[1]) for match in matches] != list(range(*totals)):
        raise UserError(
            f"{data_dir} has only {len(matches)} of the {max(totals)} {split} shards "
            f"of '{data_name}'; copy the rest, or generate the data again"
        )
    return [data_dir / match[0] for match in matches]
