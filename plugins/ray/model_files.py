"""The model of a command on a cluster, and the files by which a node shows it."""

import argparse
import dataclasses
from pathlib import Path
from typing import Self

from t2t_keras.cli.translation import checkpoint_id
from t2t_keras.export.formats import find_loader
from t2t_keras.run.config import RunConfig, is_path

from .input_files import absolute
from .source_files import module_files


@dataclasses.dataclass(frozen=True)
class Model:
    """A model by paths that every node has.

    Attributes:
        directory: the run or export.
        checkpoint: see `t2t_keras.load`.
        ensemble: see `t2t_keras.load`.
        usr_dir: the folder of `--usr_dir`; "": none.
    """

    directory: str
    checkpoint: str | None = None
    ensemble: tuple[str, ...] = ()
    usr_dir: str = ""

    @classmethod
    def from_args(
        cls, args: argparse.Namespace, directory: str, checkpoint: str | None
    ) -> Self:
        """Returns the model of a command line, with absolute paths.

        Args:
            args: the command line, with `--ensemble` and `--usr_dir`.
            directory: the run or export.
            checkpoint: see `t2t_keras.load`.
        """
        if checkpoint and is_path(checkpoint):
            checkpoint = absolute(checkpoint)
        ensemble = tuple(map(absolute, args.ensemble))
        usr_dir = absolute(args.usr_dir) if args.usr_dir else ""
        return cls(absolute(directory), checkpoint, ensemble, usr_dir)

    def files(self) -> list[Path]:
        """Returns files by which a node shows that it has the model.

        They include the user's modules that were imported.
        """
        files = module_files(self.usr_dir) if self.usr_dir else []
        for directory in (self.directory, *self.ensemble):
            if find_loader(Path(directory)):
                files += Path(directory).rglob("*")
                continue
            name = "latest" if self.checkpoint == "ema" else self.checkpoint
            path, _ = checkpoint_id(directory, name)
            # The index has the checksums of all weights.
            files += [Path(f"{path}.index"), Path(directory, "config.json")]
            files += Path(directory).glob("vocab.*")
            if folder := RunConfig.read(Path(directory)).usr_dir:
                files += module_files(folder)
        return sorted({path for path in files if path.is_file()})

    def weight_ids(self) -> tuple[str, ...]:
        """Returns a checksum of the weights of each run; none for an export.

        A name such as "latest" may mean other weights later, when a training has gone
        on.
        """
        if find_loader(Path(self.directory)):
            return ()
        ids = []
        for run in (self.directory, *self.ensemble):
            _, checksum = checkpoint_id(run, self.checkpoint)
            ids.append(checksum)
        return tuple(ids)
