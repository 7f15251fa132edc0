"""What a run of datagen makes, and the paths of its files until they are published."""

import dataclasses
import json
from pathlib import Path

from t2t_keras.data.data_config import DataConfig
from t2t_keras.data.manifest import Manifest
from t2t_keras.data.shard import Shard
from t2t_keras.data.sides import SIDES, SPLITS, Side
from t2t_keras.data.split_files import unfinished_dir
from t2t_keras.data.vocabulary_files import vocab_files
from t2t_keras.problem import Problem, Split


@dataclasses.dataclass(frozen=True)
class DataPlan:
    """What a run of datagen makes.

    Attributes:
        problem: the problem to make data of.
        config: all that the result depends on.
        data_dir: the directory that gets the result.
        earlier: manifest of the directory to which splits are added, if there is one.
    """

    problem: Problem
    config: DataConfig
    data_dir: Path
    earlier: Manifest | None = None

    @property
    def splits(self) -> list[Split]:
        """The splits to make, in order."""
        present = self.earlier.sources if self.earlier else ()
        return [s for s in SPLITS if s in self.config.sources and s not in present]

    @property
    def directory(self) -> Path:
        """The directory of all files until they are published."""
        return unfinished_dir(self.data_dir, self.problem.data_name)

    @property
    def done(self) -> Path:
        """The directory of the files that will be published."""
        return self.directory / "done"

    @property
    def manifest_path(self) -> Path:
        """The manifest before it is published."""
        return self.done / Manifest.path(self.data_dir, self.problem.data_name).name

    @property
    def vocabularies(self) -> dict[Side, Path]:
        """The vocabulary file of each side."""
        if self.earlier:
            return {s: self.data_dir / self.earlier.vocab_files[s] for s in SIDES}
        paths = {}
        for side, name in vocab_files(self.problem).items():
            is_given = name in self.config.given_vocabularies
            paths[side] = (self.data_dir if is_given else self.done) / name
        return paths

    def is_complete(self) -> bool:
        """Returns whether all files are made, though perhaps not yet published."""
        path = Manifest.path(self.data_dir, self.problem.data_name)
        published = Manifest.load(path)
        if published and published.sources.keys() >= self.config.sources.keys():
            return True
        return self.manifest_path.exists()

    def shard_lock(self, shard: Shard) -> Path:
        """Returns the lock file of the process that works on a shard."""
        return self.directory / f"part-{shard.index}-of-{shard.count}.lock"

    def purpose(self, shard: Shard) -> str:
        """Returns what all processes that share the work write to their locks."""
        return f"{shard.count} parts, {json.dumps(vars(self.config))}"
