"""`t2t datagen --cluster`: generates data on a Ray cluster."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_keras.cli.command import CommandResult
from t2t_keras.cli.data import Datagen
from t2t_keras.errors import require_extra

from .cluster import (
    ClusterFlags,
    WorkerSize,
    absolute,
    connected,
    require_capacity,
    require_same_nodes,
)

if TYPE_CHECKING:
    from .datagen import ClusterStages

_SIZE = WorkerSize(cores=1)  # of a task


@dataclasses.dataclass(kw_only=True)
class DatagenOnCluster(ClusterFlags, Datagen):
    """Generates data on a Ray cluster."""

    def check(self) -> None:
        """Also refuses a machine without Ray."""
        require_extra("ray", "--cluster", "ray")
        super().check()

    def run(self) -> CommandResult:
        """Generates the data, with absolute paths, which all nodes have."""
        self.data_dir = absolute(self.data_dir)
        if self.usr_dir:
            self.usr_dir = absolute(self.usr_dir)
        for flag, path in self.read_files().items():
            setattr(self, flag, absolute(path))
        with connected(self.cluster):
            self.workers = require_capacity(_SIZE, self.workers)
            return super().run()

    def stages(self) -> "ClusterStages":
        """Returns the work on the cluster, once its nodes can do it."""
        from .datagen import ClusterStages
        from .task_runner import RayTaskRunner

        assert self.workers is not None
        files = [Path(path) for path in self.read_files().values()]
        if self.usr_dir:
            files += Path(self.usr_dir).rglob("*.py")
        Path(self.data_dir).mkdir(parents=True, exist_ok=True)
        require_same_nodes(read=files, written=[self.data_dir])
        runner = RayTaskRunner(self.workers, _SIZE, self.usr_dir or "")
        return ClusterStages(runner, self.workers)


EXTENSION = DatagenOnCluster
